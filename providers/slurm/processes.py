"""Run Slurm's commands on this machine or over SSH."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.slurm import SlurmInputs


@dataclass(frozen=True)
class Output:
    """What a command that was run has left."""

    stdout: str
    stderr: str
    code: int


class Commands(Protocol):
    """A place where Slurm's commands can be run. Safe for many threads."""

    @property
    def place(self) -> str:
        """For messages, such as `ssh ada@slurm-login`."""

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> Output:
        """Runs `command` there as it is, without a shell's interpretation, and waits for its end.

        `is_change`: it needs an administrator's rights, unless it is one that any user may make for
        itself, `as_user`. A relative path is one of the user's home, or of the pod's own folder.
        Raises Unreachable when the command
        certainly was not run, and UnknownOutcome when nobody knows whether it was.
        """


_SECONDS = 60
_SUDO = ("sudo", "-n", "--")
# What would choose other jobs, other clusters or other words than the commands ask for.
_ALTERS = ("SQUEUE_", "SCONTROL_", "SCANCEL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
_GIVEN_TO_JOBS = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"),
}
_SSH_REMEDIES = (
    ("host key verification failed", "log in once by hand, and compare its key"),
    ("permission denied", "ssh must get in without a password: load your key with `ssh-add`"),
    ("could not resolve", "give `host` a name that your SSH configuration or DNS knows"),
)


@dataclass(frozen=True)
class LocalCommands:
    """The Slurm of which this machine is a client."""

    sudo: bool = False
    place: str = "this machine"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> Output:
        sudo = _SUDO if self.sudo and is_change and not as_user else ()
        kept = _environment()
        if as_user:
            # A job gets what its submission has: nobody's keys, and no defaults of this shell.
            kept = {name: value for name, value in kept.items() if name in _GIVEN_TO_JOBS}
        return _run([*sudo, *command], self.place, kept, is_change=is_change)


@dataclass(frozen=True)
class SshCommands:
    """A login node. What `ssh` knows holds: its configuration, keys, agent and known hosts."""

    inputs: SlurmInputs
    options: Sequence[str] = ()
    """More options of ssh."""

    @property
    def place(self) -> str:
        user = f"{self.inputs.user}@" if self.inputs.user else ""
        return f"ssh {user}{self.inputs.host}"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> Output:
        is_administrator = is_change and not as_user and self.inputs.sudo is not False
        sudo = _SUDO if is_administrator else ()
        # sshd hands the words to a shell as one.
        remote = shlex.join([*sudo, *command])
        output = _run([*self._ssh(), remote], self.place, _environment(), is_change=is_change)
        if output.code != 255:
            return output
        told = escape_invisible(" ".join(output.stderr.split()))[-300:] or "it said nothing"
        hint = next((each for part, each in _SSH_REMEDIES if part in told.lower()), None)
        kind = UnknownOutcome if is_change else Unreachable
        raise kind(f"{self.place} failed: {told}", hint=hint or f"try `{self.place}` by hand")

    def _ssh(self) -> list[str]:
        user = ("-l", self.inputs.user) if self.inputs.user else ()
        port = ("-p", str(self.inputs.port)) if self.inputs.port else ()
        quiet = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15")
        return ["ssh", "-T", *quiet, *self.options, *user, *port, "--", self.inputs.host]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_ALTERS)}


def _run(
    command: Sequence[str], place: str, environment: Mapping[str, str], *, is_change: bool
) -> Output:
    if is_change:
        get_current_context().authorize_change()
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    try:
        done = subprocess.run(  # noqa: S603 - the command is ours, and no shell reads it
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={**environment, "LC_ALL": "C"},
            cwd=home if os.path.isdir(home) else None,  # noqa: PTH112
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C ends the run after this command, not within it
        )
    except subprocess.TimeoutExpired as error:
        kind = UnknownOutcome if is_change else Unreachable
        raise kind(
            f"`{' '.join(command[:3])}` did not end within {_SECONDS} seconds ({place})",
            hint="see whether slurmctld answers: `scontrol ping`",
        ) from error
    except OSError as error:
        raise GpuformError(
            f"{command[0]} cannot be run on this machine: {error.strerror}",
            hint="install it, or choose another way with `slurm: {via: ...}`",
        ) from error
    return Output(done.stdout, done.stderr, done.returncode)
