"""Read and edit a stack's settings, Pulumi.<stack>.yaml: configuration and secrets provider.

`Workspace`, operations and the `config` commands call this module; `yaml_text` edits the file. They
change parts of a value by a path like `servers[0].name`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.providers.values import PropertyMap, Secret
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import convert_leaves, iterate_leaves
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.project import yaml_text
from gpuform.stacks.engine.project.project import (
    ConfigDefault,
    Project,
    ProjectError,
    parse_config_value,
    read_text,
)
from gpuform.stacks.engine.property_paths import Path as PropertyPath
from gpuform.stacks.engine.property_paths import PathError, parse
from gpuform.stacks.engine.state import SecretsProvider
from gpuform.stacks.engine.value_json import Crypter, Json

SECURE = "secure"
"""The only key of an object that stands for an encrypted text: `{secure: v1:...}`."""


_PROVIDED = {"secretsprovider": "url", "encryptedkey": "encryptedkey", "encryptionsalt": "salt"}
"""What says how secrets are encrypted: its name here, and in the state."""


def format_set_command(key: str, *, secret: bool) -> str:
    """Return the command to set a configuration key.

    A secret is asked for: on the command line, it would be in the shell's history.
    """
    return f"gpuform config set --secret {key}" if secret else f"gpuform config set {key} VALUE"


@dataclass(slots=True)
class StackSettings:
    """The settings in Pulumi.<stack>.yaml, which may not exist yet.

    Changes edit `content`, the text of the file, so that comments and unknown entries stay; `save`
    writes the file.
    """

    project: Project
    stack: str
    path: Path
    content: str = ""
    _config: dict[str, Json] = field(default_factory=dict)
    # key with namespace -> key as spelled in the file
    _spelling_by_key: dict[str, str] = field(default_factory=dict)
    _positions: dict[str, tuple[int, int]] = field(default_factory=dict)
    # settings other than `config`, such as `encryptionsalt`
    _scalars: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, project: Project, stack: str) -> "StackSettings":
        """Read the stack's file; a missing one is empty. Raises ProjectError or YamlError."""
        path = project.get_settings_path(stack)
        settings = cls(project, stack, path, read_text(path) if path.exists() else "")
        settings._parse_content()
        return settings

    @property
    def encryption_salt(self) -> str:
        """Return the salt of the passphrase provider, or an empty text."""
        return self._scalars.get("encryptionsalt", "")

    @property
    def secrets_provider(self) -> str:
        """The URL of the secrets provider; empty for a passphrase."""
        return self._scalars.get("secretsprovider", "")

    @property
    def encrypted_key(self) -> str:
        """Return the stack's key as encrypted by a cloud's key service, or an empty text."""
        return self._scalars.get("encryptedkey", "")

    @property
    def config(self) -> dict[str, Json]:
        """The values set in this file, by full key; scalars are texts, secrets `{secure:}`."""
        return dict(self._config)

    def set_secrets_provider(self, provider: SecretsProvider) -> None:
        """Set the secrets provider, and remove the keys of another one; `save` writes the file."""
        settings = {name: str(provider.state.get(key, "")) for name, key in _PROVIDED.items()}
        for name, setting in settings.items():
            if setting:
                self._set_content(
                    yaml_text.set_entry(self.content, [name], setting, str(self.path))
                )
            elif name in self._scalars:
                self._set_content(yaml_text.remove_entry(self.content, [name], str(self.path)))

    def get(self, key: str) -> Json:
        """Return the value of a key (`name` or `namespace:name`) in this file, or None."""
        return self._config.get(self.project.qualify_key(key))

    def locate_key(self, key: str) -> str:
        """Return the position of a set key in the file: file:line:column. Raises KeyError."""
        line, column = self._positions[self.project.qualify_key(key)]
        return f"{self.path.name}:{line}:{column}"

    def set(self, key: str, value: Json) -> None:
        """Set a key to a text, to `{"secure": ciphertext}`, or to an object or list of such values.

        The text of the file changes; `save` writes the file.
        """
        full = self.project.qualify_key(key)
        content = self.content
        # The file may have the key without namespace; both spellings together would be an error.
        if self._spelling_by_key.get(full, full) != full:
            content = yaml_text.remove_entry(
                content, ["config", self._spelling_by_key[full]], str(self.path)
            )
        self._set_content(yaml_text.set_entry(content, ["config", full], value, str(self.path)))

    def remove(self, key: str) -> bool:
        """Remove a configuration key; return False for an unset key."""
        full = self.project.qualify_key(key)
        if full not in self._config:
            return False
        self._set_content(
            yaml_text.remove_entry(
                self.content, ["config", self._spelling_by_key[full]], str(self.path)
            )
        )
        return True

    def reencrypt(self, old: Crypter, new: Crypter) -> None:
        """Encrypt every secret value with `new`; the caller sets the secrets provider."""
        for key, value in self.config.items():
            if is_secure(value):
                self.set(
                    key,
                    convert_encrypted(value, lambda text: {SECURE: new.encrypt(old.decrypt(text))}),
                )

    def save(self) -> None:
        """Write the file atomically, with the old permissions; a new file is readable by all."""
        try:
            replace_file(self.path, self.content.encode(), mode=0o644)
        except OSError as error:
            raise ProjectError(f"{self.path} cannot be written: {error.strerror}") from error

    def build_program_config(self, crypter: Crypter | None) -> tuple[dict[str, str], list[str]]:
        """Return the program's configuration by full key in plain text, and the secret keys.

        Objects are compact JSON. Keys that the stack does not set have the project's defaults. A
        key is secret if its value is encrypted here, or a default that Pulumi.yaml declares secret.

        Args:
            crypter: decrypts the values; None if nothing is secure.

        Raises:
            EngineError: a key has no value, or one of another type, or cannot be decrypted; or the
                file has an `environment` of Pulumi Cloud.
        """
        if "environment" in self._scalars:
            raise ProjectError(
                f"{self.path}: `environment` requires Pulumi Cloud, and this backend is not "
                "Pulumi Cloud",
                hint="Remove `environment`, and set the values with `gpuform config set`.",
            )
        texts: dict[str, str] = {}
        secret: list[str] = []
        for key, value, default in self._iterate_effective():
            try:
                texts[key] = to_config_text(value, crypter)
            except EngineError as error:
                raise ProjectError(
                    f"configuration {key}: {error.message}", hint=error.hint
                ) from error
            if not matches_type(texts[key], default):
                raise ProjectError(
                    f"the configuration key {key} of stack {self.stack} is not of the type "
                    f"{default.type}",
                    hint="Pulumi.yaml declares this type. Set a value of this type: "
                    f"{format_set_command(key, secret=default.secret)}",
                )
            if is_secure(value) or (default.secret and key not in self._config):
                secret.append(key)
        return texts, secret

    def build_provider_inputs(self, crypter: Crypter | None) -> PropertyMap:
        """Return the inputs of Pulumi's provider resource: all configuration, secrets marked."""
        texts, secret = self.build_program_config(crypter)
        return {key: Secret(value) if key in secret else value for key, value in texts.items()}

    def _iterate_effective(self) -> Iterator[tuple[str, Json, ConfigDefault]]:
        """Yield each key with the value here or the default, and the declaration in Pulumi.yaml.

        The declaration is empty for an undeclared key. Raises ProjectError for a key without a
        value.
        """
        defaults = {self.project.qualify_key(k): d for k, d in self.project.config.items()}
        nothing = ConfigDefault(None)
        for key in sorted(self._config.keys() | defaults.keys()):
            default = defaults.get(key, nothing)
            value = self._config.get(key, default.value)
            if value is None:
                raise ProjectError(
                    f"stack {self.stack} has no value for the configuration key {key}",
                    hint=f"Set one: {format_set_command(key, secret=default.secret)} "
                    f"--stack {self.stack}",
                )
            yield key, value, default

    def _set_content(self, content: str) -> None:
        """Replace the text of the file, and parse the values again."""
        self.content = content
        self._parse_content()

    def _parse_content(self) -> None:
        """Parse the text of the file into values by full key. Raises YamlError."""
        file_label = str(self.path)
        root = yaml_text.parse(self.content, file_label)
        yaml_entries = yaml_text.get_entries(root, file_label) if root is not None else {}
        self._scalars = {
            key: str(node.value) if isinstance(node, ScalarNode) else ""
            for key, (_, node) in yaml_entries.items()
            if key != "config"
        }
        self._config, self._spelling_by_key, self._positions = {}, {}, {}
        if "config" in yaml_entries:
            self._parse_config(yaml_entries["config"][1], file_label)

    def _parse_config(self, config: Node, file_label: str) -> None:
        """Parse the values under `config`. Raises YamlError for a wrong or repeated key."""
        if isinstance(config, ScalarNode) and config.tag.endswith(":null"):
            return
        if not isinstance(config, MappingNode):
            raise yaml_text.locate_error(
                file_label, config, "config must be a mapping of keys to values"
            )
        for name, (key, node) in yaml_text.get_entries(config, file_label).items():
            try:
                full = self.project.qualify_key(name)
            except ProjectError as error:
                raise yaml_text.locate_error(file_label, key, error.message, error.hint) from error
            if full in self._config:
                raise yaml_text.locate_error(file_label, key, f"the key {full} occurs twice")
            self._config[full], self._spelling_by_key[full] = (
                parse_config_value(node, file_label),
                name,
            )
            self._positions[full] = (key.start_mark.line + 1, key.start_mark.column + 1)


def is_secure(value: Json) -> bool:
    """Return True if there is an encrypted text anywhere in the value."""
    return any(isinstance(leaf, dict) for leaf in iterate_leaves(value, _is_encrypted))


def _is_encrypted(value: Mapping[str, Json]) -> bool:
    """Return True for an encrypted value: an object with only the key `secure` and a text."""
    return len(value) == 1 and isinstance(value.get(SECURE), str)


def convert_encrypted(value: Json, convert: Callable[[str], Json]) -> Json:
    """Return the value with the result of `convert` for every `{secure: TEXT}`, at any depth."""
    converted: Json = convert_leaves(
        value,
        lambda leaf: convert(leaf[SECURE]) if isinstance(leaf, dict) else leaf,
        _is_encrypted,
    )
    return converted


def _decrypt(value: Json, crypter: Crypter | None) -> Json:
    """Return the value with every `{secure: TEXT}` in it decrypted, and all else unchanged.

    Raises ProjectError if there is such an object but no crypter.
    """
    if crypter is None and is_secure(value):
        raise ProjectError(
            "the value is encrypted, but the stack has no encryption salt",
            hint="Restore `encryptionsalt` in the stack's file, or set the value again.",
        )
    return value if crypter is None else convert_encrypted(value, crypter.decrypt)


def to_config_text(value: Json, crypter: Crypter | None) -> str:
    """Return the value in the form for programs: texts, and objects as Go's json.Marshal prints.

    The crypter may be None if nothing in the value is secure; else EngineError is raised.
    """
    plain = _decrypt(value, crypter)
    if isinstance(plain, str):
        return plain
    encoded = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Under the CLI programs get the text from Go, which escapes these characters.
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded


def matches_type(text: str, default: ConfigDefault) -> bool:
    """Return True if a text has the type declared in Pulumi.yaml, if any."""
    if default.type in ("", "string"):
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return False
    kinds: dict[str, tuple[type, ...]] = {
        "boolean": (bool,),
        "integer": (int,),
        "number": (int, float),
        "array": (list,),
        "object": (dict,),
    }
    has_type = isinstance(value, kinds[default.type])
    # Python's booleans are integers too.
    return has_type and (not isinstance(value, bool) or default.type == "boolean")


_KEY: Final = re.compile(r'((?:[^:.\["]+:)*)(.+)', re.DOTALL)
# At most 18 digits, which fit into Go's int64.
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")


def split_key(key: str) -> tuple[str, PropertyPath]:
    """Split a key and the path inside the value: `ns:a.b[0]` is `ns:a` and `("b", 0)`.

    Raises:
        EngineError: `key` is no such path.
    """
    match = _KEY.fullmatch(key)
    try:
        first, *rest = parse(match[2]) if match else [0]
    except PathError:
        first, rest = 0, []
    if match is None or not isinstance(first, str) or "*" in rest:
        raise EngineError(
            f"{key!r} is not a valid path of a configuration value",
            hint="Write a key and a path below it, such as servers[0].name",
        )
    return f"{match[1]}{first}", tuple(rest)


def parse_leaf(leaf: str) -> Json:
    """Convert a text to a value inside an object or list: a boolean, an integer or text."""
    if leaf in {"true", "false"}:
        return leaf == "true"
    return int(leaf) if _NUMBER.fullmatch(leaf) else leaf


def get_value_at(value: Json, path: Sequence[str | int]) -> Json:
    """Return the part at the path, or None if there is none."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def set_value_at(value: Json, path: Sequence[str | int], leaf: Json, at: str) -> Json:
    """Return the value with `leaf` at the path; missing objects and lists are created.

    A list grows by one value at most; a missing list is filled with null up to the index.

    Args:
        value: the value to change; it stays as it is.
        path: the path inside the value.
        leaf: the new part.
        at: names the value in errors.

    Raises:
        EngineError: a part on the path is neither an object nor a list that has the next step, or
            would look like an encrypted value.
    """
    if not path:
        return leaf
    step, rest = path[0], path[1:]
    inside = f"{at}[{step}]" if isinstance(step, int) else f"{at}.{step}"
    if value is None:
        value = [None] * (step + 1) if isinstance(step, int) and step >= 0 else {}
    if isinstance(value, list):
        if not isinstance(step, int) or not 0 <= step <= len(value):
            raise EngineError(f"{at} is a list of {len(value)} values: {inside} does not exist")
        old = [*value, None] if step == len(value) else [*value]
        old[step] = set_value_at(old[step], rest, leaf, inside)
        return old
    if not isinstance(value, dict) or not isinstance(step, str):
        kind = "an object" if isinstance(value, dict) else "a single value"
        raise EngineError(f"{at} is {kind}: {inside} does not exist")
    changed = {**value, step: set_value_at(value.get(step), rest, leaf, inside)}
    _reject_secure_lookalike(changed, at)
    return changed


def remove_value_at(value: Json, path: Sequence[str | int], at: str) -> Json:
    """Return the value without the part at the path; unchanged if there is none.

    An object or list that becomes empty stays. Raises EngineError if what remains would look like
    an encrypted value.
    """
    step, rest = path[0], path[1:]
    inside = get_value_at(value, [step])
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        changed_items = [remove_value_at(inside, rest, at)] if rest else []
        return [*value[:step], *changed_items, *value[step + 1 :]]
    if not isinstance(value, dict) or not isinstance(step, str):
        return value
    if rest and step in value:
        return {**value, step: remove_value_at(inside, rest, at)}
    changed = {key: item for key, item in value.items() if key != step}
    _reject_secure_lookalike(changed, at)
    return changed


def _reject_secure_lookalike(changed: dict[str, Json], at: str) -> None:
    """Reject an object with the single key `secure` and a text value: an encrypted value's form."""
    if changed.keys() == {SECURE} and isinstance(changed[SECURE], str):
        raise EngineError(
            f"{at} cannot have `{SECURE}` as its only key, which is reserved for encrypted values"
        )
