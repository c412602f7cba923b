"""Find and read a Pulumi project: the content of Pulumi.yaml.

`Workspace`, settings and the language host call this module.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import yaml_text
from gpuform.stacks.engine.value_json import Json

_FILE_NAMES = ("Pulumi.yaml", "Pulumi.yml")
_TOPOLOGIES = ("topology.yaml", "topology.yml")
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""What a project can be called."""

_TYPES = ("string", "boolean", "integer", "number", "array", "object")
_USE_THE_CLI = (
    "Use the Pulumi CLI for this project (`pulumi up`): gpuform runs Python programs only. "
    "Commands that use only the state work, such as `gpuform status`, `refresh` and `destroy`."
)


class ProjectError(EngineError):
    """A Pulumi.yaml or Pulumi.<stack>.yaml that cannot be used."""

    help_page = "reference/configuration"


class OtherRuntime(ProjectError):
    """A project whose program is in another language than Python."""


class NoProject(ProjectError):
    """A folder without a Pulumi.yaml in it or above it."""

    help_page = "start/first-stack"


@dataclass(frozen=True, slots=True)
class ConfigDefault:
    """The declaration of a configuration key in Pulumi.yaml.

    `value` is used by stacks that do not set the key; None means that they have to. Scalars are
    texts, as in the file. `type` is one of Pulumi's names, empty for any type.
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
        """The program to run: a folder with a `__main__.py`, or a file."""
        return self.main or self.directory

    def get_settings_path(self, stack: str) -> Path:
        """Return the path of the stack's settings, whether the file exists or not."""
        return self.directory / self.stack_config_dir / f"Pulumi.{stack}{self.path.suffix}"

    def qualify_key(self, key: str) -> str:
        """Return the configuration key with namespace: `size` of project demo is `demo:size`.

        The old form `demo:config:size` is accepted. Raises ProjectError for text that is not a key.
        """
        parts = key.split(":")
        # `project:config:key` is the spelling of Pulumi's first years.
        if len(parts) == 3 and parts[1] == "config":
            del parts[1]
        if not all(parts) or len(parts) > 2:
            raise ProjectError(
                f"{key!r} is not a configuration key",
                hint="Write `name` for a key of this project, or `namespace:name`.",
            )
        return ":".join(parts) if len(parts) == 2 else f"{self.name}:{key}"


def find_topology_file(folder: Path) -> Path | None:
    """Return the topology file of a folder, or None. The folder needs no Python program."""
    files = (folder / name for name in _TOPOLOGIES)
    return next((file for file in files if file.is_file()), None)


def find_project(directory: Path, *, any_runtime: bool = False) -> Project:
    """Find the project of a folder, or of the nearest folder above.

    Args:
        directory: where the search begins.
        any_runtime: accept programs in other languages; only for callers that run no program.

    Raises:
        NoProject: there is no Pulumi.yaml.
        OtherRuntime: the program is in another language, and `any_runtime` is not set.
        ProjectError: Pulumi.yaml cannot be read or is empty.
        YamlError: the content of Pulumi.yaml is wrong.
    """
    start = Path(os.path.abspath(directory))  # noqa: PTH100 - Path.resolve would follow links
    for folder in (start, *start.parents):
        for name in _FILE_NAMES:
            if (folder / name).is_file():
                return load_project(folder / name, any_runtime=any_runtime)
    raise NoProject(
        f"no Pulumi.yaml in {start} or its parent folders",
        hint="Change to the project's folder, or pass it with --cwd.",
    )


def load_project(path: Path, *, any_runtime: bool = False) -> Project:
    """Read a Pulumi.yaml.

    Raises:
        ProjectError: the file cannot be read or is empty.
        YamlError: the content is wrong; the message begins with file:line:column.
        OtherRuntime: the program is in another language, and `any_runtime` is False.
    """
    file_label = str(path)
    root = yaml_text.parse(read_text(path), file_label)
    if root is None:
        raise ProjectError(f"{file_label}:1:1: the file is empty", hint="Add `name` and `runtime`.")
    yaml_entries = yaml_text.get_entries(root, file_label)
    for key in ("name", "runtime"):
        if key not in yaml_entries:
            raise yaml_text.locate_error(file_label, root, f"{key} is missing", hint=_MINIMUM_HINT)
    directory = path.parent
    virtualenv = _parse_virtualenv(yaml_entries["runtime"][1], file_label, any_runtime=any_runtime)
    main = _get_text(yaml_entries, "main", file_label)
    backend = yaml_text.get_entries(_get_mapping(yaml_entries, "backend", file_label), file_label)
    config = _get_mapping(yaml_entries, "config", file_label)
    return Project(
        name=_parse_name(yaml_entries["name"][1], file_label),
        path=path,
        main=directory / main if main else None,
        virtualenv=directory / Path(virtualenv).expanduser() if virtualenv else None,
        description=_get_text(yaml_entries, "description", file_label),
        config={
            key: _parse_default(key, node, file_label)
            for key, (_, node) in yaml_text.get_entries(config, file_label).items()
        },
        backend_url=_get_text(backend, "url", file_label),
        stack_config_dir=_get_text(yaml_entries, "stackConfigDir", file_label),
        always_refreshes=_parse_refresh_option(yaml_entries, file_label),
        required_version=_get_text(yaml_entries, "requiredPulumiVersion", file_label),
    )


def _parse_refresh_option(yaml_entries: "_YamlEntries", file_label: str) -> bool:
    """Return True if `options.refresh` is `always`, and False without the option.

    Raises YamlError for any other value: Pulumi has only this one. `file_label` is the name of
    the file in the message.
    """
    node = _get_mapping(yaml_entries, "options", file_label)
    refresh = _get_text(yaml_text.get_entries(node, file_label), "refresh", file_label)
    if refresh not in ("", "always"):
        raise yaml_text.locate_error(file_label, node, "options.refresh must be `always`")
    return bool(refresh)


_MINIMUM_HINT = "A Pulumi.yaml has at least `name: my-project` and `runtime: python`."


def read_text(path: Path) -> str:
    """Read the text of a project's file.

    Raises ProjectError if it cannot be read or is not UTF-8.
    """
    try:
        # Some editors begin a file with a byte order mark.
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProjectError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProjectError(f"{path} is not UTF-8 text (byte {error.start})") from error


_YamlEntries = Mapping[str, tuple[ScalarNode, Node]]


def _get_text(yaml_entries: _YamlEntries, key: str, file_label: str) -> str:
    """Return the text of a key, or an empty text if the key is missing or null.

    Raises YamlError for a value that is not text.
    """
    if key not in yaml_entries:
        return ""
    node = yaml_entries[key][1]
    if not isinstance(node, ScalarNode):
        raise yaml_text.locate_error(file_label, node, f"{key} must be text")
    return "" if node.tag.endswith(":null") else str(node.value)


def _get_mapping(yaml_entries: _YamlEntries, key: str, file_label: str) -> MappingNode:
    """Return the mapping of a key; empty for a missing or null one. Raises YamlError."""
    node = yaml_entries[key][1] if key in yaml_entries else None
    if isinstance(node, MappingNode):
        return node
    if node is not None and not (isinstance(node, ScalarNode) and node.tag.endswith(":null")):
        raise yaml_text.locate_error(file_label, node, f"{key} must be a mapping")
    return MappingNode("tag:yaml.org,2002:map", [])


def _parse_name(node: Node, file_label: str) -> str:
    """Return the project's name. Raises YamlError for an invalid name."""
    if not isinstance(node, ScalarNode) or not NAME.fullmatch(node.value):
        raise yaml_text.locate_error(
            file_label,
            node,
            "name must be 1 to 100 letters, digits, hyphens, underscores and dots",
        )
    return str(node.value)


def _parse_virtualenv(runtime: Node, file_label: str, *, any_runtime: bool) -> str:
    """Return the virtualenv option of a Python runtime, or an empty string.

    Another runtime gives an empty string with `any_runtime`, else raises OtherRuntime.
    """
    if isinstance(runtime, MappingNode):
        yaml_entries = yaml_text.get_entries(runtime, file_label)
        name, node = (
            _get_text(yaml_entries, "name", file_label),
            yaml_entries.get("name", (None, runtime))[1],
        )
        options = yaml_text.get_entries(
            _get_mapping(yaml_entries, "options", file_label), file_label
        )
    else:
        name, node, options = str(runtime.value), runtime, {}
    if name != "python":
        if any_runtime:
            return ""
        runtime_error = yaml_text.locate_error(
            file_label, node, f"gpuform does not support the runtime {name!r}", hint=_USE_THE_CLI
        )
        raise OtherRuntime(runtime_error.message, runtime_error.hint)
    return _get_text(options, "virtualenv", file_label)


def _parse_default(key: str, node: Node, file_label: str) -> ConfigDefault:
    """Parse a declaration of `config`: a plain value, or `type`, `default` (or `value`), `secret`.

    Raises YamlError for an unknown type or a value of a wrong form.
    """
    if not isinstance(node, MappingNode):
        return ConfigDefault(parse_config_value(node, file_label))
    yaml_entries = yaml_text.get_entries(node, file_label)
    kind = _get_text(yaml_entries, "type", file_label)
    if kind and kind not in _TYPES:
        raise yaml_text.locate_error(
            file_label,
            yaml_entries["type"][1],
            f"{key}: the type must be one of {', '.join(_TYPES)}",
        )
    default_entry = yaml_entries.get("default") or yaml_entries.get("value")
    secret = _get_text(yaml_entries, "secret", file_label) in ("true", "True", "TRUE")
    return ConfigDefault(
        parse_config_value(default_entry[1], file_label) if default_entry else None, kind, secret
    )


def parse_config_value(node: Node, file_label: str) -> Json:
    """Return a configuration value: a scalar as the text in the file, an object or list as data.

    Null at the top is an empty text.
    """
    if isinstance(node, ScalarNode):
        return "" if node.tag.endswith(":null") else str(node.value)
    return yaml_text.convert_node(node, file_label)
