"""The project's gates, `gates.yaml` beside `Pulumi.yaml`: read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.schemas.gates import GateInputs, GatesInputs
from gpuform.schemas.plan import GateLevel
from gpuform.stacks.document.checked import read_checked
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import find_key
from gpuform.stacks.document.reports import text
from gpuform.stacks.engine.errors import EngineError

FILE: Final = "gates.yaml"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. `value` is what its rule was given, `resources` limits it where there are any."""

    name: str
    rule: str
    value: Any
    resources: Sequence[str]
    level: GateLevel
    reason: str
    source: str

    @property
    def permission(self) -> str:
        """The name by which --allow lifts it."""
        return f"{permissions.GATE}{self.name}"


def project_gates(directory: Path) -> Sequence[Gate]:
    """Those of a project; none where it has no such file. Raises EngineError."""
    path = directory / FILE
    return read_gates(path, FILE) if path.exists() else ()


def read_gates(path: Path, shown: str) -> Sequence[Gate]:
    """The gates of a file. Raises EngineError with every problem and its place."""
    problems = Diagnostics()
    root, values = read_checked(path, shown, GatesInputs, problems)
    if problems:
        raise EngineError(f"the gates are wrong:\n{text(list(problems))}")
    return [
        _gate(name, entry, str(find_key(root, ("gates", name))))
        for name, entry in values["gates"].items()
    ]


def _gate(name: str, entry: Mapping[str, Any], source: str) -> Gate:
    (rule,) = (each for each in GateInputs.rules if entry.get(each) is not None)
    return Gate(
        name=name,
        rule=rule,
        value=entry[rule],
        resources=entry.get("resources") or (),
        level=GateLevel(entry.get("level") or GateLevel.MANDATORY),
        reason=entry.get("reason") or "",
        source=source,
    )
