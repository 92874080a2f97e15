"""How far two samples are apart, and how useful one is in the place of the other."""

__all__: list[str] = []
