"""How gpuform knows what it wrote into a kubeconfig: a mark among the extensions of an entry.

kubectl keeps extensions when it writes a file anew. What bears no mark is somebody else's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from gpuform.stacks.access.kubeconfig_text import Before

_NAME: Final = "gpuform"


@dataclass(frozen=True, slots=True)
class Mark:
    """Which cluster an entry is of.

    `state` is where the state of its stack is; `before` what stood in the file in the place of
    what was written with the entry, so that taking it out leaves what was there.
    """

    id: str
    urn: str
    state: str
    before: Before = field(default_factory=dict)

    def is_same(self, other: "Mark") -> bool:
        """Whether both are of one cluster, or of two that one resource had in turn."""
        return self.id == other.id or (self.urn, self.state) == (other.urn, other.state)

    @classmethod
    def of(cls, held: Mapping[str, Any]) -> Self | None:
        """The mark of what an entry holds, if gpuform wrote it."""
        for each in _extensions(held):
            told = each.get("extension")
            if each.get("name") == _NAME and isinstance(told, dict):
                id_, urn, state = (str(told.get(key) or "") for key in ("id", "urn", "state"))
                before = told.get("before")
                known = before if isinstance(before, dict) else {}
                texts = {str(k): v for k, v in known.items() if v is None or isinstance(v, str)}
                return cls(id_, urn, state, texts) if id_ else None
        return None

    def on(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """What an entry holds, with this mark."""
        told: dict[str, Any] = {"id": self.id, "urn": self.urn, "state": self.state}
        if self.before:
            told["before"] = dict(self.before)
        others = [each for each in _extensions(held) if each.get("name") != _NAME]
        return {**held, "extensions": [*others, {"name": _NAME, "extension": told}]}


def _extensions(held: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = held.get("extensions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
