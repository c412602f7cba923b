"""The record of what a stack has written into a Kubernetes, so that it can be taken back.

It is kept before anything is sent: after a run that was killed it may name too much, and what does
not have the value that it names is nobody's but its owner's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers.records import Records, digest

PREFIX: Final = "topology-"

Values = dict[str, dict[str, list[str]]]
"""`labels` and `annotations` of one node, by key: what we wrote, or were about to."""


@dataclass(slots=True)
class Written:
    """What one format has in one Kubernetes: values by node, and paths of whole objects."""

    kubernetes: str
    form: str
    nodes: dict[str, Values] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)

    def is_ours(self, node: str, part: str, key: str, value: str) -> bool:
        """Whether a value that is there is one that we wrote, or were about to."""
        return value in self.nodes.get(node, {}).get(part, {}).get(key, ())

    def keys(self, node: str) -> Iterator[tuple[str, str]]:
        """Where on a node we wrote something."""
        for part, values in self.nodes.get(node, {}).items():
            yield from ((part, key) for key in values)

    def note(self, node: str, part: str, key: str, value: str | None) -> None:
        """Takes over that it is there now; None that nothing of ours is."""
        values = self.nodes.setdefault(node, {}).setdefault(part, {})
        values.pop(key, None)
        if value is not None:
            values[key] = [value]

    def announce(self, node: str, part: str, key: str, value: str) -> None:
        """Takes over that it may soon be there, beside what is known."""
        known = self.nodes.setdefault(node, {}).setdefault(part, {}).setdefault(key, [])
        if value not in known:
            known.append(value)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to take back."""
        return not self.objects and not any(
            values for parts in self.nodes.values() for values in parts.values()
        )


class WrittenRecords:
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def find(self, kubernetes: str, form: str) -> Written:
        """What is recorded; nothing written where there is no record."""
        fields = self._records.read(_name(kubernetes, form)) or {}
        return Written(kubernetes, form, _nodes(fields.get("nodes")), _texts(fields.get("objects")))

    def keep(self, written: Written) -> None:
        """In place of what was recorded; nothing left is no record."""
        name = _name(written.kubernetes, written.form)
        if written.is_empty:
            self._records.delete(name)
            return
        nodes = {
            node: {part: values for part, values in parts.items() if values}
            for node, parts in written.nodes.items()
            if any(parts.values())
        }
        self._records.write(
            name,
            {
                "kubernetes": written.kubernetes,
                "form": written.form,
                "nodes": nodes,
                "objects": written.objects,
            },
        )


def _name(kubernetes: str, form: str) -> str:
    return f"{PREFIX}{digest(f'{form} {kubernetes}')}"


def _nodes(found: Any) -> dict[str, Values]:
    nodes = found if isinstance(found, Mapping) else {}
    return {
        str(node): {
            str(part): {str(key): _texts(told) for key, told in values.items()}
            for part, values in parts.items()
            if isinstance(values, Mapping)
        }
        for node, parts in nodes.items()
        if isinstance(parts, Mapping)
    }


def _texts(told: Any) -> list[str]:
    return [str(each) for each in told] if isinstance(told, list | tuple) else []
