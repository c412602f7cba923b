"""Run a real sshd on a loopback port, with its own keys and no configuration of this machine."""

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.servers.ports import reserve_port

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
MISSING_PROGRAMS = [
    name for name in ("sshd", "ssh", "ssh-keygen") if shutil.which(name, path=_PATH) is None
]


@dataclass(frozen=True)
class Sshd:
    """A running sshd: its port, and the files that a client needs."""

    port: int
    configuration: Path
    """An `ssh_config` as users have it in `~/.ssh/config`."""
    known_hosts: Path


@contextmanager
def run_sshd(environment: Mapping[str, str]) -> Iterator[Sshd]:
    """Run an sshd with access for the tests' user, by a key and with these variables."""
    with tempfile.TemporaryDirectory(prefix="sshd-") as directory, ExitStack() as exit_stack:
        home = Path(directory)
        for name in ("host", "mine"):
            key = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name))
            subprocess.run(key, check=True)
        port = exit_stack.enter_context(reserve_port())
        public = (home / "host.pub").read_text()
        (home / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
        (home / "ssh_config").write_text(
            f"Host slurm-login\n  HostName 127.0.0.1\n  User {getpass.getuser()}\n"
            f"  IdentityFile {home}/mine\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {home}/known_hosts\n  StrictHostKeyChecking yes\n"
        )
        variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
        (home / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {home}/host\nPidFile none\n"
            f"AuthorizedKeysFile {home}/mine.pub\nStrictModes no\nUsePAM no\n"
            f"PermitRootLogin prohibit-password\nPasswordAuthentication no\nSetEnv {variables}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        daemon = subprocess.Popen(
            (
                shutil.which("sshd", path=_PATH) or "sshd",
                "-D",
                "-e",
                "-f",
                str(home / "sshd_config"),
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert daemon.stderr is not None
            for line in daemon.stderr:  # it tells when it listens, or ends
                if "listening" in line:
                    break
            assert daemon.poll() is None, "sshd did not start"
            yield Sshd(port, home / "ssh_config", home / "known_hosts")
        finally:
            daemon.terminate()
            daemon.communicate()
