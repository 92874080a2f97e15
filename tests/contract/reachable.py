"""Everything that an estimator holds, for tests that look for what it must not hold."""


def reachable(value, seen=None):
    """Return every object that can be reached by attributes and containers, by its id."""
    seen = {} if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return seen
    seen[id(value)] = value
    children = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, dict):
        children += list(value.values())
    if isinstance(value, (list, tuple, set)):
        children += list(value)
    for child in children:
        reachable(child, seen)
    return seen
