"""Machines that run gpuform on one stack: each has its own copy of the project and its own home."""

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

from hostile.projects import Project, project_file, stack_file
from processes.commands import PASSPHRASE, SALT, Result

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
_PROGRAM = 'from gpuform.stacks import run\n\nrun("topology.yaml")\n'


class Warm:
    """The warm process that runs all commands."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self, folder: Path, *arguments: str, learn: bool = False, environ: dict[str, str]
    ) -> Result:
        assert self._process.stdin
        assert self._process.stdout
        asked: dict[str, Any] = {
            "arguments": arguments,
            "folder": str(folder),
            "environ": environ,
            "learn": learn,
        }
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        code = json.loads(self._process.stdout.readline())
        told = [(folder.parent / name).read_text() for name in ("stdout", "stderr")]
        return Result(code, *told)


@contextmanager
def warm_process() -> Iterator[Warm]:
    argv = [sys.executable, str(Path(__file__).with_name("warm.py")), PASSPHRASE, SALT]
    variables = {**os.environ, "PULUMI_DISABLE_CI_DETECTION": "true", "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
    ) as process:
        yield Warm(process)
        assert process.stdin
        process.stdin.close()


@dataclass
class Machine:
    """One copy of the project, with a home of its own."""

    warm: Warm
    place: Path
    environ: dict[str, str]

    @property
    def project(self) -> Path:
        return self.place / "project"

    def set_up(self, project: Project, form: str, sealed: str) -> None:
        """A fresh clone of the repository, and a person who has chosen nothing yet."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.project.mkdir(parents=True)
        (self.project / "Pulumi.yaml").write_text(project_file(project))
        (self.project / "__main__.py").write_text(_PROGRAM)
        self.configure(project, form, sealed)

    def configure(self, project: Project, form: str, sealed: str) -> None:
        text = stack_file(project, form, SALT, sealed)
        (self.project / "Pulumi.dev.yaml").write_text(text)

    def declare(self, topology: str) -> None:
        (self.project / "topology.yaml").write_text(topology)

    def run(self, *arguments: str, learn: bool = False, **more: str) -> Result:
        own = {
            "HOME": str(self.place / "home"),
            "PULUMI_HOME": str(self.place / "home" / ".pulumi"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "KUBECONFIG": str(self.place / "home" / "kubeconfig"),
            "PULUMI_DISABLE_CI_DETECTION": "true",
        }
        environ = {**own, **self.environ, **more}
        return self.warm.run(self.project, *arguments, learn=learn, environ=environ)

    def signal(self, name: str) -> None:
        """Sends it to the command that runs here."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int((self.place / "pid").read_text()), SIGNALS[name])
