"""The bases of all models: what people declare, what servers send, what a resource gives out.

The three are never mixed: explicit functions in each platform's ``wire.py`` turn one into another.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuform.schemas.rules import rules_of

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input.

    ``path`` is the property path (``num_gpus``, ``oidc_config.issuer_url``, ``add_ons[0].name``);
    ``reason`` says what is wrong and what to do, without the value of a secret.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class InputModel(BaseModel):
    """What a person declares. Unknown names are refused, every field has a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    retired_names: ClassVar[Mapping[str, str]] = _NONE
    """Names that people know from elsewhere -> our name for the same thing."""

    former_names: ClassVar[Mapping[str, str]] = _NONE
    """Names that a field had -> its name now: both are accepted, the new one is what counts."""

    retired_values: ClassVar[Mapping[str, Mapping[str, str]]] = _NONE
    """Field -> values that people know from elsewhere -> the platform's value."""

    refuses_null: ClassVar[bool] = False
    """Whether a null is a problem, also inside; else it means that the field is not declared."""

    system_names: ClassVar[Mapping[str, str]] = _NONE
    """Names of what the platform alone sets -> what to say to somebody who declares it."""

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:  # noqa: ARG003 - a hook
        """The rules over several fields. Called with values whose single fields are right.

        A field that is absent was not declared; one that is UNKNOWN is not known yet (or is wrong
        and already reported), and a rule that needs it is skipped.
        """
        return iter(())

    @classmethod
    def canonical(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The same declaration in one spelling. Values may be UNKNOWN; ``values`` is unchanged."""
        return values

    @classmethod
    def by_new_names(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same with the name that each field has now; where both are given, both stay."""
        renamed = {
            now: values[name]
            for name, now in cls.former_names.items()
            if values.get(name) is not None and values.get(now) is None
        }
        if not renamed:
            return values
        old = {name for name, now in cls.former_names.items() if now in renamed}
        return {**{name: value for name, value in values.items() if name not in old}, **renamed}

    @classmethod
    def converted(cls, name: str, value: Any) -> Any:  # noqa: ARG003 - a hook
        """The value of the retired ``name`` as our field wants it, for the hint only."""
        return value

    def declared(self) -> dict[str, Any]:
        """What was declared, and nothing else: no undeclared and no None field at any depth."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


class WireModel(BaseModel):
    """What a server sends. Unknown keys are ignored, a null is an absent field.

    Enumerations are plain strings here, so that a value of a newer server is kept as it is.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class WireList(WireModel):
    """An answer that is a list: what the document promises is there, or it is another's answer.

    A null in its place is an empty list.
    """

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        promised = {name for name, each in cls.model_fields.items() if each.is_required()}
        empty = {name: () for name in promised if name in data and data[name] is None}
        return {**{k: value for k, value in data.items() if value is not None}, **empty}


class OutputModel(BaseModel):
    """What a resource gives out beside the echo of its inputs. ``ready`` alone decides."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    ready: bool = Field(description="Whether the resource can be used now.")
    not_ready_reason: str | None = Field(
        default=None, description="Why it cannot be used yet, or no longer; absent when it can."
    )

    @classmethod
    def secret_names(cls) -> frozenset[str]:
        """The outputs that are secret: Pulumi marks secrets by top-level name."""
        return frozenset(name for name, rules in rules_of(cls).items() if rules.secret)
