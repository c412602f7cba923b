"""What the gates say of a plan, in words that every view prints."""

from collections.abc import Iterator, Sequence

from gpuform.schemas.plan import GateLevel, GateResult, Plan
from gpuform.schemas.visible import visible
from gpuform.stacks.review.paint import PLAIN, Paint


def gate_word(gate: GateResult) -> str:
    """`passed`, `stops the plan`, `allowed for this run` or `advice`."""
    if not gate.findings:
        return "passed"
    if gate.level is GateLevel.ADVISORY:
        return "advice"
    return "allowed for this run" if gate.allowed else "stops the plan"


def gate_text(gate: GateResult) -> str:
    """One gate in one line: its name, what it says and what lifts it."""
    told = "; ".join(gate.findings)
    text = f"{gate.name}: {gate_word(gate)}" + (f": {told}" if told else "")
    if gate.findings and gate.reason:
        text += f" ({gate.reason})"
    return f"{text} [--allow {gate.permission}]" if gate.stops else text


def gates_lines(plan: Plan, paint: Paint = PLAIN) -> Iterator[str]:
    """`Gates:` with everything that is against the plan, and how many it passes."""
    if plan.gates is not None:
        yield from lines_of_gates(plan.gates, paint, "Gates:", tells_none=True)


def lines_of_gates(
    gates: Sequence[GateResult], paint: Paint, title: str, *, tells_none: bool = False
) -> Iterator[str]:
    """The same of any gates; nothing where there are none, unless `tells_none`."""
    if not (gates or tells_none):
        return
    told = [gate for gate in gates if gate.findings]
    passed = len(gates) - len(told)
    yield paint("bold", title) + (f" {passed} of {len(gates)} passed")
    for gate in told:
        style = "error" if gate.stops else "warning"
        yield paint(style, visible(f"    {gate.name} {gate_word(gate)}"))
        for finding in gate.findings:
            yield f"        {visible(finding)}"
        if gate.reason:
            yield f"        why: {visible(gate.reason)}"
        if gate.stops:
            yield visible(f"        if it is meant: --allow {gate.permission}")
