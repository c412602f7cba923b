"""Run Slurm's commands as processes, on this machine or over SSH.

`scheduler.create_command_runner` chooses the runner for the declared `slurm: {via: ...}`.
"""

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
class CommandOutput:
    """What a finished command has printed, and its exit code."""

    stdout: str
    stderr: str
    exit_code: int


class CommandRunner(Protocol):
    """A place where Slurm's commands can be run. Safe for many threads."""

    @property
    def label(self) -> str:
        """Return the runner's place for messages, like `ssh ada@slurm-login`."""

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        """Run `command` without a shell to the end, and return the output.

        Another exit code than 0 is no error.

        Args:
            command: program and arguments. A relative path starts at the user's home, or at the
                pod's own folder.
            is_change: the command changes something: it needs an administrator's rights.
            as_user: the change is one that any user may make for itself, as submitting a job.

        Raises:
            Unreachable: the command was certainly not run, or it changes nothing and was
                interrupted.
            UnknownOutcome: nobody knows whether a change was made.
            GpuformError: the runner cannot start the command, or this process may change nothing.
        """


_TIMEOUT_S = 60
_SUDO = ("sudo", "-n", "--")
# What would choose other jobs, other clusters or other words than the commands ask for.
_IGNORED_VARIABLES = ("SQUEUE_", "SCONTROL_", "SCANCEL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
_JOB_VARIABLES = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"),
}
_SSH_REMEDIES = (
    ("host key verification failed", "log in once by hand, and compare the host's key"),
    ("permission denied", "ssh must connect without a password: load your key with `ssh-add`"),
    ("could not resolve", "set `host` to a name that your SSH configuration or DNS knows"),
)


@dataclass(frozen=True)
class LocalCommandRunner:
    """Runs commands on this machine, which is a client of the Slurm."""

    sudo: bool = False
    label: str = "this machine"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        """Run `command` on this machine to the end, and return output and exit code.

        A change runs under sudo if so declared, but not `as_user`: then the command gets only the
        environment variables that a job needs.

        Raises:
            UnknownOutcome: a changing command did not end within 60 seconds.
            Unreachable: any other command did not end within 60 seconds.
            GpuformError: the program is missing, or this process may change nothing.
        """
        sudo = _SUDO if self.sudo and is_change and not as_user else ()
        environment = _build_environment()
        if as_user:
            # A job gets what its submission has: nobody's keys, and no defaults of this shell.
            environment = {
                name: value for name, value in environment.items() if name in _JOB_VARIABLES
            }
        return _run_process([*sudo, *command], self.label, environment, is_change=is_change)


@dataclass(frozen=True)
class SshCommandRunner:
    """Runs commands on a login node by the user's own `ssh`, with its configuration and keys."""

    inputs: SlurmInputs
    options: Sequence[str] = ()
    """Further options of ssh."""

    @property
    def label(self) -> str:
        """Return the place of the commands for messages, such as `ssh ada@slurm-login`."""
        user = f"{self.inputs.user}@" if self.inputs.user else ""
        return f"ssh {user}{self.inputs.host}"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        """Run `command` on the login node to the end, and return output and exit code.

        A change runs under sudo, unless `as_user` or declared otherwise.

        Raises:
            UnknownOutcome: ssh failed (exit code 255) or took over 60 seconds, and the command
                changes something.
            Unreachable: the same happened to a command that changes nothing.
            GpuformError: this machine has no ssh, or this process may change nothing.
        """
        is_administrator = is_change and not as_user and self.inputs.sudo is not False
        sudo = _SUDO if is_administrator else ()
        # sshd hands the words to a shell as one.
        remote = shlex.join([*sudo, *command])
        result = _run_process(
            [*self._build_ssh_command(), remote],
            self.label,
            _build_environment(),
            is_change=is_change,
        )
        # 255 is ssh's own code: it could not connect, or lost the connection while the command ran.
        if result.exit_code != 255:
            return result
        message = escape_invisible(" ".join(result.stderr.split()))[-300:] or "no message"
        hint = next((remedy for part, remedy in _SSH_REMEDIES if part in message.lower()), None)
        error_type = UnknownOutcome if is_change else Unreachable
        raise error_type(
            f"{self.label} failed: {message}", hint=hint or f"run `{self.label}` by hand"
        )

    def _build_ssh_command(self) -> list[str]:
        """Return the ssh command for the login node, which never asks for a password."""
        user = ("-l", self.inputs.user) if self.inputs.user else ()
        port = ("-p", str(self.inputs.port)) if self.inputs.port else ()
        batch_options = (
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=15",
            "-o",
            "ServerAliveInterval=15",
        )
        return ["ssh", "-T", *batch_options, *self.options, *user, *port, "--", self.inputs.host]


def _build_environment() -> dict[str, str]:
    """Return this process's environment without variables which change Slurm's commands."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_IGNORED_VARIABLES)
    }


def _run_process(
    command: Sequence[str], label: str, environment: Mapping[str, str], *, is_change: bool
) -> CommandOutput:
    """Run a process to its end, for 60 seconds at most, and return the output with its exit code.

    The process gets no input, and starts in the user's home. An interruption of gpuform does not
    reach it.

    Raises:
        UnknownOutcome: a changing command did not end in time.
        Unreachable: any other command did not end in time.
        GpuformError: the program cannot be started, or this process may change nothing.
    """
    if is_change:
        get_current_context().authorize_change()
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    try:
        process = subprocess.run(  # noqa: S603 - the command is ours, and no shell reads it
            command,
            # No input: ssh and sudo would wait for a password that nobody can type.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            # English messages: hints and errors are recognized by their text.
            env={**environment, "LC_ALL": "C"},
            cwd=home if os.path.isdir(home) else None,  # noqa: PTH112
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C ends the run after this command, not within it
        )
    except subprocess.TimeoutExpired as error:
        error_type = UnknownOutcome if is_change else Unreachable
        raise error_type(
            f"`{' '.join(command[:3])}` did not end within {_TIMEOUT_S} seconds ({label})",
            hint="check that slurmctld answers: `scontrol ping`",
        ) from error
    except OSError as error:
        raise GpuformError(
            f"{command[0]} cannot run on this machine: {error.strerror}",
            hint="install the command, or declare another way with `slurm: {via: ...}`",
        ) from error
    return CommandOutput(process.stdout, process.stderr, process.returncode)
