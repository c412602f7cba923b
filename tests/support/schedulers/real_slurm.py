"""Run a real Slurm: Debian's munged, slurmctld and slurmd, as plain processes of one machine.

Everything is in one short-named directory (a socket's path may have 107 characters), on free ports.
Jobs are real, and end when a test ends them.
"""

import getpass
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from processes.limits import LAST_RESORT
from support.servers.ports import reserve_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
MISSING_PROGRAMS = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]

_CONFIGURATION = """
ClusterName=training
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
StateSaveLocation={home}/state
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/%n.pid
SlurmdSpoolDir={home}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
MessageTimeout=5
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_MAX_POLLS = 17_000


def wait_until(condition: Callable[[], bool], awaited: str) -> None:
    """Wait until `condition` holds, at most half an hour: processes of Slurm do the work.

    Raises:
        AssertionError: the condition never held; `what` names it.
    """
    for _ in range(_MAX_POLLS):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"never seen: {awaited}")


@dataclass
class Slurm:
    """A running Slurm whose nodes have two CPUs each."""

    home: Path
    nodes: tuple[str, ...]
    ports: list[int]
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _jobs: int = 0

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.home / "slurm.conf")}

    def run(self, *command: str) -> str:
        """Run a command of Slurm and return stdout; a failed command fails the test."""
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LAST_RESORT,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def topology_file(self) -> Path:
        return self.home / "topology.conf"

    def get_state(self, node: str) -> str:
        match = re.search(r"State=(\S+)", self.run("scontrol", "show", "node", node))
        assert match is not None
        return match[1]

    def get_reason(self, node: str) -> str:
        match = re.search(r"Reason=(.*) \[", self.run("scontrol", "show", "node", node))
        return match[1] if match else ""

    def submit(self, *options: str, node: str | None = None) -> "RealJob":
        """Submit a batch job that runs until the test ends it, and do not wait for its start."""
        self._jobs += 1
        job = RealJob(self, self.home / f"job-{self._jobs}")
        node_option = () if node is None else (f"--nodelist={node}",)
        marker = job.path
        script = f"until [ -e {marker}.end ]; do sleep 0.1; done; echo done >> {marker}.ended"
        command = ("sbatch", "--parsable", "--output=/dev/null", *node_option, *options)
        job.id = self.run(*command, f"--wrap={script}").strip()
        return job

    def has_job(self, job_id: str, *states: str) -> bool:
        """Return whether squeue lists the job in one of `states`."""
        output = self.run("squeue", "-h", "-a", "-t", "all", "-o", "%i %T")
        return any(
            line in output.splitlines() for line in (f"{job_id} {state}" for state in states)
        )

    def start(self, name: str, *command: str) -> None:
        log = (self.home / f"{name}.log").open("ab")
        with log:
            self._daemons[name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, cwd=self.home
            )

    def stop(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(LAST_RESORT)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def start_controller(self) -> None:
        self.start("slurmctld", "slurmctld", "-D")
        wait_until(lambda: self._controller_reports("UP"), "a controller that answers")

    def start_node(self, node: str) -> None:
        self.start(node, "slurmd", "-D", "-N", node)
        wait_until(
            lambda: self.get_state(node).startswith(("IDLE", "MIXED", "ALLOC")), f"{node} up"
        )

    def reset(self) -> None:
        """Cancel all jobs, and wait until every node is idle and undrained, as at the start."""
        self.run("scancel", "--quiet", f"--user={getpass.getuser()}")
        wait_until(lambda: not self.run("squeue", "-h", "-a"), "an empty queue")
        wait_until(self._are_nodes_idle, "idle nodes")

    def _are_nodes_idle(self) -> bool:
        for node in self.nodes:
            if any(word in self.get_state(node) for word in ("DRAIN", "FAIL", "DOWN")):
                # Slurm refuses it where the node has come back by itself meanwhile.
                with suppress(AssertionError):
                    self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        return all(self.get_state(node) == "IDLE" for node in self.nodes)

    def close(self) -> None:
        try:
            if "slurmctld" in self._daemons:
                self.reset()
        finally:
            for name in reversed(list(self._daemons)):
                self.stop(name)

    def _controller_reports(self, word: str) -> bool:
        command = ("scontrol", "ping")
        ping = subprocess.run(command, env=self.environment, capture_output=True, check=False)
        return word in ping.stdout.decode()


@dataclass
class RealJob:
    slurm: Slurm
    path: Path
    id: str = ""

    def is_running(self) -> bool:
        return self.slurm.has_job(self.id, "RUNNING")

    def end(self) -> None:
        """End the job by itself, and wait for its note, which a killed job never writes."""
        Path(f"{self.path}.end").touch()
        wait_until(self.has_ended, f"the end of job {self.id}")

    def has_ended(self) -> bool:
        return Path(f"{self.path}.ended").exists()


@contextmanager
def run_slurm(
    nodes: Sequence[str] = ("w0", "w1", "w2"), topology: str = "", settings: str = ""
) -> Iterator[Slurm]:
    """Run a Slurm with these nodes until the block ends.

    Args:
        topology: the content of a topology.conf of switches; without it Slurm has no topology.
        settings: more lines of slurm.conf.
    """
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as directory,
        ExitStack() as exit_stack,
    ):
        home = Path(directory)
        home.chmod(0o755)  # munge wants its socket to be reachable by all
        ports = [exit_stack.enter_context(reserve_port()) for _ in range(len(nodes) + 1)]
        slurm = Slurm(home, tuple(nodes), ports)
        _configure(slurm)
        with (home / "slurm.conf").open("a") as configuration:
            configuration.write(settings)
            if topology:
                configuration.write("TopologyPlugin=topology/tree\n")
            slurm.topology_file.write_text(topology)
        munge = [f"--{name}={home}/munge.{name.split('-')[0]}" for name in ("socket", "pid-file")]
        munge += [f"--key-file={home}/key/munge.key", f"--log-file={home}/munge.log"]
        try:
            slurm.start("munged", "munged", "--foreground", "--force", *munge,
                        f"--seed-file={home}/munge.seed")  # fmt: skip
            wait_until((home / "munge.socket").exists, "munge's socket")
            slurm.start_controller()
            for node in nodes:
                slurm.start(node, "slurmd", "-D", "-N", node)
            wait_until(lambda: all(slurm.get_state(node) == "IDLE" for node in nodes), "idle nodes")
            yield slurm
        finally:
            slurm.close()


def _configure(slurm: Slurm) -> None:
    home = slurm.home
    (home / "state").mkdir()
    (home / "key").mkdir(mode=0o700)
    (home / "key" / "munge.key").write_bytes(os.urandom(1024))
    (home / "key" / "munge.key").chmod(0o400)
    configuration = _CONFIGURATION.format(home=home, user=getpass.getuser(), ports=slurm.ports)
    for node, port in zip(slurm.nodes, slurm.ports[1:], strict=True):
        configuration += (
            f"NodeName={node} NodeHostName=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2\n"
        )
    (home / "slurm.conf").write_text(configuration)
