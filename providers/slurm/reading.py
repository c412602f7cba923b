"""What Slurm's commands print, read strictly: anything unexpected is a ValueError, never a guess.

The texts of `scontrol show node` and `squeue --format` are for people's scripts, and old. JSON is
no choice yet: `scontrol` of 22.05 has none, each version has its own schema, and Slurm can be built
without it. `sinfo` says less: it leaves out nodes without a partition, and flags of states.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import product

from gpuform.schemas.policies.drain import RunningJob

SHOW_NODES = ("scontrol", "show", "node")

# A name may hold anything, line breaks too: it stands last, behind a sign that begins a record.
_RECORD = "\x1e"
_ON_NODES = "CONFIGURING,COMPLETING,RESIZING,RUNNING,SIGNALING,STAGE_OUT,STOPPED,SUSPENDED"
SHOW_JOBS = (
    "squeue",
    "--noheader",
    "--all",
    f"--states={_ON_NODES}",
    f"--format={_RECORD}%i|%N|%u|%j",
)
"""The jobs that hold nodes. Of a COMPLETING one, %N has those nodes alone that it still holds."""

_JOB_ID = re.compile(r"\d+(?:[_+]\d+)?", re.ASCII)
_BASES = {"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN"}
_UNUSABLE = {"DOWN", "ERROR", "FAIL", "NOT_RESPONDING", "INVALID_REG"}
_SHORT_FLAGS = "*~#!%$@^-"
_ADDRESSES = re.compile(r"\bNode(?:Addr|HostName)=(\S+)")
_SIGNED = re.compile(r" \[[^\[\]@]*@[^\[\]]*\]$")


@dataclass(frozen=True)
class Node:
    """A node as `scontrol show node` prints it."""

    name: str
    state: frozenset[str]
    """The base state and its flags, such as MIXED and DRAIN."""
    reason: str = ""
    """Why it is drained or down, without who said so and when."""
    addresses: tuple[str, ...] = ()
    """Its NodeAddr and NodeHostName."""

    @property
    def is_drained(self) -> bool:
        """Whether somebody has said that it takes no new jobs: DRAIN, or FAIL."""
        return not self.state.isdisjoint({"DRAIN", "FAIL"})

    @property
    def is_failed(self) -> bool:
        return not _UNUSABLE.isdisjoint(self.state)

    @property
    def trouble(self) -> str:
        """The words of its state by which it cannot be used, such as DOWN+NOT_RESPONDING."""
        return "+".join(sorted(_UNUSABLE & self.state))

    @property
    def is_busy(self) -> bool:
        """Whether something runs on it, whoever may see what."""
        return not self.state.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING"})


def read_nodes(text: str) -> list[Node]:
    """The nodes in the text of SHOW_NODES, without those that are declared for the FUTURE alone."""
    if text.strip() == "No nodes in the system":
        return []
    blocks = [block for block in re.split(r"\n\s*\n", text.strip()) if block]
    if not blocks:
        raise ValueError("it told no nodes")
    nodes = [_node(block) for block in blocks]
    if len({node.name for node in nodes}) < len(nodes):
        raise ValueError("it told a node twice")
    return [node for node in nodes if "FUTURE" not in node.state]


def _node(block: str) -> Node:
    first, *lines = block.split("\n")
    name = re.match(r"NodeName=([\w.-]+)(?: |$)", first, re.ASCII)
    states = [line for line in lines if line.startswith("   State=")]
    reasons = [line for line in lines if line.startswith("   Reason=")]
    # Comments may hold lines as well: what is not plain is not believed.
    if name is None or len(states) != 1 or len(reasons) > 1:
        raise ValueError(f"{first[:80]!r} begins no node")
    reason = reasons[0].removeprefix("   Reason=") if reasons else ""
    addressed = [line for line in lines if line.startswith("   NodeAddr=")]
    addresses = _ADDRESSES.findall(addressed[0]) if len(addressed) == 1 else ()
    return Node(name[1], _state(states[0]), _SIGNED.sub("", reason), tuple(addresses))


def _state(line: str) -> frozenset[str]:
    written = line.removeprefix("   State=").split(" ")[0]
    base, *flags = written.split("+")
    # Until 21.08 some flags are signs: DOWN* does not respond.
    state = {flag.rstrip(_SHORT_FLAGS) for flag in (base, *flags)}
    if "*" in written:
        state.add("NOT_RESPONDING")
    if base.rstrip(_SHORT_FLAGS) not in _BASES:
        raise ValueError(f"{written!r} is no state of a node")
    return frozenset(state)


def read_jobs(text: str) -> dict[str, list[RunningJob]]:
    """The jobs in the text of SHOW_JOBS, by the nodes that they hold."""
    if not text:
        return {}
    before, *records = text.split(_RECORD)
    if before:
        raise ValueError(f"{before[:80]!r} is no job")
    jobs: dict[str, list[RunningJob]] = {}
    for record in records:
        fields = record.split("|", 3)
        if len(fields) != 4 or not _JOB_ID.fullmatch(fields[0]):
            raise ValueError(f"{record[:80]!r} is no job")
        job_id, hostlist, user, name = fields
        job = RunningJob(id=job_id, name=" ".join(name.split()), user=user)
        for node in expanded(hostlist):
            jobs.setdefault(node, []).append(job)
    return jobs


def show_ending(names: list[str]) -> tuple[str, ...]:
    """The command whose text `read_ending` reads: no part of it is chosen by users."""
    return (
        "squeue",
        "--noheader",
        "--all",
        f"--states={_ON_NODES.replace('COMPLETING,', '')}",
        f"--nodelist={','.join(names)}",
        "--Format=JobArrayID:64,BatchFlag:8,Requeue:8",
    )


def read_ending(text: str) -> dict[str, bool]:
    """Jobs that run, and whether each can go back into the queue: batch jobs that allow it.

    The parts of a heterogeneous job (`7+0`, `7+1`) are one job, known by its number (`7`).
    """
    jobs: dict[str, bool] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) != 3 or not _JOB_ID.fullmatch(fields[0]) or set(fields[1:]) - {"0", "1"}:
            raise ValueError(f"{line[:80]!r} is no job")
        job_id = fields[0].split("+")[0]
        jobs[job_id] = fields[1:] == ["1", "1"] and jobs.get(job_id, True)
    return jobs


_NAME = r"(?:[\w.-]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_LIST = re.compile(f"{_NAME}(?:,{_NAME})*", re.ASCII)
_NAMES = re.compile(_NAME, re.ASCII)
_PARTS = re.compile(r"\[([\d,-]+)\]|([^\[\]]+)")
_MOST = 100_000


def expanded(hostlist: str) -> list[str]:
    """The names of a hostlist expression, in its order; none of an empty one.

    Raises ValueError when it is not one, or one of more names than a Slurm has nodes.
    """
    if not hostlist:
        return []
    if not _LIST.fullmatch(hostlist):
        raise ValueError(f"{hostlist!r} is no hostlist expression")
    return [name for written in _NAMES.findall(hostlist) for name in _names(written)]


def _names(written: str) -> list[str]:
    parts = [_numbers(ranges) if ranges else [text] for ranges, text in _PARTS.findall(written)]
    return ["".join(chosen) for chosen in product(*parts)]


def _numbers(ranges: str) -> list[str]:
    """The numbers of `00-02,7`, with the zeros in front of them that the first one has."""
    numbers = []
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        wanted = range(int(first), int(last or first) + 1)
        if not 0 < len(wanted) <= _MOST:
            raise ValueError(f"[{ranges}] is no range of names")
        numbers += [f"{number:0{len(first)}}" for number in wanted]
    return numbers


# Tasks that wait are written as one: `7_[1-9%2]`.
_ANY_ID = re.compile(r"\d+(?:[_+][\d\[\],%:.-]+)?", re.ASCII)
_ENDED = {
    *("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "REVOKED"),
}


@dataclass(frozen=True)
class BatchRun:
    """A batch job as Slurm tells it."""

    job_id: str
    state: str
    """Slurm's word, such as PENDING, RUNNING, COMPLETING, COMPLETED or NODE_FAIL."""
    nodes: tuple[str, ...] = ()
    """Those that it has or had; those that it wants while it is PENDING, and only then."""
    reason: str = ""
    """Why it is PENDING, such as `ReqNodeNotAvail, UnavailableNodes:w2`, or how it went wrong."""
    exit_code: str = ""
    """`CODE:SIGNAL`, as Slurm writes it; empty until it has ended."""

    @property
    def ended(self) -> bool:
        """Whether it holds no node any more, and never will."""
        return self.state in _ENDED

    @property
    def ok(self) -> bool:
        """Whether its script ended with 0, as far as Slurm says."""
        return self.state == "COMPLETED" and self.exit_code in {"", "0:0"}


def show_runs(names: Collection[str]) -> tuple[str, ...]:
    """The command whose text `read_runs` reads: jobs of names, those that have ended, too."""
    return (*_show_named(names), f"--format={_RECORD}%i|%U|%T|%N|%n|%r|%j")


def show_exit_codes(names: Collection[str]) -> tuple[str, ...]:
    """The command whose text `read_exit_codes` reads: no part of it is chosen by users."""
    return (*_show_named(names), "--Format=JobID:32,exit_code:32")


def _show_named(names: Collection[str]) -> tuple[str, ...]:
    return ("squeue", "--noheader", "--all", "--states=all", f"--name={','.join(sorted(names))}")


def read_runs(text: str, *, uid: int, names: Collection[str]) -> dict[str, BatchRun]:
    """The newest job of each name that belongs to a user, by the name.

    Jobs of other users or names, tasks of arrays and parts of heterogeneous jobs are left out.
    """
    if not text:
        return {}
    before, *records = text.split(_RECORD)
    if before:
        raise ValueError(f"{before[:80]!r} is no job")
    found: dict[str, BatchRun] = {}
    for record in records:
        fields = record.split("|", 6)
        if len(fields) != 7 or not _ANY_ID.fullmatch(fields[0]) or not fields[1].isdecimal():
            raise ValueError(f"{record[:80]!r} is no job")
        job_id, owner, state, held, wanted, reason, name = fields
        name = name.removesuffix("\n")
        if int(owner) != uid or name not in names or not job_id.isdecimal():
            continue
        if not re.fullmatch(r"[A-Z_]+", state):
            raise ValueError(f"{state[:80]!r} is no state of a job")
        nodes = tuple(expanded(held.strip() or (wanted.strip() if state == "PENDING" else "")))
        told = "" if reason == "None" else " ".join(reason.split())
        if name not in found or int(found[name].job_id) < int(job_id):
            found[name] = BatchRun(job_id, state, nodes, told)
    return found


def read_exit_codes(text: str) -> dict[str, str]:
    """The exit code of each job as `CODE:SIGNAL`, by its number."""
    codes = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) != 2 or not fields[0].isdecimal():
            raise ValueError(f"{line[:80]!r} is no job")
        job_id, told = fields
        if told.isdecimal():  # as of wait(2)
            told = f"{int(told) >> 8 & 255}:{int(told) & 127}"
        elif not re.fullmatch(r"\d+:\d+", told, re.ASCII):
            raise ValueError(f"{told[:80]!r} is no exit code")
        codes[job_id] = told
    return codes
