"""An emulator in a process of its own: started, asked about, and stopped by a shell's commands."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from processes.limits import LAST_RESORT
from support.servers.ports import reserve_port

from gpuform.providers.emulator.server import environment, serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell evaluates the variables"),
]


class Shell:
    """A shell whose variables stay from one command to the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {
            name: value for name, value in os.environ.items() if not name.startswith("GPUFORM_")
        }
        self.variables["PULUMI_CONFIG_PASSPHRASE"] = ""
        command = [sys.executable, "-P", "-m", "gpuform.stacks.cli"]
        self._gpuform = f'gpuform() {{ {shlex.join(command)} "$@"; }}'

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        after = self.folder / "variables"
        ran = subprocess.run(
            ["bash", "-c", f"{self._gpuform}\n{script}\ncode=$?; env -0 > {after}; exit $code"],
            env=self.variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=LAST_RESORT,
        )
        if after.exists():
            pairs = [line.partition("=") for line in after.read_text().split("\0") if line]
            self.variables = {name: value for name, _, value in pairs}
        return ran


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.run('test -z "$GPUFORM_CLOCK" || gpuform emulator stop')


def get_clock(shell: Shell) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(
        f"{shell.variables['GPUFORM_CLOCK']}/_emulator/clock", verify=False
    ).json()
    return answer


def test_a_started_emulator_serves_until_it_is_stopped(shell: Shell) -> None:
    started = shell.run('eval "$(gpuform emulator start)"')
    assert started.returncode == 0, started.stderr
    address = shell.variables["GPUFORM_CLOCK"]
    assert get_clock(shell)["emulator"] == shell.variables["GPUFORM_EMULATOR"]
    assert shell.variables["TOGETHER_BASE_URL"].startswith(address)
    assert shell.run("gpuform emulator status").stdout.startswith(
        f"Emulator {shell.variables['GPUFORM_EMULATOR']} serves at {address}"
    )

    stopped = shell.run('eval "$(gpuform emulator stop)"')

    assert stopped.returncode == 0, stopped.stderr
    assert not {"GPUFORM_CLOCK", "GPUFORM_EMULATOR", "TOGETHER_BASE_URL"} & shell.variables.keys()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/_emulator/clock", verify=False)
    assert shell.run("gpuform emulator status").returncode == 1


def test_an_emulator_of_the_same_data_is_the_same_one(shell: Shell) -> None:
    assert shell.run('eval "$(gpuform emulator start --store data/emulator.db)"').returncode == 0
    before = shell.variables["GPUFORM_EMULATOR"]
    assert shell.run('eval "$(gpuform emulator stop)"').returncode == 0
    assert shell.run('eval "$(gpuform emulator start --store data/emulator.db)"').returncode == 0
    assert shell.variables["GPUFORM_EMULATOR"] == before
    assert shell.run('eval "$(gpuform emulator stop)"').returncode == 0
    assert shell.run('eval "$(gpuform emulator start)"').returncode == 0
    assert shell.variables["GPUFORM_EMULATOR"] != before


def test_a_start_that_fails_fails_the_shell_and_sets_nothing(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = shell.run(f'eval "$(gpuform emulator start --port {port})"')
    assert ran.returncode != 0
    assert f"port {port} cannot be used" in ran.stderr
    assert "GPUFORM_CLOCK" not in shell.variables


def test_the_variables_of_a_port_are_those_of_the_emulator_that_listens(shell: Shell) -> None:
    with serve() as server:
        port = server.url.rpartition(":")[2]
        ran = shell.run(f'eval "$(gpuform emulator env --port {port})"')
        assert ran.returncode == 0, ran.stderr
        assert shell.variables["GPUFORM_EMULATOR"] == server.store.identity
        refused = shell.run("gpuform emulator stop")
        assert refused.returncode == 1, "it is not a process of its own"
        assert httpx.get(f"{server.url}/_emulator/health", verify=False).status_code == 200
    shell.variables.pop("GPUFORM_CLOCK")


def test_variables_are_not_printed_where_no_emulator_listens(shell: Shell) -> None:
    with reserve_port() as port:
        ran = shell.run(f'eval "$(gpuform emulator env --port {port})"')
    assert ran.returncode != 0
    assert f"no emulator answers at http://127.0.0.1:{port}" in ran.stderr
    assert "GPUFORM_CLOCK" not in shell.variables


def test_an_emulator_that_took_the_port_is_not_stopped(shell: Shell) -> None:
    with serve() as server:
        shell.variables.update(environment(server.url, "another"))
        ran = shell.run("gpuform emulator stop")
        assert ran.returncode == 1
        assert f"the emulator at {server.url} is {server.store.identity}" in ran.stderr
    for name in ("GPUFORM_CLOCK", "GPUFORM_EMULATOR"):
        del shell.variables[name]


def test_a_stack_of_a_stopped_emulator_is_refused_on_another_one(shell: Shell) -> None:
    made = shell.run(
        "gpuform new together-training --dir . --force && "
        'eval "$(gpuform emulator start)" && gpuform stack init dev && gpuform up --yes'
    )
    assert made.returncode == 0, made.stdout + made.stderr
    ours = shell.variables["GPUFORM_EMULATOR"]
    assert shell.run('eval "$(gpuform emulator stop)"').returncode == 0
    assert shell.run('eval "$(gpuform emulator start)"').returncode == 0
    ran = shell.run("gpuform refresh --yes")
    assert ran.returncode == 1
    assert (
        f"the stack lives on emulator {ours}, but this run would use another emulator"
    ) in ran.stderr
