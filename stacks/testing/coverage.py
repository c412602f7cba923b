"""Measure which entries, branches of `when` and gates of a project its passed cases have exercised.

`gpuform test --coverage` prints the result, or writes it as JSON.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gpuform.stacks.review.value_text import counted
from gpuform.stacks.testing.comparison import get_verdict
from gpuform.stacks.testing.report import ExpandedEntry
from gpuform.stacks.testing.runner import CaseResult, CaseStatus


@dataclass(slots=True)
class EntryCoverage:
    """The coverage of one entry or module of a topology; `position` is where it is declared.

    `was_left_out` is True once `when` was false for an instance of the entry in some plan.
    """

    address: str
    position: str
    is_conditional: bool
    instances: set[str] = field(default_factory=set)
    was_left_out: bool = False

    @property
    def gaps(self) -> Iterator[str]:
        """Yield a message for each part of the entry not exercised by any case."""
        if not self.instances:
            yield f"{self.address} ({self.position}) is in no plan"
        if self.is_conditional and not self.was_left_out:
            yield f"{self.address} ({self.position}): its `when` is never false"


@dataclass(slots=True)
class Coverage:
    """The coverage of one project.

    `entries` are by position, and None for a Python program, which does not say what it could
    declare.
    `gates` says of each gate by name whether it has ever stopped or warned.
    """

    project: str
    cases: int = 0
    entries: dict[str, EntryCoverage] | None = None
    gates: dict[str, bool] = field(default_factory=dict)

    def add_result(self, result: CaseResult) -> None:
        """Add the entries and gates of a case's run; cases not passed are ignored."""
        report = result.report
        if report is None or result.status is not CaseStatus.PASSED:
            return
        self.cases += 1
        for gate in (report.plan.gates if report.plan is not None else None) or ():
            has_reported = self.gates.get(gate.name, False)
            self.gates[gate.name] = has_reported or get_verdict(gate) != "passes"
        for expanded in report.entries or ():
            self._add_entry(expanded, is_planned=report.plan is not None)

    def _add_entry(self, expanded: ExpandedEntry, *, is_planned: bool) -> None:
        """Add an entry of a case to the coverage, with the entry's planned instances.

        Without a plan the entry is listed, but nothing of it counts as exercised.
        """
        self.entries = {} if self.entries is None else self.entries
        new_entry = EntryCoverage(expanded.address, expanded.position, expanded.is_conditional)
        entry = self.entries.setdefault(expanded.position, new_entry)
        # Without a plan nothing was exercised: the run failed before it.
        if is_planned:
            entry.instances.update(expanded.instances)
            entry.was_left_out = entry.was_left_out or bool(expanded.absent)

    @property
    def gaps(self) -> list[str]:
        """Return a message for each entry, branch of `when` and gate not exercised by any case."""
        entry_gaps = [gap for entry in (self.entries or {}).values() for gap in entry.gaps]
        silent_gates = [name for name, has_reported in self.gates.items() if not has_reported]
        return [*entry_gaps, *(f"gate {name} has never stopped or warned" for name in silent_gates)]

    def render(self) -> Iterator[str]:
        """Yield the lines for `gpuform test --coverage` about the project."""
        yield f"Coverage of {self.project} ({counted(self.cases, 'case')})"
        if not self.cases:
            yield "  nothing: no case passed"
            return
        yield f"  {self._summarize_entries()}"
        if self.gates:
            reporting_gates = sum(self.gates.values())
            yield f"  gates: {reporting_gates} of {len(self.gates)} have stopped or warned"
        for gap in self.gaps:
            yield f"  missing: {gap}"

    def _summarize_entries(self) -> str:
        """Return a line with the numbers of planned entries, instances and branches of `when`."""
        if self.entries is None:
            return "entries: unknown for a Python program"
        entries = self.entries.values()
        planned_count = sum(bool(entry.instances) for entry in entries)
        instance_count = sum(len(entry.instances) for entry in entries)
        summary = (
            f"entries: {planned_count} of {len(entries)}, as {counted(instance_count, 'instance')}"
        )
        conditional = [entry for entry in entries if entry.is_conditional]
        if not conditional:
            return summary
        # Each `when` has two branches: planned, and left out.
        branch_count = sum(bool(entry.instances) + entry.was_left_out for entry in conditional)
        return f"{summary}; branches of `when`: {branch_count} of {2 * len(conditional)}"


def measure_coverage(results: Iterable[CaseResult]) -> Sequence[Coverage]:
    """Return the coverage of each project of the results, in the order of the first cases."""
    coverage_by_path: dict[str, Coverage] = {}
    for result in results:
        project = result.case.project
        coverage_by_path.setdefault(str(project.path), Coverage(project.name)).add_result(result)
    return list(coverage_by_path.values())
