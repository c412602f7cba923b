"""What is known of a configuration key: where it is declared, of which type, whether it is secret.

A topology, Pulumi.yaml and the platforms declare keys. A Python program may read any others.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from gpuform.providers.forms import Form
from gpuform.providers.platform import Setting, build_plugin_key, list_settings
from gpuform.schemas.checking import find_nearest_name
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import (
    ConfigDefault,
    Project,
    StackSettings,
    find_topology_file,
    get_folder_and_entry,
    is_secure,
    matches_type,
)
from gpuform.stacks.topology.configuration import format_encryption_hint, resolve_config
from gpuform.stacks.topology.declarations import ConfigVariable

_FORM = "gpuform:form"
_PULUMIS = "pulumi"
"""The namespace that the Pulumi CLI keeps its own settings of a stack in."""


@cache
def _platforms_keys() -> dict[str, Setting]:
    """The settings of all platforms, under their own keys and under the plugin's."""
    own = {each.config: each for each in list_settings()}
    return own | {build_plugin_key(key): each for key, each in own.items()}


def _namespaces() -> set[str]:
    return {key.partition(":")[0] for key in (*_platforms_keys(), _FORM)}


class UnknownKey(EngineError):
    """Nothing reads the key."""

    help_page = "reference/configuration"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A configuration key. `declared` says by what; empty for what only a program can know.

    `check` raises EngineError for a text that cannot be its value.
    """

    name: str
    declared: str = ""
    secret: bool = False
    check: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True, slots=True)
class InTheClear:
    """A secret that everybody can read who sees the stack's file, and what to do about it."""

    key: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ConfigKeys:
    """The keys of a project. `complete`: nothing reads what is not declared here."""

    project: Project
    variables: Mapping[str, ConfigVariable]
    complete: bool

    @classmethod
    def of(cls, project: Project) -> "ConfigKeys":
        """Those of a project's files. Raises EngineError when its topology cannot be read."""
        topology = _topology_of(project)
        if topology is None or not topology.file.exists():
            return cls.without_topology(project)
        from gpuform.stacks.topology.configuration import read_config  # noqa: PLC0415 - Jinja

        problems = Diagnostics()
        variables = read_config(topology.file, problems)
        if problems:
            raise EngineError(
                "the configuration that the topology declares cannot be read:\n  "
                + "\n  ".join(str(each).replace("\n", "\n  ") for each in problems),
                hint="Correct the file: `gpuform validate` reports all of its problems.",
            )
        return cls(project, variables, topology.alone)

    @classmethod
    def without_topology(cls, project: Project) -> "ConfigKeys":
        """Return the keys of Pulumi.yaml and platforms, for a run, which reports its topology's."""
        return cls(project, {}, complete=False)

    def find(self, key: str) -> ConfigKey:
        """What is known of a key. Raises UnknownKey, with the nearest one, for what none reads."""
        full = self.project.qualify_key(key)
        found = self._declared(full)
        if found is not None:
            return found
        namespace = full.partition(":")[0]
        if namespace == self.project.name and self.complete:
            raise self._unknown(full, "neither the topology nor Pulumi.yaml declares it")
        if namespace != self.project.name and namespace in _namespaces():
            raise self._unknown(full, f"{namespace} has no such setting")
        if namespace not in (self.project.name, _PULUMIS) and self.complete:
            raise self._unknown(full, f"nothing in this project is called {namespace}")
        return ConfigKey(self._shown(full))

    def in_the_clear(self, settings: StackSettings) -> Iterator[InTheClear]:
        """What is declared secret and stands in the clear in a stack's file."""
        for full, value in settings.config.items():
            key = self._declared(full)
            if key is not None and key.secret and value and not is_secure(value):
                told = f"{settings.locate_key(full)}: {key.name} is a secret ({key.declared}) and "
                yield InTheClear(
                    full, f"{told}stands there in the clear", format_encryption_hint(key.name)
                )

    def _declared(self, full: str) -> ConfigKey | None:
        namespace, _, name = full.partition(":")
        shown = self._shown(full)
        defaults = {self.project.qualify_key(k): d for k, d in self.project.config.items()}
        default, setting = defaults.get(full), _platforms_keys().get(full)
        secret = (default is not None and default.secret) or (
            setting is not None and setting.secret
        )
        if namespace == self.project.name and name in self.variables:
            variable = self.variables[name]
            where = f"declared at {variable.position}"
            return ConfigKey(shown, where, secret or variable.secret, partial(_check, variable))
        if default is not None:
            where = f"declared in {self.project.path.name}"
            return ConfigKey(shown, where, secret, partial(_check_default, shown, default))
        if setting is not None:
            return ConfigKey(shown, setting.description.removesuffix("."), secret)
        if full == _FORM:
            return ConfigKey(shown, "how resources reach their platform", check=_check_form)
        return None

    def _unknown(self, full: str, why: str) -> UnknownKey:
        namespace, _, name = full.partition(":")
        declared = [*self.variables, *map(self.project.qualify_key, self.project.config)]
        settings = _platforms_keys()
        known = tuple(map(self._shown, (*declared, *settings, _FORM)))
        is_own = namespace == self.project.name
        near = find_nearest_name(self._shown(full), known)
        meant = [near] if near else [each for each in settings if each.endswith(f":{name}")]
        there = [each for each in known if (":" not in each) == is_own]
        if namespace in _namespaces() and not is_own:
            there = [each for each in there if each.startswith(f"{namespace}:")]
        listed = f"there is {', '.join(there)}" if there else "none is declared"
        return UnknownKey(
            f"nothing reads the configuration key {self._shown(full)}: {why}",
            hint=f"did you mean {' or '.join(meant)}?" if meant else listed,
        )

    def _shown(self, full: str) -> str:
        return full.removeprefix(f"{self.project.name}:")


@dataclass(frozen=True, slots=True)
class _Given:
    """The one text that a stack is about to set."""

    text: str

    def get(self, _name: str) -> str:
        return self.text

    def is_secret(self, _name: str) -> bool:
        return False


def _check(variable: ConfigVariable, text: str) -> None:
    problems = Diagnostics()
    resolve_config([variable], _Given(text), problems)
    if problems:
        raise EngineError("\n".join(map(str, problems)))


def _check_default(name: str, default: ConfigDefault, text: str) -> None:
    if not matches_type(text, default):
        raise EngineError(
            f"the value of {name} is not of the type {default.type}, which Pulumi.yaml asks for",
            hint=f"Set another one: gpuform config set {name} VALUE",
        )


def _check_form(text: str) -> None:
    if text not in tuple(Form):
        raise EngineError(f"{_FORM} is {' or '.join(Form)}, not {text!r}")


@dataclass(frozen=True, slots=True)
class _ProgramTopology:
    """The topology that a program runs; `alone`: the program does nothing else."""

    file: Path
    alone: bool


def _topology_of(project: Project) -> _ProgramTopology | None:
    """Return the topology of a project's program, or None if there is none or it is unknown."""
    folder, entry = get_folder_and_entry(project.program)
    file = folder / ("__main__.py" if entry == "." else entry)
    try:
        body = ast.parse(file.read_bytes()).body
    except FileNotFoundError:
        found = find_topology_file(folder)
        return _ProgramTopology(found, alone=True) if found else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    others = [each for each in body if not (_is_text(each) or _is_import(each))]
    runs = [path for each in others if (path := _run(each)) is not None]
    if not runs or not any(map(_is_import, body)):
        return None
    return _ProgramTopology(folder / runs[0], alone=len(others) == 1)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "gpuform.stacks"


def _run(statement: ast.stmt) -> str | None:
    """The file that `run(...)` names."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    if call.func.id != "run":
        return None
    given = call.args[0] if call.args else ast.Constant("topology.yaml")
    is_path = isinstance(given, ast.Constant) and isinstance(given.value, str)
    return str(given.value) if is_path else None  # type: ignore[attr-defined]
