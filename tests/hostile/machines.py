"""Run gpuform on machines of one stack: each has its own copy of the project and its own home."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.projects import Project, render_project_file, render_stack_file
from processes.commands import PASSPHRASE, SALT, Result

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
_PROGRAM = 'from gpuform.stacks import run\n\nrun("topology.yaml")\n'


_COMMANDS = ("squeue", "scontrol", "scancel", "sbatch")
_CLIENT = """\
#!/usr/bin/python3 -IS
import json, os.path, socket, sys

try:
    words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    body = json.dumps({"command": words}).encode()
    head = "POST /slurm/run HTTP/1.1\\r\\nHost: slurm\\r\\nConnection: close\\r\\nContent-Length: "
    answer = b""
    with socket.create_connection(("127.0.0.1", PORT)) as server:
        server.sendall(head.encode() + str(len(body)).encode() + b"\\r\\n\\r\\n" + body)
        while more := server.recv(65536):
            answer += more
    output = json.loads(answer.partition(b"\\r\\n\\r\\n")[2])
    stdout, stderr, code = str(output["stdout"]), str(output["stderr"]), int(output["code"])
except (OSError, ValueError, KeyError, TypeError):
    sys.exit(f"{words[0]}: error: Unable to contact slurm controller (connect failure)")
sys.stdout.write(stdout)
sys.stderr.write(stderr)
sys.exit(code)
"""
"""A Slurm command that sends its words to the fakes; an invalid answer is a failure."""


def write_slurm_commands(folder: Path, url: str) -> Path:
    """Write Slurm commands into `folder` that forward to `url`, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _COMMANDS:
        path = folder / name
        path.write_text(_CLIENT.replace("PORT", url.rpartition(":")[2]))
        path.chmod(0o755)
    return folder


class WarmCommandServer:
    """The warm process that runs all commands."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self, folder: Path, *arguments: str, learn: bool = False, environ: dict[str, str]
    ) -> Result:
        assert self._process.stdin
        assert self._process.stdout
        request: dict[str, Any] = {
            "arguments": arguments,
            "folder": str(folder),
            "environ": environ,
            "learn": learn,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        code = json.loads(self._process.stdout.readline())
        outputs = [(folder.parent / name).read_text() for name in ("stdout", "stderr")]
        return Result(code, *outputs)


@contextmanager
def start_command_server() -> Iterator[WarmCommandServer]:
    argv = [sys.executable, str(Path(__file__).with_name("warm.py")), PASSPHRASE, SALT]
    variables = {**os.environ, "PULUMI_DISABLE_CI_DETECTION": "true", "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
    ) as process:
        yield WarmCommandServer(process)
        assert process.stdin
        process.stdin.close()


@dataclass
class Machine:
    """One copy of the project, with a home of its own."""

    server: WarmCommandServer
    folder: Path
    environ: dict[str, str]

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def set_up(self, project: Project, form: str, encrypted_secret: str) -> None:
        """Write the project as a fresh clone, in a home without any settings."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.project.mkdir(parents=True)
        (self.project / "Pulumi.yaml").write_text(render_project_file(project))
        (self.project / "__main__.py").write_text(_PROGRAM)
        self.write_stack_file(project, form, encrypted_secret)

    def write_stack_file(self, project: Project, form: str, encrypted_secret: str) -> None:
        stack_yaml = render_stack_file(project, form, SALT, encrypted_secret)
        (self.project / "Pulumi.dev.yaml").write_text(stack_yaml)

    def write_topology(self, topology: str) -> None:
        (self.project / "topology.yaml").write_text(topology)

    def run(self, *arguments: str, learn: bool = False, **variables: str) -> Result:
        own_variables = {
            "HOME": str(self.folder / "home"),
            "PULUMI_HOME": str(self.folder / "home" / ".pulumi"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "KUBECONFIG": str(self.folder / "home" / "kubeconfig"),
            "PULUMI_DISABLE_CI_DETECTION": "true",
        }
        environ = {**own_variables, **self.environ, **variables}
        return self.server.run(self.project, *arguments, learn=learn, environ=environ)

    def send_signal(self, name: str) -> None:
        """Send a signal to the running command."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int((self.folder / "pid").read_text()), SIGNALS[name])
