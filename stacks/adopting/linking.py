"""References instead of ids: to what is imported beside, and to what the stack has already."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.catalog import lifecycle_class
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import FieldRules, rules_of
from gpuform.stacks.authoring.declared import Reference


@dataclass(frozen=True, slots=True)
class Known:
    """A declared resource, with the object that it stands for."""

    platform: str
    kind: str
    id: str
    outputs: Mapping[str, Any]
    reference: Reference


@dataclass(slots=True)
class Links:
    """What values can be references to. The first resource with a value is taken."""

    _of: dict[tuple[str, str, str, str], Reference] = field(default_factory=dict)

    @classmethod
    def to(cls, resources: Iterable[Known]) -> "Links":
        links = cls()
        for each in resources:
            outputs = {"id": each.id, **{k: v for k, v in each.outputs.items() if k != "id"}}
            for name, value in outputs.items():
                if isinstance(value, str) and value:
                    links._of.setdefault((each.platform, each.kind, name, value), each.reference)
        return links

    def applied(self, platform: str, kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs, with references for the values that are another resource's."""
        model: type[InputModel] = lifecycle_class(platform, kind).inputs
        return {
            name: self._reference(platform, rules_of(model).get(name), value) or value
            for name, value in inputs.items()
        }

    def _reference(self, platform: str, rules: FieldRules | None, value: Any) -> Reference | None:
        if rules is None or not isinstance(value, str):
            return None
        for kind, output in _sources(rules):
            found = self._of.get((platform, kind, output, value))
            if found is not None:
                steps = () if output == "id" else (output,)
                return Reference(found.section, found.name, steps, found.key)
        return None


def _sources(rules: FieldRules) -> Iterator[tuple[str, str]]:
    if rules.refers:
        yield rules.refers, "id"
    if rules.taken_from:
        yield rules.taken_from.kind, rules.taken_from.output
