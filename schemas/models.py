"""Define the base classes of input, wire and output models, `Problem`, and types of texts.

Every platform derives its models from them. The three families never mix: functions in ``wire.py``
and in the providers' state modules convert explicitly between them.

No platform documents the form of its ids; all that can be required everywhere is one visible line,
because ids get into request paths, files of other programs and logs. Rules of Kubernetes are from
its page 'Object Names and IDs'.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.safe_text import is_visible_line, replace_invisible

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input.

    ``path`` is the property path (``num_gpus``, ``oidc_config.issuer_url``, ``add_ons[0].name``).
    ``reason`` says what is wrong and what to do, and never contains the value of a secret.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def optional_field(description: str, **options: Any) -> Any:
    """Build the pydantic field of an optional value, None by default, with `options` of `Field`.

    None. `options` are those of `Field`.
    """
    return Field(default=None, description=description, **options)


class FrozenModel(BaseModel):
    """Base of the models of what gpuform itself writes and reads. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


_SHARED_NAMES: Final[dict[frozenset[str], set[str]]] = {}
"""The sets of field names that models share, by their content."""


def share_field_names(model: FrozenModel) -> None:
    """Save memory: share equal sets of field names between `model`, the models inside and others.

    pydantic gives each model a set with the names of the fields that were set. In plans of many
    resources these sets need more memory than the values. A frozen model never changes its set.
    """
    names = model.__pydantic_fields_set__
    shared_names = _SHARED_NAMES.setdefault(frozenset(names), names)
    if shared_names is not names:
        object.__setattr__(model, "__pydantic_fields_set__", shared_names)
    for value in model.__dict__.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, FrozenModel):
                share_field_names(item)


class InputModel(FrozenModel):
    """Base of the models of declared properties. Every field has a description."""

    retired_names: ClassVar[Mapping[str, str]] = _EMPTY
    """Names that people know from other tools or consoles, with gpuform's name for each."""

    former_names: ClassVar[Mapping[str, str]] = _EMPTY
    """Former names of fields, with the present name of each.

    Both are accepted; the value is stored by the present one.
    """

    retired_values: ClassVar[Mapping[str, Mapping[str, str]]] = _EMPTY
    """By field: values that people know from elsewhere, with the platform's value for each."""

    refuses_null: ClassVar[bool] = False
    """Whether null is a problem, also in nested objects; otherwise null means not declared."""

    system_names: ClassVar[Mapping[str, str]] = _EMPTY
    """Properties that only the platform sets, with the message for whoever declares one."""

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:  # noqa: ARG003 - a hook
        """Yield the problems of rules over several fields; a model with rules overrides this.

        Called after each single field was validated. An absent field is not declared. A field that
        is UNKNOWN is not known yet, or is wrong and already reported: a rule that needs the field
        is skipped.
        """
        return iter(())

    @classmethod
    def normalize(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return ``values`` with one spelling for declarations of equal meaning.

        Alternative spellings are replaced and derived values filled in; a model with such fields
        overrides this. Values may be UNKNOWN; ``values`` itself is not changed.
        """
        return values

    @classmethod
    def rename_former_fields(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``values`` with former field names replaced by present ones.

        Where both names are given, both stay: the caller reports the conflict.
        """
        renamed = {
            new_name: values[name]
            for name, new_name in cls.former_names.items()
            if values.get(name) is not None and values.get(new_name) is None
        }
        if not renamed:
            return values
        # a null under the former name would otherwise hide the renamed value
        former_names = {name for name, new_name in cls.former_names.items() if new_name in renamed}
        return {
            **{name: value for name, value in values.items() if name not in former_names},
            **renamed,
        }

    @classmethod
    def convert_retired_value(cls, name: str, value: Any) -> Any:  # noqa: ARG003 - a hook
        """Return a value of the removed field ``name`` in the form of the successor, for hints."""
        return value

    def dump_declared(self) -> dict[str, Any]:
        """Return the declared fields as a dict, without undeclared fields and None at any depth."""
        # None means not declared, so that a null never becomes a change
        return self.model_dump(exclude_unset=True, exclude_none=True)


class WireModel(BaseModel):
    """Base of the models of what a server sends.

    Unknown keys are ignored, a null counts as absent.

    Enumerations are plain strings here, so that a value of a newer server is kept as it is.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Return the platform's JSON object without members whose value is null."""
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class WireList(WireModel):
    """Base of answers that are lists. Without a required field the answer is refused.

    A null in place of a required list counts as an empty list.
    """

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Return a list answer without null members; null becomes [] for a required list.

        A missing required list stays missing and fails: the answer is not the platform's list.
        """
        if not isinstance(data, dict):
            return data
        # an answer without the promised list is no empty list: it is the document of a proxy or of
        # another endpoint, and would look as if all objects were deleted
        required_fields = {name for name, field in cls.model_fields.items() if field.is_required()}
        empty_lists = {name: () for name in required_fields if name in data and data[name] is None}
        return {**{key: value for key, value in data.items() if value is not None}, **empty_lists}


class OutputPart(BaseModel):
    """Base of the objects in outputs."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class OutputModel(OutputPart):
    """Base of the models of a resource's outputs beside its repeated inputs.

    ``ready`` alone decides.
    """

    ready: bool = Field(description="Whether the resource is usable now.")
    not_ready_reason: str | None = optional_field(
        "Why the resource is not usable; absent if it is."
    )

    @classmethod
    def get_secret_names(cls) -> frozenset[str]:
        """Return the names of the secret outputs: Pulumi marks secrets by top-level name only."""
        # a secret part makes the whole output secret
        return frozenset(name for name, rules in get_field_rules(cls).items() if rules.secret)


MAX_LENGTH: Final = 256
_REPLACEMENT_CHARACTER: Final = "\ufffd"
"""Stands for a character that cannot be shown. No declared name may contain it."""


def validate_id(text: str) -> str:
    """Return ``text`` if allowed as the id of an object in a request path.

    Raises:
        ValueError: the text is empty, `.` or `..` (which a path would resolve), too long, or has
            invisible characters. The message contains the rule and never the text.
    """
    if text in ("", ".", ".."):
        raise ValueError("must not be empty or only dots")
    return validate_line(text)


def validate_line(text: str) -> str:
    """Return ``text`` if empty or one visible line of at most `MAX_LENGTH` characters.

    Raises:
        ValueError: with the rule, never the text.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"must have at most {MAX_LENGTH} characters")
    if not is_visible_line(text) or _REPLACEMENT_CHARACTER in text:
        raise ValueError("must be one line without control characters and direction marks")
    return text


def to_readable_name(text: str) -> str:
    """Return a name from a platform's answer as one short visible line.

    Objects of other people may have any name, and must not make a list unreadable. A name that was
    changed here contains a character that `validate_line` refuses, so it never equals a declared
    name.
    """
    if len(text) > MAX_LENGTH:
        text = text[: MAX_LENGTH - 1] + _REPLACEMENT_CHARACTER
    return replace_invisible(text, _REPLACEMENT_CHARACTER)


Id = Annotated[str, AfterValidator(validate_id)]
"""The id of an object that requests address."""

Line = Annotated[str, AfterValidator(validate_line)]
"""A name or an id that is only reported; may be empty."""

ForeignName = Annotated[str, AfterValidator(to_readable_name)]
"""A name in a platform's answer; may be empty."""


def require_full_match(pattern: str, message: str) -> AfterValidator:
    """Build the validator of texts with a complete match of a regular expression.

    Other texts raise ValueError with the message, in which `{text}` stands for the text.
    """
    compiled = re.compile(pattern)

    def validate(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(message.format(text=text))
        return text

    return AfterValidator(validate)


DEFAULT_NAMESPACE: Final = "default"

Name = Annotated[
    str,
    # At most 253 characters: Kubernetes' limit of a DNS subdomain name.
    require_full_match(
        r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
        "{text!r} is not a name in Kubernetes: use a-z, 0-9 and -",
    ),
]
Namespace = Annotated[
    str,
    # At most 63 characters: Kubernetes' limit of a DNS label.
    require_full_match(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "{text!r} is not a namespace: use a-z, 0-9 and -, at most 63 of them",
    ),
]


def require_pattern(pattern: str) -> str:
    """Return a valid regular expression. Raises ValueError with the reason for another text.

    Python's own engine needs exponential time for a pattern such as `(a+)+$`, and would stop an
    editor's language server. The engine of pydantic-core (the Rust crate `regex`) needs time linear
    in the text: it lacks look-around and backreferences.
    """
    try:
        # Alone, too: inside a group, the text `a)|(b` would be valid.
        _create_text_validator(pattern)
        _create_text_validator(_anchor_pattern(pattern))
    except SchemaError as error:
        # The engine's message ends with the reason, after the pattern and a line of carets.
        reason = str(error).rpartition("rror: ")[2]
        raise ValueError(f"is not a regular expression: {reason}") from None
    return pattern


def is_full_match(pattern: str, text: str) -> bool:
    """Return True if a valid regular expression matches the complete text."""
    try:
        _create_text_validator(_anchor_pattern(pattern)).validate_python(text)
    except ValidationError:
        return False
    return True


def _anchor_pattern(pattern: str) -> str:
    r"""Return a pattern for complete texts; `$` would also match before a final line break."""
    return rf"\A(?:{pattern})\z"


@cache
def _create_text_validator(pattern: str) -> SchemaValidator:
    """Return the validator of texts with a match of the pattern anywhere. Raises SchemaError."""
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
