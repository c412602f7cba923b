"""Run one stack of several in a process of its own, by messages over its pipes.

Each message is one line of JSON. It goes through a pipe and is written nowhere: a message may hold
secrets.
"""

import base64
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from google.protobuf import struct_pb2
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.values import PropertyMap, from_struct, to_struct
from gpuform.stacks.multi_stack import Member
from gpuform.stacks.operations.opening.interpreter import environment_of

Form = Literal["text", "json", "events"]
"""Text for people, one JSON object of a preview, or Pulumi's event log."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Task(_Message):
    """What a process is to do next, with which stack of the project in `folder`.

    `variables` are set for it. `options` are fields of RunOptions. `plan` is what it may do at
    most; `source` is how messages call that. With `foresees` it asks what other stacks will give
    out, with `asks` for passphrases. With `drift` it looks at what was changed outside, and nothing
    else. `form` is how it shows what happens.
    """

    kind: Literal["task"] = "task"
    folder: Path
    stack: str
    variables: dict[str, str] = Field(default_factory=dict)
    options: dict[str, Any]
    plan: Plan | None = None
    source: str = ""
    foresees: bool = False
    drift: bool = False
    asks: bool = False
    form: Form = "text"
    color: bool = False
    showing: dict[str, bool] = Field(default_factory=dict)
    lock_timeout: float = 0.0
    debug: bool = False


class Foretold(_Message):
    """What another stack will give out, or None where its state tells; or why nobody can tell.

    `seal` is that of the plan by which it is known.
    """

    kind: Literal["foretold"] = "foretold"
    number: int
    outputs: str | None = None
    seal: str = ""
    error: str = ""


class Passphrase(_Message):
    """What a person answered."""

    kind: Literal["passphrase"] = "passphrase"
    number: int
    text: str


class Cancel(_Message):
    """Ends the work in good order."""

    kind: Literal["cancel"] = "cancel"


class Leave(_Message):
    """Ends the process at once; what is under way stands in the state as pending."""

    kind: Literal["leave"] = "leave"


class Hello(_Message):
    """The first message of a process: the release of gpuform that it has."""

    kind: Literal["hello"] = "hello"
    version: str


class AsksOutputs(_Message):
    """A program reads another stack."""

    kind: Literal["asks-outputs"] = "asks-outputs"
    number: int
    project: str
    stack: str


class AsksPassphrase(_Message):
    """A stack's secrets need one."""

    kind: Literal["asks-passphrase"] = "asks-passphrase"
    number: int
    prompt: str


class Line(_Message):
    """Something to show."""

    kind: Literal["line"] = "line"
    to: Literal["out", "err"]
    text: str


class Ended(_Message):
    """The last message of a task: `code` is the exit code of a command that did the same.

    A preview has made `plan`, and knows the `outputs`; `text` says in a few words what was done.
    With `is_clean` no code of the project has run, and the process takes another task.
    """

    kind: Literal["ended"] = "ended"
    code: int
    reason: str = ""
    plan: Plan | None = None
    outputs: str | None = None
    text: str = ""
    is_clean: bool = False


FromProcess = Hello | AsksOutputs | AsksPassphrase | Line | Ended
ToProcess = Task | Foretold | Passphrase | Cancel | Leave

_FROM: Final = TypeAdapter[FromProcess](Annotated[FromProcess, Field(discriminator="kind")])
_TO: Final = TypeAdapter[ToProcess](Annotated[ToProcess, Field(discriminator="kind")])


def line_of(message: BaseModel) -> bytes:
    """The message as a line."""
    return message.model_dump_json(exclude_defaults=False).encode() + b"\n"


def from_process(line: bytes) -> FromProcess:
    """What a process says. Raises ValueError for what is no message."""
    return _FROM.validate_json(line)


def to_process(line: bytes) -> ToProcess:
    """What a process is told. Raises ValueError for what is no message."""
    return _TO.validate_json(line)


def packed(outputs: PropertyMap) -> str:
    """Outputs as text, secrets and unknown values as Pulumi's wire has them."""
    return base64.b64encode(to_struct(outputs).SerializeToString()).decode()


def unpacked(text: str) -> PropertyMap:
    """The outputs in a text."""
    return from_struct(struct_pb2.Struct.FromString(base64.b64decode(text)))


_MODULE: Final = "gpuform.stacks.cli.one_of_several"
_FAILED: Final = 1

Heard = Callable[["StackProcess", FromProcess], None]
"""Is told what a process says, in a thread of its own; the last of each task is Ended."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What runs a project's program, and the variables that it needs."""

    python: str
    variables: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)

    @classmethod
    def of(cls, project: Project) -> "Interpreter":
        """The project's own. Raises EngineError when it is missing or has no gpuform."""
        environment = environment_of(project)
        if environment is None or environment.is_running:
            return cls(sys.executable)
        return cls(str(environment.python()), environment.variables())


@dataclass(slots=True, eq=False)
class StackProcess:
    """A process that does one task after the other; `name` is the stack of the present one."""

    interpreter: Interpreter
    heard: Heard = lambda _process, _message: None
    name: str = ""
    _is_at_work: bool = False
    _process: "subprocess.Popen[bytes] | None" = None
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def do(self, name: str, task: Task, heard: Heard) -> None:
        """Gives it a task; starts it for the first. Raises OSError when it cannot be started."""
        self.name, self.heard, self._is_at_work = name, heard, True
        if self._process is None:
            self._process = self._started()
            threading.Thread(target=self._listen, name="stack process", daemon=True).start()
        self.send(task)

    def send(self, message: ToProcess) -> None:
        """Tells it something; one that has ended hears nothing."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with self._sending, contextlib.suppress(OSError, ValueError):
            process.stdin.write(line_of(message))
            process.stdin.flush()

    def close(self) -> None:
        """There are no more tasks: it ends once it has done what it does."""
        process = self._process
        if process is not None and process.stdin is not None:
            with self._sending, contextlib.suppress(OSError, ValueError):
                process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Until it has ended, but not longer."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def kill(self) -> None:
        """Ends it where it stands."""
        if self._process is not None:
            self._process.kill()

    def _started(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - gpuform itself
            [self.interpreter.python, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self.interpreter.variables},
            # A signal of the terminal is for the run of all, which tells its processes.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )

    def _listen(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            raise AssertionError("a process is heard once it is started")
        refusal = ""
        for line in process.stdout:
            try:
                said = from_process(line)
            except ValueError:
                refusal = "its process said what nobody understands"
                process.kill()
                break
            if isinstance(said, Hello):
                refusal = self._refusal(said)
                continue
            if isinstance(said, Ended):
                self._is_at_work = False
            self.heard(self, said)
        code = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._is_at_work:
            text = refusal or f"its process ended with {code}"
            self.heard(self, Ended(code=_FAILED, text=text))

    def _refusal(self, said: Hello) -> str:
        """Two releases may mean different things by one word."""
        own = version("gpuform")
        if said.version == own:
            return ""
        self.kill()
        text = f"{self.interpreter.python} has gpuform {said.version}, and this is {own}"
        return f"{text}: install the same there"


class Processes:
    """The processes that have done a task, and wait for another."""

    def __init__(self) -> None:
        self._idle: list[StackProcess] = []

    def take(self, interpreter: Interpreter) -> StackProcess:
        """One with this interpreter, which may have to be started."""
        for process in self._idle:
            if process.interpreter == interpreter:
                self._idle.remove(process)
                return process
        return StackProcess(interpreter)

    def give(self, process: StackProcess) -> None:
        """One that can do another task."""
        self._idle.append(process)

    def close(self) -> None:
        """There are no more tasks."""
        while self._idle:
            self._idle.pop().close()


def interpreters(members: Mapping[str, Member]) -> dict[str, Interpreter]:
    """What runs the program of each. Raises EngineError for the first that is missing."""
    found = {}
    for name, member in members.items():
        try:
            found[name] = Interpreter.of(member.project)
        except EngineError as error:
            raise EngineError(f"{name}: {error.message}", error.hint) from error
    return found
