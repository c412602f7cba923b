"""Certify nodes by batch jobs of Slurm, and read the figures that the jobs print.

`certifying` calls `SlurmTester`. The jobs of a run follow from its record, which is stored before
the first job is sent: after a kill, the next run finds the jobs by their names and sends none
twice. The queue may show a job late, so a missing one is sent again only after the propagation
time.
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

from gpuform.providers.certifying import CertificationRun, JobResult
from gpuform.providers.context import PollResult, get_current_context, wait_until_done
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import PASS_NODE, Observation, find_gaps
from gpuform.providers.records import PROPAGATION_TIME_S, BatchRecord, BatchRecords
from gpuform.providers.slurm.batch import (
    BatchJob,
    BatchQueue,
    extract_script_output,
    parse_exit_code,
    parse_job_nodes,
)
from gpuform.providers.slurm.parsing import SlurmJob
from gpuform.schemas.policies.certification import CategoryInputs
from gpuform.schemas.safe_text import escape_invisible, truncate

_PATTERN_TIMEOUT_S = 10.0
"""Seconds in which a pattern has to be searched for: some patterns take for ever."""
_MAX_LINE_LENGTH = 10 * 1024
"""Characters of a line that a pattern is searched in."""
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
# Nothing can interrupt a search within this process, and a pattern may take for ever.
_SEARCH_PROGRAM = """
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


SEARCH_COMMAND = (sys.executable, "-I", "-S", "-c", _SEARCH_PROGRAM)
"""This Python, isolated from the user's modules, with the program that searches for a pattern."""


def search_result(output: str, pattern: str) -> float | None:
    """Return the number in group `value`, or else group 1, of the last match of `pattern`.

    Only the first 10 KiB of each line are searched. None if nothing matches, or if the group holds
    no finite number.

    Raises:
        GpuformError: `pattern` is no regular expression, has no group, or takes over ten seconds,
            or the process that searches fails.
    """
    _validate_pattern(pattern)
    lines = [line.rstrip("\r")[:_MAX_LINE_LENGTH] for line in output.split("\n")]
    try:
        process = subprocess.run(  # noqa: S603 - this Python, and a program of ours
            list(SEARCH_COMMAND),
            input=json.dumps([pattern, lines]),
            capture_output=True,
            check=True,
            timeout=_PATTERN_TIMEOUT_S,
            encoding="ascii",
        )
    except subprocess.TimeoutExpired:
        raise GpuformError(
            f"the pattern {_format_pattern(pattern)} takes longer than "
            f"{_PATTERN_TIMEOUT_S:g} seconds on the output",
            hint="repeat nothing within a repetition: write `a+` instead of `(a+)+`",
        ) from None
    except (subprocess.CalledProcessError, OSError) as error:
        raise GpuformError(
            f"the pattern {_format_pattern(pattern)}: the search failed: "
            f"{error.__class__.__name__}",
            hint="try a simpler pattern, and check that this machine has free memory",
        ) from error
    return _parse_number(json.loads(process.stdout))


def _validate_pattern(pattern: str) -> None:
    """Raise GpuformError unless `pattern` is a regular expression with a group for the number."""
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise GpuformError(
            f"{_format_pattern(pattern)} is not a regular expression: {error}",
            hint=r"write one such as `Avg bus bandwidth\s*:\s*([\d.]+)`",
        ) from None
    if not groups:
        raise GpuformError(
            f"the pattern {_format_pattern(pattern)} has no group for the number",
            hint="put the number in parentheses: `Avg bus bandwidth\\s*:\\s*([\\d.]+)`",
        )


def _parse_number(digits: str | None) -> float | None:
    """Return the finite number in a text, or None for any other text and for None."""
    if digits is None or not _NUMBER.fullmatch(digits):
        return None
    number = float(digits)
    return number if math.isfinite(number) else None


def _format_pattern(pattern: str) -> str:
    """Return a pattern in quotes for a message, with at most 200 characters."""
    return repr(escape_invisible(pattern)[:200])


_MAX_REASON_LENGTH: Final = 200
_POLL_INTERVAL_S: Final = 5.0


@dataclass(frozen=True)
class SlurmTester:
    """A `gpuform.providers.certifying.NodeTester` that runs the categories' scripts as batch jobs.

    `certification_id` is the id of the resource, `name` its name for people. `slurm_names` has
    Slurm's NodeName of each of the platform's nodes; a missing one has the same name.
    """

    queue: BatchQueue
    records: BatchRecords
    certification_id: str
    name: str
    categories: Sequence[CategoryInputs]
    slurm_names: Mapping[str, str]

    @property
    def name_of_tester(self) -> str:
        """Return "Slurm", for messages and outputs."""
        return "Slurm"

    def find_run(self) -> CertificationRun | None:
        """Return the recorded run, with how many of its jobs have ended and why others wait.

        None without a record. Slurm is asked for the jobs. Jobs that Slurm has not got count as
        waiting.

        Raises:
            GpuformError: Slurm cannot be asked, or a job of the record is not valid as now
                declared.
        """
        record = self.records.find(self.certification_id)
        if record is None:
            return None
        states = self._get_job_states([plan.job.name for plan in self._plan_jobs(record)])
        ended = sum(state.has_ended for state in states.values())
        phase = f"{ended} of {len(states)} jobs have ended"
        waiting = {
            state.waiting_reason
            for state in states.values()
            if state.waiting_reason and not state.has_ended
        }
        if waiting:
            phase += f", {', '.join(sorted(waiting))}"
        return CertificationRun(record.run, record.purpose, phase, has_ended=ended == len(states))

    def begin_run(self, nodes: Sequence[str], purpose: str) -> None:
        """Store the record of a run, then submit every job.

        A new record replaces an earlier one. After an error of a submission the record and the jobs
        submitted before it stay: `resume_run` submits the others. An error while the jobs are
        planned keeps nothing of this run.

        Raises:
            UnknownOutcome: nobody knows whether a job was submitted.
            GpuformError: a job is not valid (nothing is submitted then), Slurm refuses a job, or
                Slurm cannot be asked.
        """
        # A new id for each run: its job names are never those of an earlier run.
        run = uuid.uuid4().hex[:12]
        record = BatchRecord(self.certification_id, run, purpose, tuple(nodes))
        planned = [*self._plan_jobs(record)]  # before anything is kept: it may be refused
        self._submit_jobs(replace(record, jobs=tuple(plan.job.name for plan in planned)), planned)

    def resume_run(self, run: CertificationRun) -> None:
        """Submit the jobs of a run which Slurm has not got by the end of the propagation time.

        A job that neither the queue nor an output shows counts as not submitted. The propagation
        time begins with the recorded time of the last submission. After an error of a submission
        the record and the jobs submitted before it stay.

        Raises:
            NotReady: the deadline has passed.
            Cancelled: the run of gpuform was interrupted.
            UnknownOutcome: nobody knows whether a job was submitted.
            GpuformError: the record is of another run, or a job cannot be submitted.
        """
        record = self._get_record(run)
        planned = [*self._plan_jobs(record)]
        states = self._wait_until_shown(record, [plan.job.name for plan in planned])
        self._submit_jobs(record, [plan for plan in planned if not states[plan.job.name].is_sent])

    def _submit_jobs(self, record: BatchRecord, planned: "Sequence[_PlannedJob]") -> None:
        """Store the record with the time of submission, then submit the jobs; nothing without jobs.

        After a crash, the next run waits the propagation time from the stored time before it
        submits jobs again.

        Raises:
            UnknownOutcome: nobody knows whether a job was submitted; the record and earlier jobs
                stay.
            GpuformError: Slurm refuses a job or cannot be asked; the record and earlier jobs stay.
        """
        if planned:
            self.records.record(replace(record, sent_at=get_current_context().clock.now()))
        for job in planned:
            self.queue.submit(job.job)

    def _wait_until_shown(
        self, record: BatchRecord, job_names: Sequence[str]
    ) -> dict[str, "_JobState"]:
        """Wait until queue or outputs show all jobs, and return the states of the jobs.

        The wait ends with the propagation time: jobs not shown until then are not `is_sent` in the
        result, which has all names.

        Raises:
            NotReady: the deadline of the run has passed.
            Cancelled: the run was interrupted.
        """
        clock = get_current_context().clock
        started_at = clock.now()
        remaining_s = min(
            PROPAGATION_TIME_S, max(0.0, record.sent_at + PROPAGATION_TIME_S - started_at)
        )

        def poll_queue() -> PollResult[dict[str, _JobState]]:
            states = self._get_job_states(job_names)
            missing = sum(not state.is_sent for state in states.values())
            is_over = clock.now() >= started_at + remaining_s
            return PollResult(states, f"{missing} jobs not seen", is_done=not missing or is_over)

        description = f"the jobs of certification {self.name}"
        return wait_until_done(
            get_current_context(), poll_queue, label=description, interval=_POLL_INTERVAL_S
        )

    def read_results(self, run: CertificationRun) -> Sequence[JobResult]:
        """Return the results of a run, from the queue and the output of each job.

        The caller has checked that the jobs have ended: a job that has not ended counts as failed.

        Raises:
            GpuformError: the record is missing or of another run, Slurm cannot be asked, or a
                pattern for the result cannot be used.
        """
        planned = [*self._plan_jobs(self._get_record(run))]
        states = self._get_job_states([plan.job.name for plan in planned])
        return [self._to_job_result(plan, states[plan.job.name]) for plan in planned]

    def remove_run(self, run: CertificationRun) -> None:
        """Cancel the jobs of a run, and delete the run's record.

        First waits until the queue or outputs show all jobs, or until the propagation time is over.
        Does nothing if the record is missing or of another run. After an error the record stays.

        Raises:
            NotReady: the deadline has passed.
            Cancelled: the run of gpuform was interrupted.
            GpuformError: Slurm cannot be asked.
        """
        record = self.records.find(self.certification_id)
        if record is None or record.run != run.id:
            return
        # A job that the queue does not show yet could not be cancelled, and would run later.
        self._wait_until_shown(record, record.jobs)
        jobs = self.queue.find_jobs(record.jobs)
        self.queue.cancel([job.job_id for job in jobs.values() if not job.has_ended])
        # Last: after a kill the next run still knows which jobs to cancel.
        self.records.forget(self.certification_id)

    def _get_record(self, run: CertificationRun) -> BatchRecord:
        """Return the record of a run.

        Raises GpuformError if the record is gone or of another run.
        """
        record = self.records.find(self.certification_id)
        if record is None or record.run != run.id:
            raise GpuformError(f"certification {self.name}: another run has replaced its jobs")
        return record

    def _get_job_states(self, job_names: Sequence[str]) -> "dict[str, _JobState]":
        """Return the states of all these jobs by name; the output shows the end of forgotten jobs.

        Raises:
            GpuformError: Slurm cannot be asked, or an output cannot be read.
        """
        jobs = self.queue.find_jobs(job_names)
        return {name: self._get_job_state(name, jobs.get(name)) for name in job_names}

    def _get_job_state(self, name: str, job: SlurmJob | None) -> "_JobState":
        """Return the state of a job from the queue's entry `job`, or without one from the output.

        A job without entry counts as ended if there is output, also without an exit code, and as
        not sent if there is none.
        """
        if job is not None:
            waiting_reason = f"{job.state.lower()}: {job.reason}" if job.reason else ""
            exit_text = (
                f" with exit code {job.exit_code}" if job.exit_code not in {"", "0:0"} else ""
            )
            ending = f"{job.state}{exit_text}"
            return _JobState(
                is_sent=True,
                has_ended=job.has_ended,
                has_succeeded=job.has_succeeded,
                ending=ending,
                waiting_reason=waiting_reason,
                job=job,
            )
        output = self.queue.read_output(name)
        if not output:
            return _JobState(
                is_sent=False,
                has_ended=False,
                has_succeeded=False,
                ending="",
                waiting_reason="not sent yet",
            )
        exit_code = parse_exit_code(output)
        ending = "without an exit code" if exit_code is None else f"with exit code {exit_code}"
        return _JobState(is_sent=True, has_ended=True, has_succeeded=exit_code == 0, ending=ending)

    def _plan_jobs(self, record: BatchRecord) -> "Iterator[_PlannedJob]":
        """Yield a run's jobs: one per category and node, or per category for `nodes: all`.

        Categories without a `job` have none. The same record always gives the same names.

        Raises:
            GpuformError: a job's name, nodes or script cannot be submitted.
        """
        for number, category in enumerate(self.categories):
            job = category.job
            if job is None:
                continue
            groups = [[*record.nodes]] if job.nodes == "all" else [[n] for n in record.nodes]
            for group_number, nodes in enumerate(groups):
                name = f"gpuform-{self.name}-{record.run}-{number}-{group_number}"
                slurm_names = [self.slurm_names.get(node, node) for node in nodes]
                yield _PlannedJob(category, nodes, BatchJob(name, job.script, slurm_names))

    def _to_job_result(self, planned: "_PlannedJob", state: "_JobState") -> JobResult:
        """Return the result of a job: passed if Slurm and the output show success and a number.

        The caller has checked that the job has ended. A passed job has the nodes that it ran on,
        another one the planned ones; a job that only printed no number has those that it ran on,
        too. No node is blamed: a script can fail for many reasons.

        Raises:
            GpuformError: the output cannot be read, or the pattern for the result cannot be used.
        """
        category, measured, nodes = planned.category, None, planned.nodes
        reason = f"job {planned.job.name} has ended {state.ending}"
        passed = state.has_succeeded
        if passed and category.job is not None:
            output = self.queue.read_output(planned.job.name)
            # The output has the nodes of a job that the queue has forgotten.
            ran_on = parse_job_nodes(output) if state.job is None else state.job.nodes
            gaps = find_gaps(PASS_NODE, _observe_script_success(state, output, ran_on))
            passed, reason = not gaps, "; ".join(gaps)
            if passed:
                # Results have the platform's names of nodes.
                names = {slurm: node for node, slurm in self.slurm_names.items()}
                nodes = [names.get(node, node) for node in ran_on]
                measured = search_result(extract_script_output(output), category.job.result)
        if passed and measured is None:
            passed, reason = False, "the job printed no line with the result"
        return JobResult(
            category,
            nodes,
            has_passed=passed,
            measured_value=measured,
            reason=truncate(reason, _MAX_REASON_LENGTH),
            blames_single_node=False,
        )


def _observe_script_success(state: "_JobState", output: str, ran_on: Sequence[str]) -> Observation:
    """Return which evidence is missing that a job's script succeeded on its nodes.

    The caller has checked Slurm's state of the job. Evidence is the exit code 0 at the end of
    `output`, and that the nodes in the output, if any, are exactly `ran_on`, the nodes that Slurm
    reports. An empty `ran_on` is missing evidence, too.
    """
    missing = []
    exit_code, printed_nodes = parse_exit_code(output), parse_job_nodes(output)
    if exit_code is None:
        missing.append("the last line of the job's output does not say how the script ended")
    elif exit_code != 0:
        missing.append(
            f"the job has ended {state.ending}, and its script with exit code {exit_code}"
        )
    if not ran_on:
        missing.append("it reports no node that the job ran on")
    elif printed_nodes and {*printed_nodes} != {*ran_on}:
        node_lists = f"{', '.join(ran_on)} instead of {', '.join(printed_nodes)}"
        missing.append(f"it reports other nodes than the job printed: {node_lists}")
    return Observation("Slurm", missing)


@dataclass(frozen=True)
class _PlannedJob:
    category: CategoryInputs
    nodes: Sequence[str]
    job: BatchJob


@dataclass(frozen=True)
class _JobState:
    """The state of one job: how it ended, what it waits for, and its entry in the queue, if any."""

    is_sent: bool
    has_ended: bool
    has_succeeded: bool
    ending: str
    waiting_reason: str = ""
    job: SlurmJob | None = None
