"""Build Slurm's query commands, and parse strictly what they print: a surprise is a ValueError.

`scheduler` and `batch` run the commands. The texts of `scontrol show node` and `squeue --format`
are made for scripts, and old. JSON is no choice yet: `scontrol` of 22.05 has none, each version has
its own schema, and Slurm can be built without it. `sinfo` leaves out nodes without a partition, and
flags of states.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product

from gpuform.schemas.policies.drain import RunningJob

LIST_NODES_COMMAND = ("scontrol", "show", "node")

# A name may hold anything, line breaks too: it stands last, behind a sign that begins a record.
_RECORD_START = "\x1e"
_STATES_ON_NODES = "CONFIGURING,COMPLETING,RESIZING,RUNNING,SIGNALING,STAGE_OUT,STOPPED,SUSPENDED"
LIST_JOBS_COMMAND = (
    "squeue",
    "--noheader",
    "--all",
    f"--states={_STATES_ON_NODES}",
    f"--format={_RECORD_START}%i|%N|%u|%j",
)
"""Lists the jobs that hold nodes. Of a COMPLETING job, %N has only the nodes that it still holds.
"""

_JOB_ID = re.compile(r"\d+(?:[_+]\d+)?", re.ASCII)
_BASE_STATES = {"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN"}
_UNUSABLE_STATES = {"DOWN", "ERROR", "FAIL", "NOT_RESPONDING", "INVALID_REG"}
_SHORT_FLAGS = "*~#!%$@^-"
"""Signs that Slurm puts behind a state up to 21.08; `*` is a node that does not respond."""
_ADDRESSES = re.compile(r"\bNode(?:Addr|HostName)=(\S+)")
_REASON_SIGNATURE = re.compile(r" \[[^\[\]@]*@[^\[\]]*\]$")


@dataclass(frozen=True)
class SlurmNode:
    """A node as `scontrol show node` prints it."""

    name: str
    states: frozenset[str]
    """The base state and its flags, such as MIXED and DRAIN."""
    reason: str = ""
    """Why the node is drained or down, without the name and the time that Slurm adds."""
    addresses: tuple[str, ...] = ()
    """NodeAddr and NodeHostName of the node."""

    @property
    def is_drained(self) -> bool:
        """Return True if the node takes no new jobs at somebody's request (DRAIN or FAIL)."""
        return not self.states.isdisjoint({"DRAIN", "FAIL"})

    @property
    def is_failed(self) -> bool:
        """Return True if Slurm cannot use the node, as a node DOWN or without response."""
        return not _UNUSABLE_STATES.isdisjoint(self.states)

    @property
    def unusable_states(self) -> str:
        """Return the states which make the node unusable, as DOWN+NOT_RESPONDING, or ""."""
        return "+".join(sorted(_UNUSABLE_STATES & self.states))

    @property
    def is_busy(self) -> bool:
        """Return True if a job runs on the node, even a job which the user may not see."""
        return not self.states.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING"})


def parse_nodes(output: str) -> list[SlurmNode]:
    """Return the nodes in the output of LIST_NODES_COMMAND, without nodes in state FUTURE.

    Empty if Slurm reports that it has no nodes.

    Raises:
        ValueError: the text is empty, has another form, or has one node twice.
    """
    # scontrol's words for a Slurm without nodes; an empty output is an error.
    if output.strip() == "No nodes in the system":
        return []
    blocks = [block for block in re.split(r"\n\s*\n", output.strip()) if block]
    if not blocks:
        raise ValueError("the output shows no nodes")
    nodes = [_parse_node(block) for block in blocks]
    if len({node.name for node in nodes}) < len(nodes):
        raise ValueError("the output shows a node twice")
    return [node for node in nodes if "FUTURE" not in node.states]


def _parse_node(block: str) -> SlurmNode:
    """Return the node in one block of `scontrol show node`. Raises ValueError for another form."""
    first, *lines = block.split("\n")
    name = re.match(r"NodeName=([\w.-]+)(?: |$)", first, re.ASCII)
    states = [line for line in lines if line.startswith("   State=")]
    reasons = [line for line in lines if line.startswith("   Reason=")]
    # Comments may contain such lines: an ambiguous block is refused.
    if name is None or len(states) != 1 or len(reasons) > 1:
        raise ValueError(f"{first[:80]!r} is not the beginning of a node")
    reason = reasons[0].removeprefix("   Reason=") if reasons else ""
    addressed = [line for line in lines if line.startswith("   NodeAddr=")]
    addresses = _ADDRESSES.findall(addressed[0]) if len(addressed) == 1 else ()
    return SlurmNode(
        name[1], _parse_states(states[0]), _REASON_SIGNATURE.sub("", reason), tuple(addresses)
    )


def _parse_states(line: str) -> frozenset[str]:
    """Return the base state and the flags in a line `State=...`.

    A sign for a node that does not respond becomes the flag NOT_RESPONDING.

    Raises:
        ValueError: the base state is unknown.
    """
    printed = line.removeprefix("   State=").split(" ")[0]
    base_state, *flags = printed.split("+")
    # Until 21.08 some flags are signs: DOWN* does not respond.
    states = {flag.rstrip(_SHORT_FLAGS) for flag in (base_state, *flags)}
    if "*" in printed:
        states.add("NOT_RESPONDING")
    if base_state.rstrip(_SHORT_FLAGS) not in _BASE_STATES:
        raise ValueError(f"{printed!r} is not a node state")
    return frozenset(states)


def _iterate_records(
    output: str, field_count: int, id_pattern: re.Pattern[str]
) -> Iterator[list[str]]:
    """Yield the fields of each job in an output of squeue, the job's id first.

    Raises:
        ValueError: the text has another form.
    """
    unexpected, *records = output.split(_RECORD_START)
    if unexpected:
        raise ValueError(f"{unexpected[:80]!r} is not a job")
    for record in records:
        fields = record.removesuffix("\n").split("|", field_count - 1)
        if len(fields) != field_count or not id_pattern.fullmatch(fields[0]):
            raise ValueError(f"{record[:80]!r} is not a job")
        yield fields


def parse_jobs(output: str) -> dict[str, list[RunningJob]]:
    """Return the jobs in the output of LIST_JOBS_COMMAND, by the names of the jobs' nodes.

    Raises:
        ValueError: the text has another form.
    """
    jobs: dict[str, list[RunningJob]] = {}
    for job_id, hostlist, user, name in _iterate_records(output, 4, _JOB_ID):
        job = RunningJob(id=job_id, name=" ".join(name.split()), user=user)
        for node in expand_hostlist(hostlist):
            jobs.setdefault(node, []).append(job)
    return jobs


def build_running_jobs_command(node_names: list[str]) -> tuple[str, ...]:
    """Return the squeue command that lists the jobs on nodes, without COMPLETING ones.

    `parse_running_jobs` parses the output, which has no text that users choose.
    """
    return (
        "squeue",
        "--noheader",
        "--all",
        # COMPLETING jobs are ending already: there is nothing to requeue or cancel.
        f"--states={_STATES_ON_NODES.replace('COMPLETING,', '')}",
        f"--nodelist={','.join(node_names)}",
        "--Format=JobArrayID:64,BatchFlag:8,Requeue:8",
    )


def parse_running_jobs(output: str) -> dict[str, bool]:
    """Return the ids of running jobs, each with True if Slurm can requeue the job.

    Slurm requeues batch jobs that allow it.

    The parts of a heterogeneous job (`7+0`, `7+1`) count as one job with its number (`7`).

    Raises:
        ValueError: the text has another form.
    """
    can_requeue_by_job: dict[str, bool] = {}
    for line in output.splitlines():
        fields = line.split()
        if len(fields) != 3 or not _JOB_ID.fullmatch(fields[0]) or set(fields[1:]) - {"0", "1"}:
            raise ValueError(f"{line[:80]!r} is not a job")
        job_id = fields[0].split("+")[0]
        # A heterogeneous job can be requeued only if each of its parts can.
        can_requeue_by_job[job_id] = fields[1:] == ["1", "1"] and can_requeue_by_job.get(
            job_id, True
        )
    return can_requeue_by_job


_HOST_NAME_PATTERN = r"(?:[\w.-]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_HOSTLIST = re.compile(f"{_HOST_NAME_PATTERN}(?:,{_HOST_NAME_PATTERN})*", re.ASCII)
_HOSTLIST_ITEM = re.compile(_HOST_NAME_PATTERN, re.ASCII)
_HOSTLIST_PART = re.compile(r"\[([\d,-]+)\]|([^\[\]]+)")
_MAX_NODES = 100_000
"""The longest range in a hostlist: a longer one would fill the memory with names."""


def expand_hostlist(hostlist: str) -> list[str]:
    """Return the names in a hostlist expression, in order; none for an empty one.

    Raises:
        ValueError: the text is no hostlist, or has a range that is backwards or over 100,000 long.
    """
    if not hostlist:
        return []
    if not _HOSTLIST.fullmatch(hostlist):
        raise ValueError(f"{hostlist!r} is not a hostlist expression")
    return [name for item in _HOSTLIST_ITEM.findall(hostlist) for name in _expand_item(item)]


def _expand_item(item: str) -> list[str]:
    """Return the names in one item of a hostlist, such as `gpu[1-2]`. Raises ValueError."""
    parts = [
        _expand_ranges(ranges) if ranges else [plain_part]
        for ranges, plain_part in _HOSTLIST_PART.findall(item)
    ]
    return ["".join(combination) for combination in product(*parts)]


def _expand_ranges(ranges: str) -> list[str]:
    """Return the numbers of `00-02,7`, zero-padded like the first number of each range.

    Raises:
        ValueError: a range runs backwards, or has more than 100,000 numbers.
    """
    numbers = []
    for number_range in ranges.split(","):
        first, _, last = number_range.partition("-")
        numbers_in_range = range(int(first), int(last or first) + 1)
        if not 0 < len(numbers_in_range) <= _MAX_NODES:
            raise ValueError(f"[{ranges}] is not a range of names")
        numbers += [f"{number:0{len(first)}}" for number in numbers_in_range]
    return numbers


# Tasks that wait are written as one: `7_[1-9%2]`.
_ANY_ID = re.compile(r"\d+(?:[_+][\d\[\],%:.-]+)?", re.ASCII)
_ENDED_STATES = {
    *("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "REVOKED"),
}


@dataclass(frozen=True)
class SlurmJob:
    """A batch job as Slurm reports it."""

    job_id: str
    state: str
    """Slurm's word, such as PENDING, RUNNING, COMPLETING, COMPLETED or NODE_FAIL."""
    nodes: tuple[str, ...] = ()
    """Nodes that the job has or had; while it is PENDING, the nodes that it requests."""
    reason: str = ""
    """Why the job is PENDING, such as `ReqNodeNotAvail, UnavailableNodes:w2`, or why it failed."""
    exit_code: str = ""
    """`CODE:SIGNAL`, as Slurm writes it; empty until the job has ended."""

    @property
    def has_ended(self) -> bool:
        """Return True if the job holds no node any more, and never will."""
        return self.state in _ENDED_STATES

    @property
    def has_succeeded(self) -> bool:
        """Return True if Slurm reports the job as COMPLETED, with exit code 0 or with none."""
        return self.state == "COMPLETED" and self.exit_code in {"", "0:0"}


def build_batch_jobs_command(job_names: Collection[str]) -> tuple[str, ...]:
    """Return the command for `parse_batch_jobs`: jobs with these names, ended ones included."""
    return (*_build_named_jobs_command(job_names), f"--format={_RECORD_START}%i|%U|%T|%N|%n|%r|%j")


def build_exit_codes_command(job_names: Collection[str]) -> tuple[str, ...]:
    """Return the squeue command that lists the exit codes of all jobs with these names.

    `parse_exit_codes` parses the output, which has no text that users choose.
    """
    return (*_build_named_jobs_command(job_names), "--Format=JobID:32,exit_code:32")


def _build_named_jobs_command(job_names: Collection[str]) -> tuple[str, ...]:
    """Return the start of a squeue command for all jobs with these names, ended ones included."""
    return (
        "squeue",
        "--noheader",
        "--all",
        "--states=all",
        f"--name={','.join(sorted(job_names))}",
    )


def parse_batch_jobs(output: str, *, uid: int, job_names: Collection[str]) -> dict[str, SlurmJob]:
    """Return the newest job of each name in the jobs of user `uid`, by name.

    Jobs of other users or names, tasks of arrays and parts of heterogeneous jobs are left out. A
    pending job has the nodes that it requests.

    Raises:
        ValueError: the text has another form.
    """
    jobs: dict[str, SlurmJob] = {}
    for job_id, owner, state, allocated, requested, reason, name in _iterate_records(
        output, 7, _ANY_ID
    ):
        if not owner.isdecimal():
            raise ValueError(f"{owner[:80]!r} is not the user of job {job_id}")
        # Other users may have jobs of the same name.
        if int(owner) != uid or name not in job_names or not job_id.isdecimal():
            continue
        if not re.fullmatch(r"[A-Z_]+", state):
            raise ValueError(f"{state[:80]!r} is not a job state")
        nodes = tuple(
            # A PENDING job has no nodes yet: %n has those that it requests.
            expand_hostlist(allocated.strip() or (requested.strip() if state == "PENDING" else ""))
        )
        shown_reason = "" if reason == "None" else " ".join(reason.split())
        # Slurm numbers jobs upwards: the higher id is the newer job.
        if name not in jobs or int(jobs[name].job_id) < int(job_id):
            jobs[name] = SlurmJob(job_id, state, nodes, shown_reason)
    return jobs


def parse_exit_codes(output: str) -> dict[str, str]:
    """Return the exit code of each job as `CODE:SIGNAL`, by the job's number.

    Raises:
        ValueError: the text has another form.
    """
    codes = {}
    for line in output.splitlines():
        fields = line.split()
        if len(fields) != 2 or not fields[0].isdecimal():
            raise ValueError(f"{line[:80]!r} is not a job")
        job_id, exit_code = fields
        if exit_code.isdecimal():  # as of wait(2)
            exit_code = f"{int(exit_code) >> 8 & 255}:{int(exit_code) & 127}"
        elif not re.fullmatch(r"\d+:\d+", exit_code, re.ASCII):
            raise ValueError(f"{exit_code[:80]!r} is not an exit code")
        codes[job_id] = exit_code
    return codes
