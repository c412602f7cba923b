"""Which command gets a person on a cluster, and that it is run as if it were typed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT

from gpuform.schemas.access import Access, Host, Port
from gpuform.stacks.access.connecting import Cluster, Wish, command_for, port_url, run, wait_for
from gpuform.stacks.access.kubeconfig_text import Mark
from gpuform.stacks.engine.errors import EngineError

MARK = Mark("id", "urn", "/state")
WORKERS = (
    Host.from_address("w-0", "w-0.example", because="it is Booting"),
    Host.from_address("w-1", "w-1.example"),
)
KUBERNETES = Cluster(
    "train", MARK, Access(name="training", kubeconfig="x: y", hosts=WORKERS, prefers="kubectl")
)
LOGIN = Host(node="slurm-login", address="slurm-login", role="login")
SLURM = Cluster(
    "train", MARK, Access(name="training", kubeconfig="x", hosts=(LOGIN, *WORKERS), prefers="slurm")
)
MACHINE = Cluster(
    "bench",
    MARK,
    Access(
        name="bench",
        hosts=(Host(node="bench", address="h", port=2222, user="root", role="machine"),),
        ports=(Port(number=8888, url="https://p:32001"),),
        no_kubeconfig="it is a host",
    ),
)
NOTHING = Cluster("new", MARK, Access(name="new", no_hosts="not yet", no_kubeconfig="not yet"))
CONTEXTS = {"renamed": MARK}


@pytest.mark.parametrize(
    ("cluster", "wish", "words"),
    [
        (KUBERNETES, {}, "kubectl --context renamed get nodes"),
        (KUBERNETES, {"command": ["top", "pods"]}, "kubectl --context renamed top pods"),
        (KUBERNETES, {"command": ["kubectl", "top"]}, "kubectl --context renamed top"),
        (KUBERNETES, {"node": "w-1"}, "ssh w-1.example"),
        (KUBERNETES, {"via": "ssh"}, "ssh w-1.example"),
        (KUBERNETES, {"node": "w-1", "command": ["-x"]}, "ssh w-1.example -- -x"),
        (SLURM, {"user": "ada"}, "ssh ada@slurm-login"),
        (SLURM, {"command": ["sinfo"]}, "ssh slurm-login -- sinfo"),
        (SLURM, {"via": "kubectl"}, "kubectl --context renamed get nodes"),
        (MACHINE, {}, "ssh -p 2222 root@h"),
        (MACHINE, {"user": "ada"}, "ssh -p 2222 ada@h"),
    ],
)
def test_the_command(cluster: Cluster, wish: Any, words: str) -> None:
    assert command_for(cluster, Wish(**wish), CONTEXTS) == words.split()


@pytest.mark.parametrize(
    ("cluster", "wish", "message", "hint"),
    [
        (KUBERNETES, {"node": "w-0"}, "log in to w-0 now", "w-0: it is Booting"),
        (KUBERNETES, {"node": "w-2"}, "has no node 'w-2'", "did you mean w-"),
        (KUBERNETES, {"node": "zzz"}, "has no node 'zzz'", "its nodes: w-0, w-1"),
        (KUBERNETES, {"via": "slurm"}, "no Slurm login node", "SLURM"),
        (KUBERNETES, {"via": "kubectl", "node": "w-1"}, "leave out --via kubectl", ""),
        (MACHINE, {"via": "kubectl"}, "bench has no kubeconfig: it is a host", ""),
        (NOTHING, {}, "nobody can log in to new: not yet", ""),
        (NOTHING, {"via": "kubectl"}, "new has no kubeconfig: not yet", ""),
    ],
)
def test_what_is_missing_is_told(cluster: Cluster, wish: Any, message: str, hint: str) -> None:
    with pytest.raises(EngineError) as refused:
        command_for(cluster, Wish(**wish), CONTEXTS)
    assert message in str(refused.value)
    assert hint in (refused.value.hint or "")


def test_a_context_of_another_cluster_is_not_used() -> None:
    with pytest.raises(EngineError, match="has no context of train that gpuform wrote") as refused:
        command_for(KUBERNETES, Wish(), {"training": Mark("another", "urn", "/state")})
    assert "`gpuform kubeconfig train`" in str(refused.value.hint)


def test_ports() -> None:
    assert port_url(MACHINE, 8888) == "https://p:32001"
    with pytest.raises(EngineError, match="port 80 of bench is not reached") as refused:
        port_url(MACHINE, 80)
    assert refused.value.hint == "mapped are: 8888"


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineError, match="kubectl is not installed") as refused:
        run(["kubectl", "get", "a b"])
    assert "kubectl get 'a b'" in str(refused.value.hint) or os.name == "nt"


RUN = "from gpuform.stacks.access.connecting import {how}; import sys; sys.exit({how}({words!r}))"


@pytest.mark.parametrize("how", ["run", "wait_for"])
def test_the_exit_code_is_the_commands(how: str) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit(37)"]
    done = subprocess.run([sys.executable, "-c", RUN.format(how=how, words=words)], check=False)
    assert done.returncode == 37


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_signals_and_their_defaults_are_the_commands() -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(41))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    words = [sys.executable, "-c", code]
    started = subprocess.Popen(
        [sys.executable, "-c", RUN.format(how="run", words=words)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGTERM)
    assert started.wait(LAST_RESORT) == 41
    started.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what is ignored")
def test_a_broken_pipe_ends_the_command_as_always() -> None:
    words = ["cat", "/proc/self/status"]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(how="run", words=words)],
        capture_output=True,
        check=True,
        text=True,
    )
    ignored = next(line for line in done.stdout.splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1))


def test_ctrl_c_beside_a_command_is_left_to_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert wait_for([sys.executable, "-c", ""]) == 0
    assert signal.getsignal(signal.SIGINT) is before
