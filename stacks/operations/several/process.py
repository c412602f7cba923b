"""A process that works on one stack, seen from the run of several."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.estate import Member
from gpuform.stacks.operations.opening.interpreter import environment_of
from gpuform.stacks.operations.several.messages import (
    Ended,
    FromProcess,
    Hello,
    Task,
    ToProcess,
    from_process,
    line_of,
)

_MODULE: Final = "gpuform.stacks.cli.one_of_several"
_FAILED: Final = 1

Heard = Callable[["StackProcess", FromProcess], None]
"""Is told what a process says, in a thread of its own; the last that it says is Ended."""


@dataclass(slots=True, eq=False)
class StackProcess:
    """One stack's process, with the interpreter of its project."""

    member: Member
    heard: Heard
    _process: "subprocess.Popen[bytes] | None" = None
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def start(self, task: Task, variables: Mapping[str, str]) -> None:
        """Starts it. `variables` are set for it beside those of this process.

        Raises EngineError when the project's interpreter is missing.
        """
        project = self.member.project
        environment = environment_of(project)
        python, environ = sys.executable, dict(os.environ)
        if environment is not None and not environment.is_running:
            python, environ = str(environment.python()), environment.variables()
        self._process = subprocess.Popen(  # noqa: S603 - gpuform itself
            [python, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=project.directory,
            env={**environ, **variables},
            # A signal of the terminal is for the run of all, which tells its processes.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.send(task)
        threading.Thread(target=self._listen, name=self.member.name, daemon=True).start()

    def send(self, message: ToProcess) -> None:
        """Tells it something; one that has ended hears nothing."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with self._sending, contextlib.suppress(OSError, ValueError):
            process.stdin.write(line_of(message))
            process.stdin.flush()

    def wait(self, seconds: float) -> None:
        """Until it has ended, but not longer."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def kill(self) -> None:
        """Ends it where it stands."""
        if self._process is not None:
            self._process.kill()

    def _listen(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            raise AssertionError("a process is heard once it is started")
        ended: Ended | None = None
        for line in process.stdout:
            try:
                said = from_process(line)
            except ValueError:
                ended = ended or Ended(
                    code=_FAILED, text="its process said what nobody understands"
                )
                process.kill()
                break
            if isinstance(said, Hello):
                ended = self._refusal(said)
            elif isinstance(said, Ended):
                ended = ended or said
            else:
                self.heard(self, said)
        code = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.heard(self, ended or Ended(code=_FAILED, text=f"its process ended with {code}"))

    def _refusal(self, said: Hello) -> Ended | None:
        """Two releases may mean different things by one word."""
        own = version("gpuform")
        if said.version == own:
            return None
        self.kill()
        where = self.member.project.path
        text = f"the virtualenv of {where} has gpuform {said.version}, and this is {own}"
        return Ended(code=_FAILED, text=f"{text}: install the same there")


def refuse_missing(members: "Mapping[str, Member]") -> None:
    """Raises EngineError for the first project whose interpreter is missing."""
    for member in members.values():
        environment = environment_of(member.project)
        if environment is not None and not environment.is_running:
            try:
                environment.python()
            except EngineError as error:
                raise EngineError(f"{member.name}: {error.message}", error.hint) from error
