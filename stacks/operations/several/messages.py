"""What is said between a run of several stacks and the process that works on one of them.

Each message is one line of JSON. It goes through a pipe and is written nowhere: a message may hold
secrets.
"""

import base64
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from google.protobuf import struct_pb2
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.values import PropertyMap, from_struct, to_struct

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
