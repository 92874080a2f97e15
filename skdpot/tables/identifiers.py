"""Columns that identify people, by their names."""

import re

# Names of columns that identify people, with an optional word for the person.
_PERSON = r"(patient|person|people|customer|client|employee|student|user|member|contact|subject)s?"
_WHO = re.compile(
    rf"({_PERSON})?((full|first|last|middle|maiden|given|family|sur|fore|nick|user)?names?"
    r"|ids?|identifiers?|(street|home|postal|e?mail|ip)?address(es)?|e?mail"
    r"|(phone|telephone|mobile|passport|socialsecurity)(no|numbers?)?|ssn|mrn|iban)"
)


def tells_who(name: str) -> bool:
    """Return whether the public name of a column says that it identifies people."""
    word = re.sub(r"[\W_]+", "", name).lower()
    return bool(word) and _WHO.fullmatch(word) is not None
