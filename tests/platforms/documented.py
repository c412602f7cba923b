"""Load what each platform documents and gpuform does with it, from the YAML files here.

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
    """An object that the platform sends, and the use of its fields."""

    platform: str
    model: str
    kind: str
    lookup: str
    declared: Mapping[str, str]
    reported: Mapping[str, str]
    used: Mapping[str, str]
    dropped: Mapping[str, str]

    @cached_property
    def wire_model(self) -> type[BaseModel]:
        model = getattr(_import_schema(self.platform, "wire"), self.model)
        assert issubclass(model, BaseModel)
        return model

    @property
    def inputs(self) -> type[InputModel]:
        return load_lifecycle_class(self.platform, self.kind).inputs

    @property
    def outputs(self) -> type[OutputModel]:
        return load_lifecycle_class(self.platform, self.kind).outputs


@dataclass(frozen=True)
class States:
    """The states of an object: the meaning of each, as in the tables of the schemas."""

    of: str
    unknown: str
    meanings: Mapping[str, str]


@dataclass(frozen=True)
class Documented:
    """A platform's document as data."""

    name: str
    content: Mapping[str, Any]

    @property
    def answers(self) -> Iterator[Answer]:
        for item in self.content["objects"]:
            yield Answer(
                self.name,
                item["model"],
                item.get("kind", ""),
                item.get("lookup", ""),
                _to_mapping(item.get("declared", [])),
                _to_mapping(item.get("told", [])),
                {path: note or "" for path, note in item.get("used", {}).items()},
                {path: note or "" for path, note in item.get("dropped", {}).items()},
            )

    @property
    def states(self) -> Iterator[States]:
        for state in self.content["states"]:
            yield States(state["of"], state["unknown"], dict(self._list_meanings(state)))

    def _list_meanings(self, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from inputs.get("values", {}).items()
        if "ready" not in inputs:
            return
        outputs = _import_schema(self.name, "outputs")
        tables = {name: getattr(outputs, inputs[name]) for name in _MEANINGS if name in inputs}
        stuck = getattr(outputs, inputs["stuck"]) if "stuck" in inputs else {}
        words = {**_MEANINGS, **inputs.get("words", {})}
        for state in getattr(outputs, inputs["enum"]) if "enum" in inputs else tables["ready"]:
            meaning = next((name for name, table in tables.items() if state in table), "pending")
            yield (
                str(state),
                f"{words[meaning]}; {stuck[state]}" if state in stuck else words[meaning],
            )


_MEANINGS: Final = {
    "pending": "gpuform continues to wait",
    "ready": "ready",
    "failed": "the wait ends: the object does not become ready by itself",
    "gone": "is being deleted, or gone",
}


def load_document(name: str) -> Documented:
    return Documented(name, yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8")))


def list_leaf_paths(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Return the paths of a model's fields without a nested model."""
    for name, field in model.model_fields.items():
        inner = [*list_models(field.annotation)]
        for item in inner:
            yield from list_leaf_paths(item, f"{before}{name}.")
        if not inner:
            yield before + name


def list_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models within an annotation, such as the model of a list's items."""
    for item in _list_types(annotation):
        if isinstance(item, type) and issubclass(item, BaseModel):
            yield item


def includes_path(pattern: str, path: str) -> bool:
    """Return True if a path of the YAML files includes this path."""
    return path.startswith(pattern[:-1]) if pattern.endswith(".*") else path == pattern


def _list_types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for arg in get_args(annotation):
        yield from _list_types(arg)


def _to_mapping(lines: Sequence[Lines | Mapping[str, str]]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for line in lines:
        mapping.update(
            line if isinstance(line, Mapping) else {str(path): str(path) for path in line}
        )
    return mapping


def _import_schema(platform: str, name: str) -> Any:
    return importlib.import_module(f"gpuform.schemas.{platform}.{name}")
