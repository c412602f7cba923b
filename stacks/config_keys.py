"""Find out about configuration keys: where each is declared, of which type, whether it is secret.

A topology, Pulumi.yaml and the platforms declare keys. A Python program may read any others.
`gpuform config`, `doctor` and runs call this module.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from gpuform.providers.platform import Form, Setting, build_plugin_key, list_settings
from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.errors import EngineError
from gpuform.schemas.notify import NAMESPACE
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.project import (
    ConfigDefault,
    Project,
    StackSettings,
    find_topology_file,
    format_set_command,
    get_folder_and_entry,
    is_secure,
    matches_type,
)
from gpuform.stacks.notify import FILE, read_rules
from gpuform.stacks.topology.configuration import format_encryption_hint, resolve_config
from gpuform.stacks.topology.declarations import ConfigVariable

_FORM = "gpuform:form"
_PULUMI_NAMESPACE = "pulumi"
"""The namespace in which the Pulumi CLI keeps its own settings of a stack."""


@cache
def _get_platform_settings() -> dict[str, Setting]:
    """Return the settings of all platforms, under the platforms' keys and under the plugin's."""
    settings_by_key = {setting.config: setting for setting in list_settings()}
    return settings_by_key | {
        build_plugin_key(key): setting for key, setting in settings_by_key.items()
    }


def _get_platform_namespaces() -> set[str]:
    """Return the namespaces of the platforms' settings and of gpuform's own key."""
    return {key.partition(":")[0] for key in (*_get_platform_settings(), _FORM)}


class UnknownKey(EngineError):
    """Raised for a key that nothing reads."""

    help_page = "reference/configuration"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A configuration key.

    `declared` says where the key is declared; it is empty for a key that only a program can know.
    `check` raises EngineError for a text that cannot be its value.
    """

    name: str
    declared: str = ""
    secret: bool = False
    check: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True, slots=True)
class PlaintextSecret:
    """A secret in plain text in a stack's file, and the remedy."""

    key: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ConfigKeys:
    """The keys of a project. With `complete`, nothing reads a key that is not declared here."""

    project: Project
    variables: Mapping[str, ConfigVariable]
    complete: bool

    @classmethod
    def from_project(cls, project: Project) -> "ConfigKeys":
        """Return the keys of a project's files.

        Raises:
            EngineError: the topology's configuration cannot be read.
        """
        topology = _find_program_topology(project)
        if topology is None or not topology.file.exists():
            return cls.without_topology(project)
        from gpuform.stacks.topology.configuration import read_config  # noqa: PLC0415 - Jinja

        problems = Diagnostics()
        variables = read_config(topology.file, problems)
        if problems:
            raise EngineError(
                "the configuration that the topology declares cannot be read:\n  "
                + "\n  ".join(str(problem).replace("\n", "\n  ") for problem in problems),
                hint="Correct the file: `gpuform validate` reports all of its problems.",
            )
        return cls(project, variables, topology.is_entire_program)

    @classmethod
    def without_topology(cls, project: Project) -> "ConfigKeys":
        """Return the keys of Pulumi.yaml and of the platforms.

        A run itself reports the problems of the topology's keys.
        """
        return cls(project, {}, complete=False)

    def find_key(self, key: str) -> ConfigKey:
        """Return the known facts about a key.

        A key that nothing declares, but a program may read, has no facts: any value passes its
        check.

        Raises:
            UnknownKey: nothing reads the key; the hint has the nearest one.
        """
        full_key = self.project.qualify_key(key)
        declared_key = self._find_declared_key(full_key)
        if declared_key is not None:
            return declared_key
        namespace = full_key.partition(":")[0]
        if namespace == self.project.name and self.complete:
            raise self._create_unknown_key_error(
                full_key, "neither the topology nor Pulumi.yaml declares it"
            )
        if namespace != self.project.name and namespace in _get_platform_namespaces():
            raise self._create_unknown_key_error(full_key, f"{namespace} has no such setting")
        if namespace == NAMESPACE and self.complete:
            raise UnknownKey(
                f"nothing reads the configuration key {full_key}: no rule has this name",
                hint=f"declare the rule {full_key.partition(':')[2]} in {FILE} first",
            )
        if namespace not in (self.project.name, _PULUMI_NAMESPACE) and self.complete:
            raise self._create_unknown_key_error(
                full_key, f"nothing in this project is called {namespace}"
            )
        return ConfigKey(self._shorten_key(full_key))

    def find_plaintext_secrets(self, settings: StackSettings) -> Iterator[PlaintextSecret]:
        """Yield values of a stack's file declared as secret and not encrypted."""
        for full_key, value in settings.config.items():
            key = self._find_declared_key(full_key)
            if key is not None and key.secret and value and not is_secure(value):
                subject = (
                    f"{settings.locate_key(full_key)}: {key.name} is a secret ({key.declared}) and "
                )
                yield PlaintextSecret(
                    full_key,
                    f"{subject}is stored there in plain text",
                    format_encryption_hint(key.name),
                )

    def _find_declared_key(self, full_key: str) -> ConfigKey | None:
        """Return the key as the topology, Pulumi.yaml, a platform or gpuform declares, or None.

        The first of these counts. The key is secret if any declaration of the key says so.
        """
        namespace, _, name = full_key.partition(":")
        short_key = self._shorten_key(full_key)
        defaults = {
            self.project.qualify_key(key): key_default
            for key, key_default in self.project.config.items()
        }
        default, setting = defaults.get(full_key), _get_platform_settings().get(full_key)
        secret = (default is not None and default.secret) or (
            setting is not None and setting.secret
        )
        if namespace == self.project.name and name in self.variables:
            variable = self.variables[name]
            declared = f"declared at {variable.position}"
            return ConfigKey(
                short_key, declared, secret or variable.secret, partial(_check_variable, variable)
            )
        if default is not None:
            declared = f"declared in {self.project.path.name}"
            return ConfigKey(
                short_key, declared, secret, partial(_check_default, short_key, default)
            )
        if setting is not None:
            return ConfigKey(short_key, setting.description.removesuffix("."), secret)
        if full_key == _FORM:
            return ConfigKey(short_key, "how resources reach their platform", check=_check_form)
        return self._find_address(full_key) if namespace == NAMESPACE else None

    def _find_address(self, full_key: str) -> ConfigKey | None:
        """Return the configuration key of a notification rule's address, or None without the rule.

        Wrong rules declare no key: `gpuform validate` reports them.
        """
        try:
            rules = read_rules(self.project.directory)
        except EngineError:
            return None
        return next(
            (
                ConfigKey(full_key, f"the address of the rule at {rule.source}", secret=True)
                for rule in rules
                if rule.key == full_key
            ),
            None,
        )

    def _create_unknown_key_error(self, full_key: str, reason: str) -> UnknownKey:
        """Return, without raising, the error for an unread key, with likely keys as hint."""
        namespace, _, name = full_key.partition(":")
        declared = [*self.variables, *map(self.project.qualify_key, self.project.config)]
        settings = _get_platform_settings()
        known_keys = tuple(map(self._shorten_key, (*declared, *settings, _FORM)))
        is_own = namespace == self.project.name
        nearest_key = find_nearest_name(self._shorten_key(full_key), known_keys)
        # Users often forget the namespace: a setting with the same last part is a likely meaning.
        suggestions = (
            [nearest_key]
            if nearest_key
            else [setting_key for setting_key in settings if setting_key.endswith(f":{name}")]
        )
        declared_keys = [known_key for known_key in known_keys if (":" not in known_key) == is_own]
        if namespace in _get_platform_namespaces() and not is_own:
            declared_keys = [
                declared_key
                for declared_key in declared_keys
                if declared_key.startswith(f"{namespace}:")
            ]
        list_hint = (
            f"declared keys: {', '.join(declared_keys)}"
            if declared_keys
            else "no keys are declared"
        )
        return UnknownKey(
            f"nothing reads the configuration key {self._shorten_key(full_key)}: {reason}",
            hint=f"did you mean {' or '.join(suggestions)}?" if suggestions else list_hint,
        )

    def _shorten_key(self, full_key: str) -> str:
        """Return the key without the project's namespace; keys of other namespaces stay."""
        return full_key.removeprefix(f"{self.project.name}:")


@dataclass(frozen=True, slots=True)
class _SingleValue:
    """The one value that a stack is about to set, as a configuration."""

    text: str

    def get(self, _name: str) -> str:
        """Return the one configuration value, for every name."""
        return self.text

    def is_secret(self, _name: str) -> bool:
        """Return False for every name: the check treats the value as not secret."""
        return False


def _check_variable(variable: ConfigVariable, value: str) -> None:
    """Check the value against the topology's variable. Raises EngineError with all problems."""
    problems = Diagnostics()
    resolve_config([variable], _SingleValue(value), problems)
    if problems:
        raise EngineError("\n".join(map(str, problems)))


def _check_default(name: str, default: ConfigDefault, value: str) -> None:
    """Check the value against the type in Pulumi.yaml. Raises EngineError for another type."""
    if not matches_type(value, default):
        raise EngineError(
            f"the value of {name} is not of the type {default.type}, which Pulumi.yaml declares",
            hint=f"Set another value: {format_set_command(name, secret=default.secret)}",
        )


def _check_form(value: str) -> None:
    """Check that the value is a known form of output. Raises EngineError for any other value."""
    if value not in tuple(Form):
        raise EngineError(f"{_FORM} is {' or '.join(Form)}, not {value!r}")


@dataclass(frozen=True, slots=True)
class _ProgramTopology:
    """The topology that a program runs; `is_entire_program`: the program does nothing else."""

    file: Path
    is_entire_program: bool


def _find_program_topology(project: Project) -> _ProgramTopology | None:
    """Return the topology of a project's program, or None if the source shows none.

    Only a top-level `run(...)` with a literal path counts, and of several the first one. Without a
    program it is the folder's topology.
    """
    folder, entry = get_folder_and_entry(project.program)
    file = folder / ("__main__.py" if entry == "." else entry)
    try:
        body = ast.parse(file.read_bytes()).body
    except FileNotFoundError:
        topology_file = find_topology_file(folder)
        return _ProgramTopology(topology_file, is_entire_program=True) if topology_file else None
    # ast.parse raises RecursionError for deep nesting, and in older releases of Python ValueError
    # for null bytes.
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    statements = [
        statement for statement in body if not (_is_docstring(statement) or _is_import(statement))
    ]
    run_paths = [
        path for statement in statements if (path := _find_run_path(statement)) is not None
    ]
    # Without the import, `run` is a function of the program's own.
    if not run_paths or not any(map(_is_import, body)):
        return None
    return _ProgramTopology(folder / run_paths[0], is_entire_program=len(statements) == 1)


def _is_docstring(statement: ast.stmt) -> bool:
    """Return whether the statement is only a constant, as a docstring is."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_import(statement: ast.stmt) -> bool:
    """Return whether the statement imports names from `gpuform.stacks`."""
    return isinstance(statement, ast.ImportFrom) and statement.module == "gpuform.stacks"


def _find_run_path(statement: ast.stmt) -> str | None:
    """Return the file in a statement `run(...)`, or None for another statement."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    if call.func.id != "run":
        return None
    # The default of `gpuform.stacks.run`.
    argument = call.args[0] if call.args else ast.Constant("topology.yaml")
    is_path = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    return str(argument.value) if is_path else None  # type: ignore[attr-defined]
