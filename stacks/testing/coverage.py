"""What of a project its cases have exercised: entries, branches of `when`, gates."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gpuform.stacks.review.value_text import counted
from gpuform.stacks.testing.comparing import verdict_of
from gpuform.stacks.testing.report import EntrySeen
from gpuform.stacks.testing.running import Result, Status


@dataclass(slots=True)
class EntryCoverage:
    """An entry or module; `place` is where it is declared. `kept_out` says whether `when` ever was
    false of an instance."""

    address: str
    place: str
    is_conditional: bool
    instances: set[str] = field(default_factory=set)
    kept_out: bool = False

    @property
    def missing(self) -> Iterator[str]:
        """What no case has exercised of it."""
        if not self.instances:
            yield f"{self.address} ({self.place}) is in no plan"
        if self.is_conditional and not self.kept_out:
            yield f"{self.address} ({self.place}): its `when` is never false"


@dataclass(slots=True)
class Coverage:
    """That of one project. `entries` is None where it is a Python program: nothing says what it
    could declare. `gates` are those that have stopped or warned, by all gates' names.
    """

    project: str
    cases: int = 0
    entries: dict[str, EntryCoverage] | None = None
    gates: dict[str, bool] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """A case; only one that has passed has shown anything."""
        report = result.report
        if report is None or result.status is not Status.PASSED:
            return
        self.cases += 1
        for gate in (report.plan.gates if report.plan is not None else None) or ():
            is_known = self.gates.get(gate.name, False)
            self.gates[gate.name] = is_known or verdict_of(gate) != "passes"
        for seen in report.entries or ():
            self._add_entry(seen, is_planned=report.plan is not None)

    def _add_entry(self, seen: EntrySeen, *, is_planned: bool) -> None:
        self.entries = {} if self.entries is None else self.entries
        fresh = EntryCoverage(seen.address, seen.place, seen.is_conditional)
        entry = self.entries.setdefault(seen.place, fresh)
        if is_planned:
            entry.instances.update(seen.instances)
            entry.kept_out = entry.kept_out or bool(seen.absent)

    @property
    def missing(self) -> list[str]:
        """What no case has exercised."""
        found = [text for entry in (self.entries or {}).values() for text in entry.missing]
        never = [name for name, has_spoken in self.gates.items() if not has_spoken]
        return [*found, *(f"gate {name} has never stopped or warned" for name in never)]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"Coverage of {self.project} ({counted(self.cases, 'case')})"
        if not self.cases:
            yield "  nothing: no case has passed"
            return
        yield f"  {self._entries_text()}"
        if self.gates:
            spoken = sum(self.gates.values())
            yield f"  gates: {spoken} of {len(self.gates)} have stopped or warned"
        for text in self.missing:
            yield f"  missing: {text}"

    def _entries_text(self) -> str:
        if self.entries is None:
            return "entries: a Python program does not say what it could declare"
        entries = self.entries.values()
        played = sum(bool(each.instances) for each in entries)
        instances = sum(len(each.instances) for each in entries)
        text = f"entries: {played} of {len(entries)}, as {counted(instances, 'instance')}"
        conditional = [each for each in entries if each.is_conditional]
        if not conditional:
            return text
        taken = sum(bool(each.instances) + each.kept_out for each in conditional)
        return f"{text}; branches of `when`: {taken} of {2 * len(conditional)}"


def coverage_of(results: Iterable[Result]) -> Sequence[Coverage]:
    """Of each project among the results."""
    found: dict[str, Coverage] = {}
    for result in results:
        project = result.case.project
        found.setdefault(str(project.path), Coverage(project.name)).add(result)
    return list(found.values())
