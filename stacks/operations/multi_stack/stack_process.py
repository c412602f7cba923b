"""Run one stack of a multi-stack run in a process of its own, with messages over its pipes.

Each message is one line of JSON. Messages may hold secrets: they go through a pipe and are never
written to a file. The schedule starts these processes; the caller of `run_multi_stack` names their
main module.
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

from gpuform.providers.context import get_run_context
from gpuform.providers.values import PropertyMap, to_struct
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.value_json import from_struct
from gpuform.stacks.multi_stack import WorkspaceStack
from gpuform.stacks.operations.opening.interpreter import find_program_environment
from gpuform.stacks.operations.runs.options import ReportSubject

WAS_APPLIED: Final = "it was applied before"
"""The summary of a stack whose saved plan an earlier run has applied."""

Form = Literal["text", "json", "events"]
"""Text for people, one JSON object of a preview, or Pulumi's event log."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Task(_Message):
    """The next task of a process: an operation on a stack of the project in `folder`.

    Attributes:
        variables: environment variables that the process sets for the task.
        options: fields of RunOptions.
        plan: the JSON of the plan that limits the changes, as it stands in the file of the plan.
        source: the name of the plan in messages.
        uses_planned_outputs: the process asks for the planned outputs of other stacks.
        continues_plan: the plan may be continued where an earlier run of it has failed or was lost.
        can_ask_passphrase: the process may ask for passphrases.
        drift: only look for changes made outside of Pulumi.
        form: the format of the output.
        view_options: options of the views of the output.
        subject: what of the run is reported by notifications; empty for what the options say.
        traceparent: the trace context of the multi-stack run; empty if nothing is traced.
        rehearsal_jobs: how many processes rehearse the plan of a preview; 0 for no rehearsal.
        part_facts: the fields of the plan's part that name its schedule; empty for no part.
        stacks_digest: the digest of all stacks that are planned together, for the sealed plan.
    """

    kind: Literal["task"] = "task"
    folder: Path
    stack: str
    variables: dict[str, str] = Field(default_factory=dict)
    options: dict[str, Any]
    plan: str | None = None
    source: str = ""
    uses_planned_outputs: bool = False
    continues_plan: bool = False
    drift: bool = False
    can_ask_passphrase: bool = False
    form: Form = "text"
    color: bool = False
    view_options: dict[str, bool] = Field(default_factory=dict)
    lock_timeout: float = 0.0
    debug: bool = False
    subject: ReportSubject = ""
    traceparent: str = ""
    rehearsal_jobs: int = 0
    part_facts: dict[str, str] = Field(default_factory=dict)
    stacks_digest: str = ""


class OutputsResponse(_Message):
    """The planned outputs of another stack, in answer to an OutputsRequest.

    `outputs` is None where the stack's state has them. `error` says why they are unknown. `seal` is
    the seal of the plan that they come from.
    """

    kind: Literal["outputs-response"] = "outputs-response"
    number: int
    outputs: str | None = None
    seal: str = ""
    error: str = ""


class PassphraseResponse(_Message):
    """The passphrase that a person entered, in answer to a PassphraseRequest; empty without one."""

    kind: Literal["passphrase-response"] = "passphrase-response"
    number: int
    passphrase: str


class Cancel(_Message):
    """Cancel the task: finish what is in progress, and begin nothing else."""

    kind: Literal["cancel"] = "cancel"


class Terminate(_Message):
    """End the process at once; operations in progress stay in the state as pending."""

    kind: Literal["terminate"] = "terminate"


class Hello(_Message):
    """The first message of a process: its release of gpuform."""

    kind: Literal["hello"] = "hello"
    version: str


class OutputsRequest(_Message):
    """A question for the outputs of a stack that the program reads."""

    kind: Literal["outputs-request"] = "outputs-request"
    number: int
    project: str
    stack: str


class PassphraseRequest(_Message):
    """A question for the passphrase of a stack's secrets."""

    kind: Literal["passphrase-request"] = "passphrase-request"
    number: int
    prompt: str


class OutputLine(_Message):
    """A line to show on stdout or stderr."""

    kind: Literal["output-line"] = "output-line"
    stream: Literal["out", "err"]
    content: str


class TaskResult(_Message):
    """The last message of a task: `code` is the exit code of a command with the same result.

    A preview sends its `plan` and its planned `outputs`; `summary` is a short text for people. With
    `is_clean` the task ran no code of the project, and the process can take another task.
    `part_fields` are the other fields of the plan's part, sealed, if the task asked for them.
    """

    kind: Literal["task-result"] = "task-result"
    code: int
    reason: str = ""
    plan: Plan | None = None
    outputs: str | None = None
    part_fields: dict[str, Any] = Field(default_factory=dict)
    summary: str = ""
    is_clean: bool = False


ProcessMessage = Hello | OutputsRequest | PassphraseRequest | OutputLine | TaskResult
TaskMessage = Task | OutputsResponse | PassphraseResponse | Cancel | Terminate

_PROCESS_MESSAGES: Final = TypeAdapter[ProcessMessage](
    Annotated[ProcessMessage, Field(discriminator="kind")]
)
_TASK_MESSAGES: Final = TypeAdapter[TaskMessage](
    Annotated[TaskMessage, Field(discriminator="kind")]
)


def encode_message(message: BaseModel) -> bytes:
    """Return a message between a multi-stack run and its processes as one line of JSON."""
    return message.model_dump_json(exclude_defaults=False).encode() + b"\n"


def decode_task_message(line: bytes) -> TaskMessage:
    """Return the message to a process. Raises ValueError for a line that is not such a message."""
    return _TASK_MESSAGES.validate_json(line)


def pack_outputs(outputs: PropertyMap) -> str:
    """Return outputs as text, with secrets and unknown values in Pulumi's wire format."""
    return base64.b64encode(to_struct(outputs).SerializeToString()).decode()


def unpack_outputs(packed_outputs: str) -> PropertyMap:
    """Return the outputs packed by `pack_outputs`."""
    return from_struct(struct_pb2.Struct.FromString(base64.b64decode(packed_outputs)))


_FAILURE_CODE: Final = 1

MessageListener = Callable[["StackProcess", ProcessMessage], None]
"""Receives a process's messages in a thread of its own; a task's last message is Ended."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that runs a project's program, and the environment variables that it needs."""

    python: str
    variables: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)

    @classmethod
    def for_project(cls, project: Project) -> "Interpreter":
        """Return the project's interpreter: gpuform's own if the project names no other virtualenv.

        Raises:
            EngineError: the interpreter is missing or has no gpuform.
        """
        environment = find_program_environment(project)
        if environment is None or environment.is_current:
            return cls(sys.executable)
        return cls(str(environment.find_python()), environment.build_activated_variables())


@dataclass(slots=True, eq=False)
class StackProcess:
    """A process that runs one task after the other; `name` is the stack of the current task.

    `main_module` is the dotted name of the module that receives the tasks.
    """

    interpreter: Interpreter
    main_module: str
    listener: MessageListener = lambda _process, _message: None
    name: str = ""
    _has_task: bool = False
    _process: "subprocess.Popen[bytes] | None" = None
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def run_task(self, name: str, task: Task, listener: MessageListener) -> None:
        """Send the process a task, after starting the process for the first one.

        `listener` receives the messages of this task in a thread of its own.

        Raises:
            OSError: the process cannot be started.
        """
        self.name, self.listener, self._has_task = name, listener, True
        if self._process is None:
            self._process = self._start()
            threading.Thread(target=self._listen, name="stack process", daemon=True).start()
        self.send(task)

    def send(self, message: TaskMessage) -> None:
        """Send the process a message, or do nothing if it has ended."""
        process = self._process
        if process is None or process.stdin is None:
            return
        # Answers and cancellations come from different threads, and a line must not be torn.
        with self._sending, contextlib.suppress(OSError, ValueError):
            process.stdin.write(encode_message(message))
            process.stdin.flush()

    def close(self) -> None:
        """Send no more tasks; the process ends after the current one."""
        process = self._process
        if process is not None and process.stdin is not None:
            # The process reads the end of its input as the end of its work.
            with self._sending, contextlib.suppress(OSError, ValueError):
                process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended, at most `seconds`."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the process, or do nothing before the start."""
        if self._process is not None:
            self._process.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the stack's Python process in a new process group. Raises OSError."""
        return subprocess.Popen(  # noqa: S603 - gpuform itself
            # -P: a module in the working directory must not hide one of gpuform's.
            [self.interpreter.python, "-P", "-m", self.main_module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**get_run_context().environ, **self.interpreter.variables},
            # A signal of the terminal is for the multi-stack run, which cancels its processes.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )

    def _listen(self) -> None:
        """Pass the process's messages to the listener until the process ends.

        A process with an invalid message or another release of gpuform is killed. A task without a
        result gets a failed one.
        """
        process = self._process
        if process is None or process.stdout is None:
            raise AssertionError("a process can be reached only after its start")
        problem = ""
        for line in process.stdout:
            try:
                message = _PROCESS_MESSAGES.validate_json(line)
            except ValueError:
                problem = "its process sent an invalid message"
                process.kill()
                break
            if isinstance(message, Hello):
                problem = self._reject_other_version(message)
                continue
            if isinstance(message, TaskResult):
                self._has_task = False
            self.listener(self, message)
        code = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        # A process that was killed sends no result of its own.
        if self._has_task:
            summary = problem or f"its process exited with {code}"
            self.listener(self, TaskResult(code=_FAILURE_CODE, summary=summary))

    def _reject_other_version(self, hello: Hello) -> str:
        """Kill a process with another release of gpuform; return the error or an empty text.

        Two releases may give one message different meanings.
        """
        own = version("gpuform")
        if hello.version == own:
            return ""
        self.kill()
        message = (
            f"{self.interpreter.python} has gpuform {hello.version}, but this is gpuform {own}"
        )
        return f"{message}: install the same version there"


class ProcessPool:
    """The idle processes, which wait for another task; `main_module` receives the tasks in each."""

    def __init__(self, main_module: str) -> None:
        self._main_module = main_module
        self._idle: list[StackProcess] = []

    def acquire(self, interpreter: Interpreter) -> StackProcess:
        """Return an idle process with this interpreter, or a new process, not yet started."""
        for process in self._idle:
            if process.interpreter == interpreter:
                self._idle.remove(process)
                return process
        return StackProcess(interpreter, self._main_module)

    def release(self, process: StackProcess) -> None:
        """Put an idle process back, for the task of another stack."""
        self._idle.append(process)

    def close(self) -> None:
        """Close all idle processes, which then end."""
        while self._idle:
            self._idle.pop().close()


def find_interpreters(stacks: Mapping[str, WorkspaceStack]) -> dict[str, Interpreter]:
    """Return the interpreter of each stack's program.

    Raises:
        EngineError: an interpreter is missing; the error names the stack.
    """
    interpreters = {}
    for name, workspace_stack in stacks.items():
        try:
            interpreters[name] = Interpreter.for_project(workspace_stack.project)
        except EngineError as error:
            raise EngineError(f"{name}: {error.message}", error.hint) from error
    return interpreters
