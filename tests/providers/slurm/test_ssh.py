"""Test Slurm's commands through a real sshd and the system's ssh."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.schedulers import real_sshd
from support.schedulers.real_sshd import Sshd

from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.slurm.processes import SshCommandRunner
from gpuform.providers.slurm.scheduler import SlurmScheduler, run_and_parse
from gpuform.schemas.policies.drain import SlurmInputs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(real_sshd.MISSING_PROGRAMS), reason=f"no {', '.join(real_sshd.MISSING_PROGRAMS)}"
    ),
    pytest.mark.skipif(
        not os.access("/run", os.W_OK), reason="sshd needs /run/sshd, which only root can make"
    ),
]

_SUDO = """#!/bin/sh
[ "$1 $2" = "-n --" ] || exit 9
shift 2
echo "as root: $*"
"""
_SCONTROL = """#!/bin/sh
printf 'NodeName=w0 Arch=x86_64\\n   State=IDLE ThreadsPerCore=1\\n'
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    tools = tmp_path_factory.mktemp("tools")
    for name, script in (("sudo", _SUDO), ("scontrol", _SCONTROL), ("squeue", "#!/bin/sh\n")):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    with real_sshd.run_sshd({"PATH": f"{tools}:{os.environ['PATH']}"}) as daemon:
        yield daemon


def read_commands(sshd: Sshd, **inputs: object) -> SshCommandRunner:
    parsed = SlurmInputs.model_validate({"via": "ssh", "port": sshd.port, **inputs})
    return SshCommandRunner(parsed, options=("-F", str(sshd.configuration)))


def test_nodes_and_jobs_are_read_through_ssh(sshd: Sshd) -> None:
    (node,) = SlurmScheduler(read_commands(sshd)).list_nodes()
    assert node.name == "w0"
    assert node.jobs == ()


@settings(max_examples=8)
@example(["$HOME", "`id`", "; echo no", "'", '"', "*", "", "\x1e%i|%N", "-n", "a\nb", "ä"])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"))))
def test_every_argument_arrives_unchanged(sshd: Sshd, words: list[str]) -> None:
    output = read_commands(sshd).run(["printf", "%s\\036", *words])
    assert output.exit_code == 0
    assert output.stdout == "".join(f"{word}\x1e" for word in words or [""])


def test_only_changing_commands_run_under_sudo(sshd: Sshd) -> None:
    command = ["echo", "Reason=gpuform: a 'b'"]
    assert (
        read_commands(sshd).run(command, is_change=True).stdout == f"as root: {' '.join(command)}\n"
    )
    assert read_commands(sshd).run(command).stdout == "Reason=gpuform: a 'b'\n"
    own = read_commands(sshd).run(command, is_change=True, as_user=True)
    assert own.stdout == "Reason=gpuform: a 'b'\n"
    plain = read_commands(sshd, sudo=False).run(command, is_change=True)
    assert plain.stdout == "Reason=gpuform: a 'b'\n"


def test_the_exit_code_is_that_of_the_command(sshd: Sshd) -> None:
    output = read_commands(sshd).run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (output.stdout, output.stderr.strip(), output.exit_code) == ("out\n", "err", 3)


def test_a_missing_command_is_an_error(sshd: Sshd) -> None:
    with pytest.raises(GpuformError, match="not installed there"):
        run_and_parse(read_commands(sshd), "nodes", ("nosuch",), str)


@pytest.mark.parametrize(
    ("is_change", "kind"), [(False, Unreachable), (True, UnknownOutcome)], ids=["look", "change"]
)
def test_an_unknown_host_key_is_not_accepted(
    sshd: Sshd, tmp_path: Path, is_change: bool, kind: type[GpuformError]
) -> None:
    strangers = tmp_path / "ssh_config"
    strangers.write_text(
        sshd.configuration.read_text().replace(str(sshd.known_hosts), str(tmp_path / "none"))
    )
    ssh = SshCommandRunner(
        SlurmInputs(via="ssh", port=sshd.port, user="ada"), options=("-F", str(strangers))
    )
    with pytest.raises(kind, match="Host key verification failed") as caught:
        ssh.run(["true"], is_change=is_change)
    assert "ssh ada@slurm-login" in str(caught.value)
    assert "by hand" in str(caught.value)


def test_ssh_never_asks_for_a_password(sshd: Sshd) -> None:
    with pytest.raises(Unreachable, match="Permission denied") as caught:
        read_commands(sshd, user="nobody").run(["true"])
    assert "ssh-add" in str(caught.value)


def test_a_host_without_a_server_is_an_error(sshd: Sshd) -> None:
    with pytest.raises(Unreachable, match="refused"):
        read_commands(sshd, port=1).run(["true"])
