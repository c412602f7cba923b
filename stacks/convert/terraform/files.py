"""Read Terraform's files of a folder: blocks of `.tf` files, values of `.tfvars`, and the state.

`topology` calls `read_terraform_files`. python-hcl2 parses the language.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.convert import TerraformNotRead
from gpuform.stacks.convert.terraform.expressions import UnresolvedExpression
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.machine import get_pip_requirement

STATE_FILE_NAME: Final = "terraform.tfstate"
_STATE_VERSION: Final = 4
"""The version of state files of OpenTofu and of Terraform 0.12 and later."""
_BLOCK_MARK: Final = "__is_block__"


@dataclass(frozen=True, slots=True)
class TerraformBlock:
    """One block of a file: type (`resource`), labels, and the body as python-hcl2 reads it.

    `lines` are all lines of the file. `module` is the name of the outermost module with the block,
    empty for the root module.
    """

    type: str
    labels: tuple[str, ...]
    body: Mapping[str, Any]
    position: SourcePosition
    lines: tuple[str, ...] = ()
    module: str = ""

    def find_argument_position(self, argument: str) -> SourcePosition:
        """Return the position of an argument, or the block's position if no line matches.

        The first line below the block's header counts, even of a later block.
        """
        # The parsed body has no line numbers, so the argument is searched in the text below the
        # block's header.
        first = self.position.line
        for number, line in enumerate(self.lines[first - 1 :], start=first):
            if re.match(rf'\s*{re.escape(argument)}(\s+"[^"]*")*\s*[={{]', line):
                return SourcePosition(self.position.file, number)
        return self.position


@dataclass(frozen=True, slots=True)
class ResourceInstance:
    """One object of a state, or the result of a data source.

    `key` is its key of `count` or `for_each`, None for an only instance. `sensitive` are the names
    of attributes that Terraform does not show.
    """

    type: str
    name: str
    key: str | int | None
    attributes: Mapping[str, Any]
    module: str = ""
    sensitive: frozenset[str] = frozenset()
    is_data_source: bool = False

    @property
    def address(self) -> str:
        """Return Terraform's address of the instance, such as `module.m.type.name["key"]`."""
        key = "" if self.key is None else f"[{json.dumps(self.key)}]"
        return f"{self.module + '.' if self.module else ''}{self.type}.{self.name}{key}"


@dataclass(slots=True)
class TerraformFiles:
    """The content of a folder: blocks, values from `.tfvars`, and the state.

    `instances` are the state's objects, `data_sources` its results of data sources.
    """

    blocks: list[TerraformBlock] = field(default_factory=list)
    variable_values: dict[str, Any] = field(default_factory=dict)
    instances: list[ResourceInstance] = field(default_factory=list)
    data_sources: list[ResourceInstance] = field(default_factory=list)

    def find_blocks(self, type_: str) -> list[TerraformBlock]:
        """Return the blocks of one type in the Terraform files, such as `resource`."""
        return [block for block in self.blocks if block.type == type_]

    def get_local(self, name: str) -> Any:
        """Return the raw expression of a local. Raises UnresolvedExpression if none is declared."""
        for block in self.find_blocks("locals"):
            if name in block.body:
                return block.body[name]
        raise UnresolvedExpression(f"local.{name}")


def read_terraform_files(folder: Path) -> TerraformFiles:
    """Return the content of Terraform's files in a folder.

    Subfolders and `.tf.json` files are not read; of the `.tfvars` only terraform.tfvars and
    `*.auto.tfvars` are.

    Raises:
        TerraformNotRead: files are missing or cannot be read; the message has the place.
    """
    files = TerraformFiles(read_blocks(folder))
    # Terraform's order: `*.auto.tfvars` override terraform.tfvars, and each other in alphabetical
    # order.
    value_paths = [folder / "terraform.tfvars", *sorted(folder.glob("*.auto.tfvars"))]
    for path in (value_path for value_path in value_paths if value_path.exists()):
        files.variable_values.update(_remove_marks(_parse(path, _read_text(path))))
    for instance in _read_instances(folder / STATE_FILE_NAME):
        (files.data_sources if instance.is_data_source else files.instances).append(instance)
    return files


def read_blocks(folder: Path) -> list[TerraformBlock]:
    """Return the blocks of all `.tf` files in a folder, without subfolders.

    Raises:
        TerraformNotRead: there are no files, or a file cannot be read; the message has the place.
    """
    # Terraform reads one folder without its subfolders as one module.
    paths = sorted(folder.glob("*.tf"))
    if not paths:
        raise TerraformNotRead(
            f"{folder} has no .tf files", "pass the folder of a Terraform module"
        )
    blocks: list[TerraformBlock] = []
    for path in paths:
        content = _read_text(path)
        lines = tuple(content.splitlines())
        blocks += [
            _locate_block(block, path, lines) for block in _iterate_blocks(_parse(path, content))
        ]
    return blocks


def _parse(path: Path, content: str) -> Mapping[str, Any]:
    """Return the content of a Terraform file as python-hcl2 parses it.

    Raises:
        TerraformNotRead: python-hcl2 is not installed, or the content is not valid Terraform.
    """
    try:
        import hcl2  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise TerraformNotRead(
            "reading Terraform's files needs python-hcl2",
            f"pip install '{get_pip_requirement('terraform')}'",
        ) from None
    from lark.exceptions import UnexpectedInput  # noqa: PLC0415 - as above

    # A heredoc becomes a quoted text, which the resolver reads as any other text.
    options = hcl2.SerializationOptions(with_comments=False, preserve_heredocs=False)
    try:
        parsed: Mapping[str, Any] = hcl2.loads(content, serialization_options=options)
    except UnexpectedInput as error:
        # lark reports -1 for an unexpected end of the file.
        line, column = max(error.line, 1), max(error.column, 1)
        raise TerraformNotRead(f"{path}:{line}:{column}: this is not valid Terraform") from None
    except Exception as error:  # noqa: BLE001 - the parser raises errors of many types
        raise TerraformNotRead(f"{path}: this is not valid Terraform: {error}") from None
    return parsed


_RawBlock = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""A block without position: type, labels and body."""


def _iterate_blocks(document: Mapping[str, Any]) -> Iterator[_RawBlock]:
    for type_, bodies in document.items():
        for body in bodies if isinstance(bodies, list) else ():
            labels: list[str] = []
            content = body
            # python-hcl2 nests labels as keys of objects with one member.
            while isinstance(content, Mapping) and _BLOCK_MARK not in content and len(content) == 1:
                (label, content) = next(iter(content.items()))
                labels.append(_unquote(label))
            if isinstance(content, Mapping):
                yield type_, tuple(labels), _remove_marks(content)


def _locate_block(raw_block: _RawBlock, path: Path, lines: tuple[str, ...]) -> TerraformBlock:
    """Return the block with the line of the header, or line 1 if no line matches."""
    type_, labels, body = raw_block
    # The parsed document has no line numbers: the header is searched in the text.
    labels_pattern = "".join(rf'\s+"?{re.escape(label)}"?' for label in labels)
    header_pattern = re.compile(rf"\s*{re.escape(type_)}{labels_pattern}\s*{{")
    line = next(
        (n for n, line_text in enumerate(lines, start=1) if header_pattern.match(line_text)), 1
    )
    return TerraformBlock(type_, labels, body, SourcePosition(str(path), line), lines)


def _remove_marks(value: Any) -> Any:
    """Return the value without the parser's own members, and with unquoted keys."""
    if isinstance(value, Mapping):
        members = ((key, item) for key, item in value.items() if key != _BLOCK_MARK)
        return {_unquote(key): _remove_marks(item) for key, item in members}
    if isinstance(value, list):
        return [_remove_marks(item) for item in value]
    return value


def _unquote(key: str) -> str:
    return key[1:-1] if key.startswith('"') and key.endswith('"') else key


def _read_text(path: Path) -> str:
    """Return the text of a file. Raises TerraformNotRead if the file is unreadable or not UTF-8."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TerraformNotRead(f"{path} cannot be read: {error}") from None


def _read_instances(path: Path) -> Iterator[ResourceInstance]:
    """Yield the managed objects and the results of data sources of a state file.

    Raises:
        TerraformNotRead: the file is missing, of another version or damaged.
    """
    if not path.exists():
        raise TerraformNotRead(
            f"{path} does not exist: Terraform's state has the ids of existing objects",
            f"run `terraform state pull > {path.name}` in that folder",
        )
    try:
        state = json.loads(_read_text(path))
        if (version := state.get("version")) != _STATE_VERSION:
            raise TerraformNotRead(
                f"{path} has version {version}; gpuform reads version {_STATE_VERSION}"
            )
        for resource in state.get("resources") or ():
            if resource.get("mode") not in ("managed", "data"):
                continue
            for instance in resource["instances"]:
                yield ResourceInstance(
                    resource["type"],
                    resource["name"],
                    instance.get("index_key"),
                    _require_attributes(instance.get("attributes") or {}),
                    resource.get("module", ""),
                    frozenset(_find_sensitive_names(instance)),
                    resource["mode"] == "data",
                )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TerraformNotRead(f"{path} is not a valid Terraform state: {error!r}") from None


def _require_attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an instance. Raises TypeError unless they are an object."""
    if not isinstance(value, Mapping):
        # The message has no value: the error is printed, and a state contains secrets.
        raise TypeError("the attributes of an instance are not an object")
    return value


def _find_sensitive_names(instance: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of attributes on sensitive paths; a path may end inside of an attribute."""
    for path in instance.get("sensitive_attributes") or ():
        for step in path:
            if step.get("type") == "get_attr":
                yield str(step["value"])
