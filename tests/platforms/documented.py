"""What each platform documents, and what gpuform does with it: the YAML files beside this one.

A path of an answer's field is that of the wire model; one that ends with `.*` is all below it.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.models import InputModel, OutputModel

HERE: Final = Path(__file__).parent
NAMES: Final = ("together", "scp", "tensorone", "aios", "lens")

Lines = Sequence[str | Mapping[str, str]]


@dataclass(frozen=True)
class Answer:
    """An object that the platform sends, and what becomes of its fields.

    `declared` and `told` say which input and which output of the kind a field is; `used` what else
    gpuform does with it, `dropped` why nothing does (it may be empty). A lookup shows all of it.
    """

    platform: str
    model: str
    kind: str
    lookup: str
    declared: Mapping[str, str]
    told: Mapping[str, str]
    used: Mapping[str, str]
    dropped: Mapping[str, str]

    @cached_property
    def wire_model(self) -> type[BaseModel]:
        found = getattr(_module(self.platform, "wire"), self.model)
        assert issubclass(found, BaseModel)
        return found

    @property
    def inputs(self) -> type[InputModel]:
        return load_lifecycle_class(self.platform, self.kind).inputs

    @property
    def outputs(self) -> type[OutputModel]:
        return load_lifecycle_class(self.platform, self.kind).outputs


@dataclass(frozen=True)
class States:
    """The states of something: the meaning of each, as the tables of the schemas have it."""

    of: str
    unknown: str
    meanings: Mapping[str, str]


@dataclass(frozen=True)
class Documented:
    """A platform's document as data."""

    name: str
    given: Mapping[str, Any]

    @property
    def answers(self) -> Iterator[Answer]:
        for each in self.given["objects"]:
            yield Answer(
                self.name,
                each["model"],
                each.get("kind", ""),
                each.get("lookup", ""),
                _mapped(each.get("declared", [])),
                _mapped(each.get("told", [])),
                {path: text or "" for path, text in each.get("used", {}).items()},
                {path: text or "" for path, text in each.get("dropped", {}).items()},
            )

    @property
    def states(self) -> Iterator[States]:
        for each in self.given["states"]:
            yield States(each["of"], each["unknown"], dict(self._meanings(each)))

    def _meanings(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from given.get("values", {}).items()
        if "ready" not in given:
            return
        statuses = _module(self.name, "statuses")
        tables = {each: getattr(statuses, given[each]) for each in _MEANINGS if each in given}
        stuck = getattr(statuses, given["stuck"]) if "stuck" in given else {}
        words = {**_MEANINGS, **given.get("words", {})}
        for state in getattr(statuses, given["enum"]) if "enum" in given else tables["ready"]:
            found = next((each for each, table in tables.items() if state in table), "pending")
            yield str(state), f"{words[found]}; {stuck[state]}" if state in stuck else words[found]


_MEANINGS: Final = {
    "pending": "is waited for",
    "ready": "ready",
    "failed": "ends the waiting: it does not become ready by itself",
    "gone": "is going, or gone",
}


def documented(name: str) -> Documented:
    """What a platform documents."""
    return Documented(name, yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8")))


def leaves(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """The paths of a model's fields that hold no further model."""
    for name, field in model.model_fields.items():
        inner = [each for each in _types(field.annotation) if _is_model(each)]
        if inner:
            yield from leaves(inner[0], f"{before}{name}.")
        else:
            yield before + name


def covers(pattern: str, path: str) -> bool:
    """Whether a path of the YAML files stands for this one."""
    return path.startswith(pattern[:-1]) if pattern.endswith(".*") else path == pattern


def _is_model(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for each in get_args(annotation):
        yield from _types(each)


def _mapped(lines: Sequence[Lines | Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        found.update(line if isinstance(line, Mapping) else {str(each): str(each) for each in line})
    return found


def _module(platform: str, name: str) -> Any:
    return importlib.import_module(f"gpuform.schemas.{platform}.{name}")
