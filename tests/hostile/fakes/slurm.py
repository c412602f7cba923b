"""Fake the commands of one Slurm cluster, from the manual pages of squeue, scontrol and others.

No job really runs: a job ends when the clock has passed its end. Commands answer wrongly in the
ways that `Misbehavior` names.
"""

import copy
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.slurm.processes import CommandOutput

_ON_NODES = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED")
UID = 1001


@dataclass
class Misbehavior:
    """Ways of misbehaving; none by default."""

    lag_s: float = 0.0
    """How old the state is that squeue and scontrol show, in seconds."""
    hides_nodes: set[str] = field(default_factory=set)
    """PrivateData=nodes, or partitions that are hidden."""
    hides_jobs: bool = False
    """PrivateData=jobs: squeue shows only jobs of our own user."""
    doubles_nodes: bool = False
    cuts_output: bool = False
    """What a command prints ends in the middle."""
    forgets_after_s: float = 300.0
    """MinJobAge."""
    runs_elsewhere: dict[str, str] = field(default_factory=dict)
    """Nodes, and the others on which the jobs for them run."""
    exit_codes: dict[str, str] = field(default_factory=dict)
    """By node, the exit code that squeue shows for jobs there, whatever the real one was."""
    loses_last_line: bool = False
    """Outputs end before the script does."""
    shows_no_node: bool = False
    """squeue shows no nodes of jobs that have ended."""


@dataclass
class Job:
    number: int
    name: str
    nodes: list[str]
    requested_nodes: list[str]
    user: int = UID
    state: str = "RUNNING"
    began: float = 0.0
    ends: float = float("inf")
    code: int = 0
    output: str = ""
    path: str = ""
    runs_for: float = 60.0


class Slurm:
    """Implement `gpuform.providers.slurm.processes.Commands`."""

    label = "on the stand-in"

    def __init__(self, clock: Any, nodes: Sequence[str], figure: float = 480.0) -> None:
        self.clock = clock
        self._history: list[tuple[float, dict[str, Any], list[Job]]] = []
        self.nodes: dict[str, Any] = {
            name: {"state": "IDLE", "drain": False, "reason": "", "address": name} for name in nodes
        }
        self.jobs: list[Job] = []
        self.figure = figure
        self.misbehavior = Misbehavior()
        self.commands: list[str] = []

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        del is_change, as_user
        self.commands.append(" ".join(command))
        self._end_due_jobs()
        words = list(command)
        if words[:3] == ["scontrol", "show", "node"]:
            return self._print(self._show_nodes())
        if words[:2] == ["scontrol", "update"]:
            return self._update(words[2:])
        if words[0] == "squeue":
            return self._print(self._list_queue(words[1:]))
        if words[0] == "sbatch":
            return self._submit(words[1:])
        if words[0] == "scancel" or words[:2] == ["scontrol", "requeue"]:
            return self._cancel(words)
        if words[0] == "id":
            return CommandOutput(f"{UID}\n", "", 0)
        if words[0] == "env":
            return self._read_output(words[-1])
        return CommandOutput("", f"{words[0]}: command not found", 127)

    def start_job(self, node: str, name: str, minutes: float, user: int = 2002) -> Job:
        """Start a job of somebody else on a node."""
        self._record_history()
        now = self.clock.now()
        job = Job(len(self.jobs) + 1, name, [node], [], user, began=now, ends=now + minutes * 60)
        self.jobs.append(job)
        return job

    def add_node(self, name: str, address: str) -> None:
        """Add a node; a node that was DOWN returns with its drain."""
        self._record_history()
        node = self.nodes.setdefault(name, {"drain": False, "reason": ""})
        node.update(state="IDLE", address=address)

    def end_node(self, name: str, *, is_static: bool) -> None:
        """End a node and all jobs on the node; Slurm keeps a static node as DOWN."""
        self._record_history()
        for job in self.jobs:
            if name in job.nodes and job.state in _ON_NODES:
                job.state, job.ends = "NODE_FAIL", self.clock.now()
        if is_static:
            self.nodes[name]["state"] = "DOWN+NOT_RESPONDING"
        else:
            del self.nodes[name]

    def list_jobs_on(self, node: str) -> list[str]:
        """Return the names of all jobs on `node`, also of hidden ones."""
        self._end_due_jobs()
        return [job.name for job in self.jobs if node in job.nodes and job.state in _ON_NODES]

    def _end_due_jobs(self) -> None:
        """End jobs whose time has come."""
        for job in self.jobs:
            if job.state == "RUNNING" and job.ends <= self.clock.now():
                self._record_history(job.ends)
                job.state = "COMPLETED" if job.code == 0 else "FAILED"
                if job.path:
                    job.output = f"# Avg bus bandwidth : {self.figure}\n"
                    job.output += f"gpuform: exit code {job.code} on {','.join(job.nodes)}\n"

    def _record_history(self, moment: float | None = None) -> None:
        at = self.clock.now() if moment is None else moment
        self._history.append((at, copy.deepcopy(self.nodes), copy.deepcopy(self.jobs)))

    def _get_shown_state(self) -> tuple[dict[str, Any], list[Job]]:
        moment = self.clock.now() - self.misbehavior.lag_s
        for until, nodes, jobs in self._history:
            if until > moment:
                return nodes, jobs
        return self.nodes, self.jobs

    def _print(self, text: str) -> CommandOutput:
        return CommandOutput(
            text[: len(text) // 2] if self.misbehavior.cuts_output else text, "", 0
        )

    def _show_nodes(self) -> str:
        nodes, jobs = self._get_shown_state()
        busy = {node for job in jobs if job.state in _ON_NODES for node in job.nodes}
        names = [name for name in nodes if name not in self.misbehavior.hides_nodes]
        if not names:
            return "No nodes in the system\n"
        blocks = [_format_node(name, nodes[name], is_busy=name in busy) for name in names]
        if self.misbehavior.doubles_nodes:
            blocks.append(blocks[0])
        return "\n".join(blocks) + "\n"

    def _list_queue(self, options: Sequence[str]) -> str:
        options_by_name = dict(option.partition("=")[::2] for option in options)
        jobs = self._get_shown_state()[1]
        forgotten = self.clock.now() - self.misbehavior.forgets_after_s
        listed_jobs = [job for job in jobs if job.state in _ON_NODES or job.ends > forgotten]
        if self.misbehavior.hides_jobs:
            listed_jobs = [job for job in listed_jobs if job.user == UID]
        if options_by_name.get("--states") != "all":
            states = options_by_name.get("--states", "PENDING,RUNNING,COMPLETING").split(",")
            listed_jobs = [job for job in listed_jobs if job.state in states]
        if "--name" in options_by_name:
            listed_jobs = [
                job for job in listed_jobs if job.name in options_by_name["--name"].split(",")
            ]
        if "--nodelist" in options_by_name:
            names = {*options_by_name["--nodelist"].split(",")}
            listed_jobs = [job for job in listed_jobs if names & {*job.nodes}]
        return "".join(self._format_job(job, options_by_name) for job in listed_jobs)

    def _format_job(self, job: Job, options_by_name: dict[str, str]) -> str:
        has_ended = job.state not in _ON_NODES
        nodes = "" if has_ended and self.misbehavior.shows_no_node else ",".join(job.nodes)
        if "--Format" in options_by_name:
            messages = next(
                (
                    self.misbehavior.exit_codes[n]
                    for n in job.nodes
                    if n in self.misbehavior.exit_codes
                ),
                f"{job.code}:0",
            )
            values = {
                "JobID": job.number,
                "exit_code": messages,
                "JobArrayID": job.number,
                "BatchFlag": 1,
                "Requeue": 1,
            }
            fields = [field.split(":")[0] for field in options_by_name["--Format"].split(",")]
            return "".join(f"{values[field]!s:<32}" for field in fields) + "\n"
        values = {
            "i": job.number,
            "N": nodes,
            "n": ",".join(job.requested_nodes),
            "u": f"user{job.user}",
            "U": job.user,
            "T": job.state,
            "r": "None",
            "j": job.name,
        }
        return (
            re.sub(
                "%(.)", lambda placeholder: str(values[placeholder[1]]), options_by_name["--format"]
            )
            + "\n"
        )

    def _submit(self, options: Sequence[str]) -> CommandOutput:
        self._record_history()
        options_by_name = dict(option.partition("=")[::2] for option in options)
        node_names = options_by_name["--nodelist"].split(",")
        nodes = [self.misbehavior.runs_elsewhere.get(node, node) for node in node_names]
        now = self.clock.now()
        job = Job(len(self.jobs) + 1, options_by_name["--job-name"], nodes, node_names, began=now)
        job.ends, job.path = now + job.runs_for, options_by_name["--output"]
        self.jobs.append(job)
        return CommandOutput(f"{job.number}\n", "", 0)

    def _read_output(self, path: str) -> CommandOutput:
        matching_job = next((job for job in reversed(self.jobs) if job.path == path), None)
        if matching_job is None:
            return CommandOutput("", f"tail: cannot open '{path}': No such file or directory", 1)
        lines = matching_job.output.splitlines(keepends=True)
        return CommandOutput(
            "".join(lines[:-1] if self.misbehavior.loses_last_line else lines), "", 0
        )

    def _update(self, settings: Sequence[str]) -> CommandOutput:
        self._record_history()
        options_by_name = dict(setting.partition("=")[::2] for setting in settings)
        for name in options_by_name["NodeName"].split(","):
            if name not in self.nodes:
                return CommandOutput(
                    "", f"scontrol: error: Invalid node name specified {shlex.quote(name)}", 1
                )
            node = self.nodes[name]
            state = options_by_name.get("State")
            node["drain"] = {"DRAIN": True, "UNDRAIN": False, None: node["drain"]}[state]
            node["reason"] = options_by_name.get(
                "Reason", "" if state == "UNDRAIN" else node["reason"]
            )
        return CommandOutput("", "", 0)

    def _cancel(self, words: Sequence[str]) -> CommandOutput:
        self._record_history()
        numbers = {
            int(number) for word in words[1:] for number in word.split(",") if number.isdigit()
        }
        for job in self.jobs:
            if job.number in numbers and job.state in _ON_NODES:
                job.state, job.ends = "CANCELLED", self.clock.now()
        return CommandOutput("", "", 0)


def _format_node(name: str, node: Any, *, is_busy: bool) -> str:
    state = "ALLOCATED" if is_busy and node["state"] == "IDLE" else node["state"]
    lines = [
        f"NodeName={name} Arch=x86_64 CoresPerSocket=1",
        f"   NodeAddr={node['address']} NodeHostName={name} Version=22.05.8",
        f"   State={state}{'+DRAIN' if node['drain'] else ''} ThreadsPerCore=1",
    ]
    if node["reason"]:
        lines.append(f"   Reason={node['reason']} [root@2026-01-01T00:00:00]")
    return "\n".join(lines) + "\n"
