"""A Pulumi project: what Pulumi.yaml says."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import yaml_text
from gpuform.stacks.engine.values import Json

_FILE_NAMES = ("Pulumi.yaml", "Pulumi.yml")
_TOPOLOGIES = ("topology.yaml", "topology.yml")
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""What a project can be called."""

_TYPES = ("string", "boolean", "integer", "number", "array", "object")
_USE_THE_CLI = (
    "Use the Pulumi CLI for this project (`pulumi up`): gpuform runs Python programs only. "
    "What works from the state alone takes it, such as `gpuform status`, `refresh` and `destroy`."
)


class ProjectError(EngineError):
    """A Pulumi.yaml or Pulumi.<stack>.yaml that cannot be used."""

    help_page = "reference/configuration"


class OtherRuntime(ProjectError):
    """A project whose program is of another language."""


class NoProject(ProjectError):
    """There is no Pulumi.yaml in a folder or above it."""

    help_page = "start/first-stack"


@dataclass(frozen=True, slots=True)
class ConfigDefault:
    """What Pulumi.yaml says of one configuration key.

    `value` is used by stacks that do not set the key; None means that they have to. Scalars
    are texts, as in the file. `type` is one of Pulumi's names, empty when any value will do.
    """

    value: Json
    type: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Project:
    """Pulumi.yaml. `path` is the file, absolute, links in it unresolved (see `workspace`).

    `main` is the program's folder or file, `virtualenv` the environment that runs it; both are
    absolute, and None means the project's folder and the environment of gpuform itself.
    """

    name: str
    path: Path
    main: Path | None = None
    virtualenv: Path | None = None
    description: str = ""
    config: Mapping[str, ConfigDefault] = field(default_factory=dict)
    backend_url: str = ""
    stack_config_dir: str = ""
    required_version: str = ""
    always_refreshes: bool = False
    """`options: {refresh: always}`: every preview, update and destroy reads the platforms first."""

    @property
    def directory(self) -> Path:
        return self.path.parent

    @property
    def program(self) -> Path:
        """What is run: a folder with a `__main__.py`, or a file."""
        return self.main or self.directory

    def settings_path(self, stack: str) -> Path:
        """Where the stack's settings are, whether the file exists or not."""
        return self.directory / self.stack_config_dir / f"Pulumi.{stack}{self.path.suffix}"

    def qualified_key(self, key: str) -> str:
        """The configuration key with its namespace: `size` of project demo is `demo:size`."""
        parts = key.split(":")
        if len(parts) == 3 and parts[1] == "config":  # the spelling of Pulumi's first years
            del parts[1]
        if not all(parts) or len(parts) > 2:
            raise ProjectError(
                f"{key!r} is not a configuration key",
                hint="Write `name` for one of this project, or `namespace:name`.",
            )
        return ":".join(parts) if len(parts) == 2 else f"{self.name}:{key}"


def topology_in(folder: Path) -> Path | None:
    """The topology file of a folder, which needs no program beside it; None without one."""
    files = (folder / name for name in _TOPOLOGIES)
    return next((file for file in files if file.is_file()), None)


def find_project(directory: Path, *, any_runtime: bool = False) -> Project:
    """The project of a folder or of the nearest one above it; NoProject when there is none.

    Only who runs no program may take one of any runtime.
    """
    start = Path(os.path.abspath(directory))  # noqa: PTH100 - Path.resolve would follow links
    for folder in (start, *start.parents):
        for name in _FILE_NAMES:
            if (folder / name).is_file():
                return load_project(folder / name, any_runtime=any_runtime)
    raise NoProject(
        f"no Pulumi.yaml in {start} or a folder above it",
        hint="Go to the project's folder, or name it with --cwd.",
    )


def load_project(path: Path, *, any_runtime: bool = False) -> Project:
    """Read a Pulumi.yaml; problems are named as file:line:column."""
    where = str(path)
    root = yaml_text.parse(read_text(path), where)
    if root is None:
        raise ProjectError(f"{where}:1:1: the file is empty", hint="Give it `name` and `runtime`.")
    found = yaml_text.entries(root, where)
    for key in ("name", "runtime"):
        if key not in found:
            raise yaml_text.locate_error(where, root, f"{key} is missing", hint=_WHAT_IS_NEEDED)
    directory = path.parent
    virtualenv = _virtualenv(found["runtime"][1], where, any_runtime=any_runtime)
    main = _text(found, "main", where)
    backend = yaml_text.entries(_mapping(found, "backend", where), where)
    return Project(
        name=_name(found["name"][1], where),
        path=path,
        main=directory / main if main else None,
        virtualenv=directory / Path(virtualenv).expanduser() if virtualenv else None,
        description=_text(found, "description", where),
        config=_defaults(_mapping(found, "config", where), where),
        backend_url=_text(backend, "url", where),
        stack_config_dir=_text(found, "stackConfigDir", where),
        always_refreshes=_always_refreshes(found, where),
        required_version=_text(found, "requiredPulumiVersion", where),
    )


def _always_refreshes(found: "_Found", where: str) -> bool:
    """Return whether `options.refresh` is `always`, the one value that Pulumi has for it."""
    node = _mapping(found, "options", where)
    refresh = _text(yaml_text.entries(node, where), "refresh", where)
    if refresh not in ("", "always"):
        raise yaml_text.locate_error(where, node, "options.refresh can only be `always`")
    return bool(refresh)


_WHAT_IS_NEEDED = "A Pulumi.yaml has at least `name: my-project` and `runtime: python`."


def read_text(path: Path) -> str:
    """The text of a project's file; ProjectError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProjectError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProjectError(f"{path} is not UTF-8 text (byte {error.start})") from error


_Found = Mapping[str, tuple[ScalarNode, Node]]


def _text(found: _Found, key: str, where: str) -> str:
    if key not in found:
        return ""
    node = found[key][1]
    if not isinstance(node, ScalarNode):
        raise yaml_text.locate_error(where, node, f"{key} must be text")
    return "" if node.tag.endswith(":null") else str(node.value)


def _mapping(found: _Found, key: str, where: str) -> MappingNode:
    node = found[key][1] if key in found else None
    if isinstance(node, MappingNode):
        return node
    if node is not None and not (isinstance(node, ScalarNode) and node.tag.endswith(":null")):
        raise yaml_text.locate_error(where, node, f"{key} must be a mapping")
    return MappingNode("tag:yaml.org,2002:map", [])


def _name(node: Node, where: str) -> str:
    if not isinstance(node, ScalarNode) or not NAME.fullmatch(node.value):
        raise yaml_text.locate_error(
            where,
            node,
            "name must be 1 to 100 letters, digits, hyphens, underscores and dots",
        )
    return str(node.value)


def _virtualenv(runtime: Node, where: str, *, any_runtime: bool) -> str:
    """The virtualenv option of a Python runtime; other runtimes have none, or are refused."""
    if isinstance(runtime, MappingNode):
        found = yaml_text.entries(runtime, where)
        name, node = _text(found, "name", where), found.get("name", (None, runtime))[1]
        options = yaml_text.entries(_mapping(found, "options", where), where)
    else:
        name, node, options = str(runtime.value), runtime, {}
    if name != "python":
        if any_runtime:
            return ""
        told = yaml_text.locate_error(where, node, f"the runtime is {name!r}", hint=_USE_THE_CLI)
        raise OtherRuntime(told.message, told.hint)
    return _text(options, "virtualenv", where)


def _defaults(config: MappingNode, where: str) -> dict[str, ConfigDefault]:
    return {
        key: _default(key, node, where)
        for key, (_, node) in yaml_text.entries(config, where).items()
    }


def _default(key: str, node: Node, where: str) -> ConfigDefault:
    """`key: value`, or the form with type, default (value for other namespaces) and secret."""
    if not isinstance(node, MappingNode):
        return ConfigDefault(config_value(node, where))
    found = yaml_text.entries(node, where)
    kind = _text(found, "type", where)
    if kind and kind not in _TYPES:
        raise yaml_text.locate_error(
            where, found["type"][1], f"{key}: the type is one of {', '.join(_TYPES)}"
        )
    given = found.get("default") or found.get("value")
    secret = _text(found, "secret", where) in ("true", "True", "TRUE")
    return ConfigDefault(config_value(given[1], where) if given else None, kind, secret)


def config_value(node: Node, where: str) -> Json:
    """A configuration value: a scalar as the text in the file, an object or list as data."""
    if isinstance(node, ScalarNode):
        return "" if node.tag.endswith(":null") else str(node.value)
    return yaml_text.construct(node, where)
