"""Commands that connect to clusters, and how gpuform runs them."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT

from gpuform.schemas.access import Access, Host, Port
from gpuform.schemas.errors import EngineError
from gpuform.stacks.access.cluster_access import (
    ClusterAccess,
    ConnectionRequest,
    build_command,
    execute_command,
    get_port_url,
    run_and_wait,
)
from gpuform.stacks.access.kubeconfig_document import ClusterLabel

LABEL = ClusterLabel("id", "urn", "/state")
WORKERS = (
    Host.from_address("w-0", "w-0.example", because="it is Booting"),
    Host.from_address("w-1", "w-1.example"),
)
KUBERNETES = ClusterAccess(
    "train", LABEL, Access(name="training", kubeconfig="x: y", hosts=WORKERS, prefers="kubectl")
)
LOGIN = Host(node="slurm-login", address="slurm-login", role="login")
SLURM = ClusterAccess(
    "train",
    LABEL,
    Access(name="training", kubeconfig="x", hosts=(LOGIN, *WORKERS), prefers="slurm"),
)
MACHINE = ClusterAccess(
    "bench",
    LABEL,
    Access(
        name="bench",
        hosts=(Host(node="bench", address="h", port=2222, user="root", role="machine"),),
        ports=(Port(number=8888, url="https://p:32001"),),
        no_kubeconfig="it is a host",
    ),
)
UNREACHABLE = ClusterAccess(
    "new", LABEL, Access(name="new", no_hosts="not yet", no_kubeconfig="not yet")
)
CONTEXTS = {"renamed": LABEL}


@pytest.mark.parametrize(
    ("cluster", "fields", "words"),
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
def test_build_command_uses_what_the_cluster_prefers(
    cluster: ClusterAccess, fields: Any, words: str
) -> None:
    assert build_command(cluster, ConnectionRequest(**fields), CONTEXTS) == words.split()


@pytest.mark.parametrize(
    ("cluster", "fields", "message", "hint"),
    [
        (KUBERNETES, {"node": "w-0"}, "log in to w-0 now", "w-0: it is Booting"),
        (KUBERNETES, {"node": "w-2"}, "has no node 'w-2'", "did you mean w-"),
        (KUBERNETES, {"node": "zzz"}, "has no node 'zzz'", "its nodes: w-0, w-1"),
        (KUBERNETES, {"via": "slurm"}, "no Slurm login node", "SLURM"),
        (KUBERNETES, {"via": "kubectl", "node": "w-1"}, "remove --via kubectl", ""),
        (MACHINE, {"via": "kubectl"}, "bench has no kubeconfig: it is a host", ""),
        (UNREACHABLE, {}, "cannot log in to new: not yet", ""),
        (UNREACHABLE, {"via": "kubectl"}, "new has no kubeconfig: not yet", ""),
    ],
)
def test_build_command_names_what_the_cluster_lacks(
    cluster: ClusterAccess, fields: Any, message: str, hint: str
) -> None:
    with pytest.raises(EngineError) as refused:
        build_command(cluster, ConnectionRequest(**fields), CONTEXTS)
    assert message in str(refused.value)
    assert hint in (refused.value.hint or "")


def test_build_command_ignores_contexts_of_other_clusters() -> None:
    with pytest.raises(EngineError, match="has not written a context of train") as refused:
        build_command(
            KUBERNETES, ConnectionRequest(), {"training": ClusterLabel("another", "urn", "/state")}
        )
    assert "`gpuform kubeconfig train`" in str(refused.value.hint)


def test_get_port_url_returns_mapped_ports_only() -> None:
    assert get_port_url(MACHINE, 8888) == "https://p:32001"
    with pytest.raises(EngineError, match="port 80 of bench is not accessible") as refused:
        get_port_url(MACHINE, 80)
    assert refused.value.hint == "mapped ports: 8888"


def test_execute_command_names_a_program_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineError, match="kubectl is not installed") as refused:
        execute_command(["kubectl", "get", "a b"])
    assert "kubectl get 'a b'" in str(refused.value.hint) or os.name == "nt"


PROGRAM = (
    "import sys\n"
    "from gpuform.stacks.access.cluster_access import {function}\n"
    "sys.exit({function}({words!r}))"
)


@pytest.mark.parametrize("function", ["execute_command", "run_and_wait"])
def test_the_exit_code_is_that_of_the_command(function: str) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit(37)"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(function=function, words=words)], check=False
    )
    assert done.returncode == 37


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_the_command_receives_signals_in_the_place_of_gpuform() -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(41))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    words = [sys.executable, "-c", code]
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(function="execute_command", words=words)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGTERM)
    assert started.wait(LAST_RESORT) == 41
    started.stdout.close()


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux shows ignored signals"
)
def test_the_command_does_not_inherit_ignored_signals() -> None:
    words = ["cat", "/proc/self/status"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(function="execute_command", words=words)],
        capture_output=True,
        check=True,
        text=True,
    )
    ignored = next(line for line in done.stdout.splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1))


def test_run_and_wait_restores_the_handler_of_ctrl_c() -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert run_and_wait([sys.executable, "-c", ""]) == 0
    assert signal.getsignal(signal.SIGINT) is handler
