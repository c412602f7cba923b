"""A plan put before the gates of its project."""

import importlib
import sys
import traceback
from collections.abc import Collection, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from gpuform.providers import permissions
from gpuform.schemas.plan import GateResult, Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import import_project_modules
from gpuform.stacks.gates.busy import Monitoring
from gpuform.stacks.gates.file import Gate
from gpuform.stacks.gates.proven import certified
from gpuform.stacks.gates.rules import OVER_PLANS, is_named, open_ports, unpriced_growth


@dataclass(frozen=True, slots=True)
class Keeper:
    """Asks the gates. `allowed` are this run's permissions; rules in Python are in `program`.

    Without `monitoring`, as in a review elsewhere, nobody can be asked what is in use: what the
    plan says of that itself is taken over.
    """

    gates: Sequence[Gate]
    allowed: Collection[str]
    program: Path
    monitoring: Monitoring | None = None

    def __post_init__(self) -> None:
        """Raises EngineError for a permission that lifts no gate."""
        known = {gate.permission for gate in self.gates}
        asked = {name for name in self.allowed if name.startswith(permissions.GATE)}
        if asked - known:
            raise EngineError(
                f"{', '.join(sorted(asked - known))}: there is no such gate",
                hint=f"gates are lifted by {', '.join(sorted(known))}"
                if known
                else "the project has no gates.yaml",
            )

    def asks(self, rule: str) -> bool:
        """Whether one of the gates is of this rule."""
        return any(gate.rule == rule for gate in self.gates)

    def judged(self, plan: Plan) -> Plan:
        """The plan with what every gate says of it; unchanged where there are no gates.

        A refresh changes nothing on a platform: it passes none.
        """
        if not self.gates or plan.operation == "refresh":
            return plan
        gates = tuple(self._result(gate, plan) for gate in self.gates)
        unpriced = unpriced_growth(plan) if any(map(_is_about_cost, self.gates)) else []
        told = (f"what it costs, for the gates on cost: {text}" for text in unpriced)
        unchecked = tuple(dict.fromkeys((*plan.unchecked, *told)))
        return plan.model_copy(update={"gates": gates, "unchecked": unchecked})

    def _result(self, gate: Gate, plan: Plan) -> GateResult:
        findings = tuple(dict.fromkeys(self._findings(gate, plan)))
        return GateResult(
            name=gate.name,
            rule=gate.rule,
            level=gate.level,
            findings=findings,
            allowed=bool(findings) and gate.permission in self.allowed,
            reason=gate.reason,
            permission=gate.permission,
            source=gate.source,
        )

    def _findings(self, gate: Gate, plan: Plan) -> Iterable[str]:
        changes = plan.changes
        if gate.resources:
            changes = tuple(each for each in changes if is_named(each, gate.resources))
        if gate.rule == "python":
            return _python_findings(plan, gate.value, self.program)
        if gate.rule == "no_open_ports":
            return open_ports(plan.exposures, gate.value, gate.resources)
        if gate.rule == "certified":
            return certified(plan.proofs, gate.resources)
        if gate.rule == "not_busy":
            if self.monitoring is None:
                return _told_before(gate, plan)
            return self.monitoring.findings(changes, gate.value)
        return OVER_PLANS[gate.rule](plan, changes, gate.value)


def _is_about_cost(gate: Gate) -> bool:
    return gate.rule == "max_hourly_cost"


def lifted(gates: Iterable[GateResult], allowed: Collection[str]) -> tuple[GateResult, ...]:
    """What the gates have said, with those passed that a run is allowed to pass."""
    return tuple(
        gate.model_copy(update={"allowed": True})
        if gate.findings and gate.permission in allowed
        else gate
        for gate in gates
    )


def stopped_by(plan: Plan) -> list[GateResult]:
    """The gates that the plan does not pass."""
    return [gate for gate in plan.gates or () if gate.is_blocking]


def _told_before(gate: Gate, plan: Plan) -> Iterable[str]:
    for known in plan.gates or ():
        if known.name == gate.name and known.rule == gate.rule:
            return known.findings
    return ("what is in use is asked when the plan is made: make it with `gpuform preview`",)


def _python_findings(plan: Plan, function: str, program: Path) -> list[str]:
    """What MODULE:NAME of the program's folder says. A rule that fails is against every plan."""
    module, _, name = function.partition(":")
    # What is printed on stdout may be JSON.
    with redirect_stdout(sys.stderr), import_project_modules(program):
        try:
            rule = getattr(importlib.import_module(module), name)
            found = rule(plan)
            return _texts(found)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may be anything
            return [f"{function} failed: {_told(error)}"]


def _texts(found: object) -> list[str]:
    if found is None:
        return []
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise TypeError("a rule yields texts, or returns a list of them")
    return [str(text) for text in found]


def _told(error: BaseException) -> str:
    """Its type, its text and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
