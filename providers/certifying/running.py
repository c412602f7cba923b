"""Tests the nodes that are not proven, and says what is proven then.

A run is found again by what it is for: after a kill the next run waits for it, and begins none
beside it. What has ended and was judged is never judged twice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final, Protocol

from pydantic import ValidationError

from gpuform.providers.certifying.judging import (
    Job,
    Machine,
    Unreadable,
    covered,
    digest_of,
    gaps_in,
    judge,
    told_gaps,
)
from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.errors import NotReady
from gpuform.providers.lifetime import written
from gpuform.providers.records import digest
from gpuform.schemas.policies.certification import (
    CategoryInputs,
    CertificationOutputs,
    Gap,
    NodeEvidence,
)

INTERVAL: Final = 20.0
"""Seconds between looks at a run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the tests, as it is seen now.

    `id` is another one for each run; `purpose` is what it was begun for. `phase` are words for
    people. `problem` is what the test says against all of it, beside its nodes.
    """

    id: str
    purpose: str
    phase: str
    ended: bool = False
    ended_at: str = ""
    problem: str = ""


class Tester(Protocol):
    """Who tests nodes: the Cluster Readiness Engine, or Slurm. Raises GpuformErrors only."""

    @property
    def by(self) -> str:
        """For people and outputs."""

    def find(self) -> Run | None:
        """The certification's own run, if there is one. Raises GpuformError for another's."""

    def begin(self, nodes: Sequence[str], purpose: str) -> None:
        """Begins a run on these nodes."""

    def resume(self, run: Run) -> None:
        """Begins what is missing of a run that was interrupted while it was begun."""

    def jobs(self, run: Run) -> Sequence[Job]:
        """What came of a run that has ended. Raises Unreadable where nobody can tell."""

    def remove(self, run: Run) -> None:
        """Ends a run, and begins to remove what it has left."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be proven: `every` node once more where one is not proven, or that one alone.

    `number` is how many nodes are declared.
    """

    what: str
    categories: Sequence[CategoryInputs]
    every: bool
    limit: float
    number: int


@dataclass(frozen=True)
class Certifying:
    """The tests of one certification. `machines` are the nodes now, `now` the platform's time."""

    call: ProviderContext
    tester: Tester
    want: Wanted
    machines: Callable[[], Sequence[Machine]]
    now: Callable[[], float]

    def run(self) -> CertificationOutputs:
        """Tests what is not proven, and waits for it.

        `context.stored_properties` has what was proven before. Raises NotReady and Cancelled with
        that.
        """
        before = known_outputs(self.call.stored_properties)
        there = self.machines()
        gaps = gaps_in(there, before.evidence, self.want.categories, before.failures)
        try:
            if gaps:
                return self._tested(before, there, {each.node for each in gaps})
        except NotReady as error:
            told = {"gaps": gaps, "status": _status(covered(before.evidence, there), gaps)}
            last = before.model_copy(update={**_ready(error.reason), **told})
            raise type(error)(error.reason, last=last) from None
        evidence = covered(before.evidence, there)
        kept = {"evidence": evidence, "gaps": [], "failures": [], "status": _status(evidence, [])}
        reason = self._missing(there)
        return before.model_copy(update={**_ready(reason), **kept})

    def _tested(
        self, before: CertificationOutputs, there: Sequence[Machine], missing: Collection[str]
    ) -> CertificationOutputs:
        want = self.want
        chosen = _chosen(there, missing, want)
        run = self._ended(chosen, before.run)
        try:
            jobs = self.tester.jobs(run)
        except Unreadable as error:  # the next run tests anew
            gaps = gaps_in(there, before.evidence, want.categories, before.failures)
            told = {"gaps": gaps, "status": _status(covered(before.evidence, there), gaps)}
            return before.model_copy(update={**_ready(error.message), **told, "run": run.id})
        now, at = self.machines(), run.ended_at or written(self.now())
        # A machine that was exchanged meanwhile is not the one that was tested.
        same = {(each.node, each.machine) for each in now}
        tested = [each for each in chosen if (each.node, each.machine) in same]
        if len(chosen) > 1:
            jobs = [_between_nodes(each) for each in jobs]
        verdict = judge(want.categories, jobs, tested, at)
        # Who was tested beside others, and was left out, is as proven as before.
        retested = {each.node for each in chosen} - (verdict.untested.keys() - missing)
        earlier = covered(before.evidence, now, retested)
        # What is said against the whole, and of no node, is said against each.
        of_all = verdict if len(tested) == len(chosen) else judge(want.categories, jobs, chosen, at)
        unexplained = bool(run.problem and not of_all.problem)
        proven = [] if unexplained else verdict.evidence
        evidence = sorted([*earlier, *proven], key=lambda each: each.node)
        gaps = gaps_in(now, evidence, want.categories, verdict.failures)
        reason = verdict.problem or run.problem or self._missing(now)
        if not reason and gaps:
            reason = f"not proven: {told_gaps(gaps)}"
        return CertificationOutputs(
            **_ready(reason),
            status=_status(evidence, gaps),
            evidence=evidence,
            results=list(verdict.results),
            failures=list(verdict.failures),
            gaps=gaps,
            certified_at=at,
            run=run.id,
            by=self.tester.by,
        )

    def _missing(self, there: Sequence[Machine]) -> str:
        """Who cannot be tested: nodes that are declared, and are not there."""
        number = self.want.number
        if len(there) >= number:
            return ""
        return f"{len(there)} of {number} declared nodes are there: the others cannot be tested"

    def _ended(self, chosen: Sequence[Machine], judged: str | None) -> Run:
        """The run of these machines when it has ended. Raises NotReady, and Cancelled."""
        call, tester, what = self.call, self.tester, self.want.what
        purpose = _purpose(chosen, self.want.categories)
        found = tester.find()
        if found is not None and (found.purpose != purpose or found.id == judged):
            remove(call, tester, what, found)
            found = None
        if found is not None:
            tester.resume(found)
        else:
            names = [each.node for each in chosen]
            call.on_progress(f"testing {len(names)} node{'s' * (len(names) > 1)} by {tester.by}")
            tester.begin(names, purpose)

        def probe() -> PollResult[Run]:
            run = tester.find()
            if run is None or run.purpose != purpose:
                raise NotReady(f"{what}: its run is gone: somebody has removed it")
            return PollResult(run, run.phase, is_done=run.ended)

        return wait_until_done(call, probe, label=what, interval=INTERVAL, limit=self.want.limit)


def known_outputs(known: Mapping[str, Any]) -> CertificationOutputs:
    """What a state has; nothing is proven by one that is damaged."""
    names = CertificationOutputs.model_fields
    try:
        told = {name: value for name, value in known.items() if name in names}
        return CertificationOutputs.model_validate({"ready": False, **told})
    except ValidationError:
        return CertificationOutputs(ready=False)


def last_run(call: ProviderContext) -> str:
    """The id of the run that the state tells of, if there is one."""
    return known_outputs(call.stored_properties).run or ""


def _status(evidence: Sequence[NodeEvidence], gaps: Sequence[Gap]) -> str:
    """`3 of 4 nodes proven`."""
    missing = {each.node for each in gaps}
    proven = sum(each.node not in missing for each in evidence)
    total = proven + len(gaps)
    return f"{proven} of {total} node{'s' * (total != 1)} proven"


def _ready(reason: str = "") -> dict[str, Any]:
    return {"ready": not reason, "not_ready_reason": reason or None}


def _chosen(
    there: Sequence[Machine], missing: Collection[str], want: Wanted
) -> tuple[Machine, ...]:
    """The machines that are tested; a test of a network needs two of them at the least."""
    if want.every or len(missing) == len(there):
        return tuple(there)
    chosen = [each for each in there if each.node in missing]
    others = [each for each in there if each.node not in missing]
    if len(chosen) == 1 and any(map(_needs_others, want.categories)):
        chosen.append(others[0])
    return tuple(chosen)


def _needs_others(category: CategoryInputs) -> bool:
    """Whether what it measures is between nodes."""
    if category.job is not None:
        return category.job.nodes == "all"
    alone = (category.options or {}).get("testScale") == "intra-node"
    return category.domain == "communication" and not alone


def _between_nodes(job: Job) -> Job:
    """A job that ran on one of several nodes has measured nothing between them."""
    if len(job.nodes) > 1 or not (job.passed and job.needs_figure and _needs_others(job.category)):
        return job
    because = "it ran on one node alone, and nothing between nodes was measured"
    return replace(job, passed=False, because=because, is_telling=False)


def _purpose(chosen: Sequence[Machine], categories: Sequence[CategoryInputs]) -> str:
    machines = sorted("\n".join(astuple(each)) for each in chosen)
    return digest("\n".join((digest_of(categories), *machines)))


def remove(call: ProviderContext, tester: Tester, what: str, run: Run) -> None:
    """Removes a run, and waits until it is gone."""
    tester.remove(run)

    def probe() -> PollResult[object] | None:
        left = tester.find()
        return PollResult(None, "being removed") if left is not None and left.id == run.id else None

    wait_until_gone(call, probe, label=f"earlier run of {what}", interval=INTERVAL)


def with_gaps(
    outputs: CertificationOutputs, machines: Sequence[Machine], want: Sequence[CategoryInputs]
) -> CertificationOutputs:
    """What was proven, and what that does not cover now."""
    gaps = gaps_in(machines, outputs.evidence, want, outputs.failures)
    status = _status(covered(outputs.evidence, machines), gaps)
    return outputs.model_copy(update={"gaps": gaps, "status": status})
