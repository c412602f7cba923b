"""What Slurm's commands print, read strictly: anything unexpected is a ValueError, never a guess.

The texts of `scontrol show node` and `squeue --format` are for people's scripts, and old. JSON is
no choice yet: `scontrol` of 22.05 has none, each version has its own schema, and Slurm can be built
without it. `sinfo` says less: it leaves out nodes without a partition, and flags of states.
"""

import re
from dataclasses import dataclass
from itertools import product

from gpuform.schemas.drain import RunningJob

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
_SIGNED = re.compile(r" \[[^\[\]@]*@[^\[\]]*\]$")


@dataclass(frozen=True)
class Node:
    """A node as `scontrol show node` prints it."""

    name: str
    state: frozenset[str]
    """The base state and its flags, such as MIXED and DRAIN."""
    reason: str = ""
    """Why it is drained or down, without who said so and when."""

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
    return Node(name[1], _state(states[0]), _SIGNED.sub("", reason))


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
