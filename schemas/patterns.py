"""Match texts against regular expressions that people declare, in time linear in the text.

The models of topologies check a pattern with `require_pattern`, and the readers of configuration
match values with `is_full_match`. Python's own engine needs exponential time for a pattern such as
`(a+)+$`, and would stop an editor's language server. The engine of pydantic-core (the Rust crate
`regex`) has no such patterns: it lacks look-around and backreferences.
"""

from functools import cache

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema


def require_pattern(pattern: str) -> str:
    """Return a valid regular expression. Raises ValueError with the reason for another text."""
    try:
        # Alone, too: inside a group, the text `a)|(b` would be valid.
        _create_validator(pattern)
        _create_validator(_anchor(pattern))
    except SchemaError as error:
        # The engine's message ends with the reason, after the pattern and a line of carets.
        reason = str(error).rpartition("rror: ")[2]
        raise ValueError(f"is not a regular expression: {reason}") from None
    return pattern


def is_full_match(pattern: str, text: str) -> bool:
    """Return True if a valid regular expression matches the complete text."""
    try:
        _create_validator(_anchor(pattern)).validate_python(text)
    except ValidationError:
        return False
    return True


def _anchor(pattern: str) -> str:
    r"""Return a pattern for complete texts; `$` would also match before a final line break."""
    return rf"\A(?:{pattern})\z"


@cache
def _create_validator(pattern: str) -> SchemaValidator:
    """Return the validator of texts that contain a match of the pattern. Raises SchemaError."""
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
