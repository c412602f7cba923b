"""Certify nodes by batch jobs of Slurm, and read what the jobs report.

Which jobs there are follows from the run's record, which is kept before the first job is sent: a
run that was killed finds its jobs again by their names, and sends none twice. The queue may show a
job late: one that is missing is sent again only when the settle time is over.
"""

import json
import math
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpuform.providers.certifying import Job, Run
from gpuform.providers.context import PollResult, get_current_context, wait_until_done
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import PASS_NODE
from gpuform.providers.records import SETTLE, Batches, BatchRecords
from gpuform.providers.slurm.batch import Batch, BatchJobs, exit_code_of, nodes_of, text_of_script
from gpuform.providers.slurm.reading import BatchRun
from gpuform.schemas.policies.certification import CategoryInputs
from gpuform.schemas.safe_text import escape_invisible, truncate

_SECONDS = 10.0
_LONGEST_LINE = 10 * 1024
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
# Nothing can interrupt a search within this process, and a pattern may take for ever.
_SEARCH = """
import json, re, sys
pattern, lines = json.load(sys.stdin)
pattern = re.compile(pattern)
group = "value" if "value" in pattern.groupindex else 1
for line in reversed(lines):
    found = list(pattern.finditer(line))
    if found:
        print(json.dumps(found[-1][group]))
        break
else:
    print("null")
"""


SEARCH_COMMAND = (sys.executable, "-I", "-S", "-c", _SEARCH)
"""This Python, without anybody's modules, with a program that reads what it is given."""


def result_of(output: str, pattern: str) -> float | None:
    """The number in group `value`, or else group 1, of the last match of `pattern`.

    It is searched for line by line, in the first 10 KiB of each. None when nothing matches, or
    when the group holds no finite number. Raises GpuformError when `pattern` is no regular
    expression, has no group, or takes longer than ten seconds.
    """
    _check(pattern)
    lines = [line.rstrip("\r")[:_LONGEST_LINE] for line in output.split("\n")]
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and a program of ours
            list(SEARCH_COMMAND),
            input=json.dumps([pattern, lines]),
            capture_output=True,
            check=True,
            timeout=_SECONDS,
            encoding="ascii",
        )
    except subprocess.TimeoutExpired:
        raise GpuformError(
            f"the pattern {_shown(pattern)} takes longer than {_SECONDS:g} seconds on the output",
            hint="repeat nothing within a repetition: `(a+)+` takes for ever, `a+` does not",
        ) from None
    except (subprocess.CalledProcessError, OSError) as error:
        raise GpuformError(
            f"the pattern {_shown(pattern)} could not be searched for: {error.__class__.__name__}",
            hint="try a simpler pattern, and see whether this machine has memory left",
        ) from error
    return _number(json.loads(done.stdout))


def _check(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise GpuformError(
            f"{_shown(pattern)} is not a regular expression: {error}",
            hint=r"write one such as `Avg bus bandwidth\s*:\s*([\d.]+)`",
        ) from None
    if not groups:
        raise GpuformError(
            f"the pattern {_shown(pattern)} has no group for the number",
            hint=r"put it in brackets: `Avg bus bandwidth\s*:\s*([\d.]+)`",
        )


def _number(text: str | None) -> float | None:
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _shown(pattern: str) -> str:
    return repr(escape_invisible(pattern)[:200])


_LONGEST: Final = 200
_LOOK_EVERY: Final = 5.0


@dataclass(frozen=True)
class SlurmTester:
    """A `gpuform.providers.certifying.Tester`.

    `certification` is the id of the resource, and `name` what people call it. `aliases` are the
    NodeNames of Slurm, by the names that the platform has for its nodes.
    """

    slurm: BatchJobs
    records: BatchRecords
    certification: str
    name: str
    categories: Sequence[CategoryInputs]
    aliases: Mapping[str, str]

    @property
    def by(self) -> str:
        return "Slurm"

    def find(self) -> Run | None:
        """The run that the record tells of, by the states of its jobs."""
        record = self.records.find(self.certification)
        if record is None:
            return None
        states = self._states([each.batch.name for each in self._planned(record)])
        ended = sum(each.ended for each in states.values())
        phase = f"{ended} of {len(states)} jobs have ended"
        waiting = {each.why for each in states.values() if each.why and not each.ended}
        if waiting:
            phase += f", {', '.join(sorted(waiting))}"
        return Run(record.run, record.purpose, phase, ended=ended == len(states))

    def begin(self, nodes: Sequence[str], purpose: str) -> None:
        """Keeps the record, and sends every job."""
        run = uuid.uuid4().hex[:12]
        record = Batches(self.certification, run, purpose, tuple(nodes))
        planned = [*self._planned(record)]  # before anything is kept: it may be refused
        self._submit(replace(record, jobs=tuple(each.batch.name for each in planned)), planned)

    def resume(self, run: Run) -> None:
        """Sends the jobs that Slurm does not show once the settle time is over.

        Raises NotReady, and Cancelled.
        """
        record = self._record_of(run)
        planned = [*self._planned(record)]
        states = self._wait_until_shown(record, [each.batch.name for each in planned])
        self._submit(record, [each for each in planned if not states[each.batch.name].is_sent])

    def _submit(self, record: Batches, planned: "Sequence[_Planned]") -> None:
        """Send jobs, after the record has the moment: the next run waits for them from there."""
        if planned:
            self.records.record(replace(record, sent_at=get_current_context().clock.now()))
        for each in planned:
            self.slurm.submit(each.batch)

    def _wait_until_shown(self, record: Batches, names: Sequence[str]) -> dict[str, "_State"]:
        """Return the states of jobs when all are shown, or the settle time since `sent_at` is over.

        Raises NotReady, and Cancelled.
        """
        clock = get_current_context().clock
        began = clock.now()
        left = min(SETTLE, max(0.0, record.sent_at + SETTLE - began))

        def look() -> PollResult[dict[str, _State]]:
            states = self._states(names)
            missing = sum(not each.is_sent for each in states.values())
            is_over = clock.now() >= began + left
            return PollResult(states, f"{missing} jobs not seen", is_done=not missing or is_over)

        what = f"the jobs of certification {self.name}"
        return wait_until_done(get_current_context(), look, label=what, interval=_LOOK_EVERY)

    def jobs(self, run: Run) -> Sequence[Job]:
        """What each job has printed, read by the pattern of its category."""
        planned = [*self._planned(self._record_of(run))]
        states = self._states([each.batch.name for each in planned])
        return [self._job(each, states[each.batch.name]) for each in planned]

    def remove(self, run: Run) -> None:
        """Cancels what still runs, and forgets the run. Raises NotReady, and Cancelled."""
        record = self.records.find(self.certification)
        if record is None or record.run != run.id:
            return
        self._wait_until_shown(record, record.jobs)
        found = self.slurm.find(record.jobs)
        self.slurm.cancel([each.job_id for each in found.values() if not each.ended])
        self.records.forget(self.certification)

    def _record_of(self, run: Run) -> Batches:
        record = self.records.find(self.certification)
        if record is None or record.run != run.id:
            raise GpuformError(f"the jobs of certification {self.name} are others by now")
        return record

    def _states(self, names: Sequence[str]) -> "dict[str, _State]":
        """By the names of the jobs. What Slurm has forgotten is told by what it has printed."""
        found = self.slurm.find(names)
        return {name: self._state(name, found.get(name)) for name in names}

    def _state(self, name: str, run: BatchRun | None) -> "_State":
        if run is not None:
            why = f"{run.state.lower()}: {run.reason}" if run.reason else ""
            code = f" with exit code {run.exit_code}" if run.exit_code not in {"", "0:0"} else ""
            told = f"{run.state}{code}"
            return _State(is_sent=True, ended=run.ended, ok=run.ok, told=told, why=why, run=run)
        output = self.slurm.output(name)
        if not output:
            return _State(is_sent=False, ended=False, ok=False, told="", why="not sent yet")
        exit_code = exit_code_of(output)
        told = "without an exit code" if exit_code is None else f"with exit code {exit_code}"
        return _State(is_sent=True, ended=True, ok=exit_code == 0, told=told)

    def _planned(self, record: Batches) -> "Iterator[_Planned]":
        """The jobs of a run, in a stable order."""
        for number, category in enumerate(self.categories):
            job = category.job
            if job is None:
                continue
            groups = [[*record.nodes]] if job.nodes == "all" else [[n] for n in record.nodes]
            for part, nodes in enumerate(groups):
                name = f"gpuform-{self.name}-{record.run}-{number}-{part}"
                slurm_names = [self.aliases.get(node, node) for node in nodes]
                yield _Planned(category, nodes, Batch(name, job.script, slurm_names))

    def _job(self, planned: "_Planned", state: "_State") -> Job:
        """A job that has failed says nothing against its node: a script has many reasons."""
        category, measured, nodes = planned.category, None, planned.nodes
        because = f"its job {planned.batch.name} has ended {state.told}"
        passed = state.ok
        if passed and category.job is not None:
            output = self.slurm.output(planned.batch.name)
            ran_on = _nodes_that_ran(state.run, output)
            gaps = find_gaps(PASS_NODE, _observed(state, output, ran_on))
            passed, because = not gaps, "; ".join(gaps)
            if passed:
                names = {slurm: node for node, slurm in self.aliases.items()}
                nodes = [names.get(node, node) for node in ran_on]
                measured = result_of(text_of_script(output), category.job.result)
        if passed and measured is None:
            passed, because = False, "its job has printed no line with the result"
        return Job(
            category,
            nodes,
            passed=passed,
            measured=measured,
            because=truncate(because, _LONGEST),
            is_telling=False,
        )


def _nodes_that_ran(run: BatchRun | None, output: str) -> Sequence[str]:
    """Return the nodes that the queue names, or, of a job that it has forgotten, the output."""
    return nodes_of(output) if run is None else run.nodes


def _observed(state: "_State", output: str, ran_on: Sequence[str]) -> Observation:
    """Return what Slurm and the end of the job's output lack to prove that the job has passed."""
    missing = []
    code, printed = exit_code_of(output), nodes_of(output)
    if code is None:
        missing.append("the last line of the job's output does not say how the script ended")
    elif code != 0:
        missing.append(f"the job has ended {state.told}, and its script with exit code {code}")
    if not ran_on:
        missing.append("it names no node that the job ran on")
    elif printed and {*printed} != {*ran_on}:
        others = f"{', '.join(ran_on)}, and told the job {', '.join(printed)}"
        missing.append(f"it names other nodes of the job than it told the job: {others}")
    return Observation("Slurm", missing)


@dataclass(frozen=True)
class _Planned:
    category: CategoryInputs
    nodes: Sequence[str]
    batch: Batch


@dataclass(frozen=True)
class _State:
    """`told` says how it ended, `why` what it waits for; `run` is what the queue still shows."""

    is_sent: bool
    ended: bool
    ok: bool
    told: str
    why: str = ""
    run: BatchRun | None = None
