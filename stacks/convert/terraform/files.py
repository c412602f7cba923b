"""Terraform's files of a folder: blocks of `.tf` with their lines, `.tfvars`, and the state."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.convert.registered_options import TerraformNotRead
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.machine import get_pip_requirement

STATE: Final = "terraform.tfstate"
_VERSION: Final = 4
"""Of state files: Terraform 0.12 and later, OpenTofu."""
_BLOCK: Final = "__is_block__"


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its type (`resource`), its labels, and what it says, as python-hcl2 has it."""

    type: str
    labels: tuple[str, ...]
    body: Mapping[str, Any]
    place: SourcePosition
    lines: tuple[str, ...] = ()

    def place_of(self, argument: str) -> SourcePosition:
        """The line of an argument, or that of the block."""
        for number, line in enumerate(self.lines[self.place.line - 1 :], start=self.place.line):
            if re.match(rf'\s*{re.escape(argument)}(\s+"[^"]*")*\s*[={{]', line):
                return SourcePosition(self.place.file, number)
        return self.place


@dataclass(frozen=True, slots=True)
class Instance:
    """One object of a state; `key` is that of `count` or `for_each`, None for the only one.

    `sensitive` are the names of attributes that Terraform keeps out of what it shows.
    """

    type: str
    name: str
    key: str | int | None
    attributes: Mapping[str, Any]
    module: str = ""
    sensitive: frozenset[str] = frozenset()

    @property
    def address(self) -> str:
        key = "" if self.key is None else f"[{json.dumps(self.key)}]"
        return f"{self.module + '.' if self.module else ''}{self.type}.{self.name}{key}"


@dataclass(slots=True)
class TerraformFiles:
    """What a folder says. `values` are those that its `.tfvars` give to variables."""

    blocks: list[Block] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)

    def of(self, type_: str) -> list[Block]:
        return [block for block in self.blocks if block.type == type_]


def read_terraform(folder: Path) -> TerraformFiles:
    """Raises EngineError for files that are missing or cannot be read, with the place."""
    paths = sorted(folder.glob("*.tf"))
    if not paths:
        raise TerraformNotRead(
            f"{folder} has no .tf files", "name the folder of a Terraform module"
        )
    found = TerraformFiles()
    for path in paths:
        text = _text(path)
        lines = tuple(text.splitlines())
        found.blocks += [_placed(block, path, lines) for block in _blocks(_parsed(path, text))]
    given = [folder / "terraform.tfvars", *sorted(folder.glob("*.auto.tfvars"))]
    for path in (each for each in given if each.exists()):
        found.values.update(_without_marks(_parsed(path, _text(path))))
    found.instances = list(_instances(folder / STATE))
    return found


def _parsed(path: Path, text: str) -> Mapping[str, Any]:
    try:
        import hcl2  # noqa: PLC0415 - an extra that only this needs
    except ImportError:
        raise TerraformNotRead(
            "reading Terraform's files needs python-hcl2",
            f"pip install '{get_pip_requirement('terraform')}'",
        ) from None
    from lark.exceptions import UnexpectedInput  # noqa: PLC0415 - as above

    options = hcl2.SerializationOptions(with_comments=False, preserve_heredocs=False)
    try:
        parsed: Mapping[str, Any] = hcl2.loads(text, serialization_options=options)
    except UnexpectedInput as error:
        line, column = max(error.line, 1), max(error.column, 1)
        raise TerraformNotRead(
            f"{path}:{line}:{column}: this is not Terraform's language"
        ) from None
    except Exception as error:  # noqa: BLE001 - whatever the parser makes of it
        raise TerraformNotRead(f"{path}: this is not Terraform's language: {error}") from None
    return parsed


_Found = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""Type, labels and body."""


def _blocks(document: Mapping[str, Any]) -> Iterator[_Found]:
    for type_, bodies in document.items():
        for body in bodies if isinstance(bodies, list) else ():
            labels: list[str] = []
            inner = body
            while isinstance(inner, Mapping) and _BLOCK not in inner and len(inner) == 1:
                (label, inner) = next(iter(inner.items()))
                labels.append(_unquoted(label))
            if isinstance(inner, Mapping):
                yield type_, tuple(labels), _without_marks(inner)


def _placed(found: _Found, path: Path, lines: tuple[str, ...]) -> Block:
    type_, labels, body = found
    words = "".join(rf'\s+"?{re.escape(label)}"?' for label in labels)
    head = re.compile(rf"\s*{re.escape(type_)}{words}\s*{{")
    line = next((n for n, text in enumerate(lines, start=1) if head.match(text)), 1)
    return Block(type_, labels, body, SourcePosition(str(path), line), lines)


def _without_marks(value: Any) -> Any:
    """Without the parser's own entries, keys as they are meant."""
    if isinstance(value, Mapping):
        kept = ((key, item) for key, item in value.items() if key != _BLOCK)
        return {_unquoted(key): _without_marks(item) for key, item in kept}
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    return value


def _unquoted(key: str) -> str:
    return key[1:-1] if key.startswith('"') and key.endswith('"') else key


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TerraformNotRead(f"{path} cannot be read: {error}") from None


def _instances(path: Path) -> Iterator[Instance]:
    if not path.exists():
        raise TerraformNotRead(
            f"{path} does not exist: the ids of what exists are in Terraform's state",
            f"`terraform state pull > {path.name}` in that folder writes it",
        )
    try:
        state = json.loads(_text(path))
        if state.get("version") != _VERSION:
            found = state.get("version")
            raise TerraformNotRead(f"{path} has version {found}: {_VERSION} is known here")
        for resource in state.get("resources") or ():
            if resource.get("mode") == "managed":
                for instance in resource["instances"]:
                    yield Instance(
                        resource["type"],
                        resource["name"],
                        instance.get("index_key"),
                        instance.get("attributes") or {},
                        resource.get("module", ""),
                        frozenset(_sensitive(instance)),
                    )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TerraformNotRead(f"{path} is no state of Terraform: {error!r}") from None


def _sensitive(instance: Mapping[str, Any]) -> Iterator[str]:
    """Paths lead to parts of attributes; every name on the way counts."""
    for path in instance.get("sensitive_attributes") or ():
        for step in path:
            if step.get("type") == "get_attr":
                yield str(step["value"])
