"""Set configuration values of a stack, for `gpuform config set` and for `--config` of a run.

Values are checked against the keys that the project declares. Secrets are encrypted with the
stack's key before they are written to the stack's settings file.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpuform.schemas.errors import EngineError
from gpuform.stacks.config_keys import ConfigKey, ConfigKeys
from gpuform.stacks.engine.project import (
    SECURE,
    StackSettings,
    is_secure,
    stack_settings,
    to_config_text,
)
from gpuform.stacks.engine.property_paths import Path
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.value_json import Json
from gpuform.stacks.operations.opening.selected_stack import (
    AskPassphrase,
    SelectedStack,
    create_passphrase_finder,
)


@dataclass(frozen=True, slots=True)
class ConfigSetting:
    """A configuration key of a stack, ready to be set.

    `root` is the key in the settings file. `path` leads to the part of the key's value that
    changes; an empty path stands for the value itself.
    """

    workspace: Workspace
    stack: str
    config_key: ConfigKey
    root: str
    path: Path
    is_secret: bool

    @classmethod
    def from_key(
        cls,
        workspace: Workspace,
        stack: str,
        key: str,
        *,
        by_path: bool = False,
        secret: bool = False,
        plaintext: bool = False,
    ) -> "ConfigSetting":
        """Find the declaration of `key`, and decide whether to encrypt the value.

        Args:
            by_path: `key` is a path into a value, such as `cluster.nodes[0]`.
            secret: encrypt the value, whatever the project declares.
            plaintext: the user asked for a value in plain text.

        Raises:
            EngineError: nothing reads the key, or a declared secret would be stored in plain text.
        """
        root, path = stack_settings.split_key(key) if by_path else (key, ())
        config_key = ConfigKeys.from_project(workspace.project).find_key(root)
        if config_key.secret and plaintext:
            raise EngineError(
                f"{config_key.name} is a secret ({config_key.declared}) and cannot be "
                "stored in plain text",
                hint="Leave --plaintext out: the value is then encrypted.",
            )
        return cls(workspace, stack, config_key, root, path, secret or config_key.secret)

    def set(self, value_text: str, ask_passphrase: AskPassphrase | None) -> None:
        """Write the value to the stack's settings file, encrypted if the key is secret.

        Args:
            value_text: the value as the user wrote it.
            ask_passphrase: asks for the stack's passphrase; None where nobody can answer.

        Raises:
            EngineError: the value has another type than the declared one, or the passphrase is
                wrong or missing.
        """
        if not self.is_secret:
            settings = StackSettings.load(self.workspace.project, self.stack)
            leaf = stack_settings.parse_leaf(value_text) if self.path else value_text
            self._save_value(settings, leaf, value_text)
            return
        # The declared type is that of the complete value: a part of one has no type of its own.
        if not self.path:
            self.config_key.check(value_text)
        # Opening the stack finds its encryption, and writes the salt to the file if it was lost.
        opened = self.workspace.open(
            self.stack, create_passphrase_finder(self.workspace, ask_passphrase)
        )
        self._save_value(opened.settings, {SECURE: opened.crypter.encrypt(value_text)}, value_text)

    def _save_value(self, settings: StackSettings, leaf: Json, value_text: str) -> None:
        """Put `leaf` at the setting's path, check the value's type, and save the settings file.

        Raises EngineError for a wrong type; encrypted values were checked before.
        """
        value = leaf
        if self.path:
            value = stack_settings.set_value_at(settings.get(self.root), self.path, leaf, self.root)
        # An encrypted value was checked before its encryption.
        if not is_secure(value):
            self.config_key.check(to_config_text(value, None) if self.path else value_text)
        settings.set(self.root, value)
        settings.save()


def set_config_values(
    selected: SelectedStack,
    values: tuple[tuple[str, str], ...],
    *,
    by_path: bool,
    report: Callable[[str], None],
) -> None:
    """Write the values of a run's `--config` flags to the stack's settings file.

    `values` are pairs of key and value; with `by_path` the keys are paths. `report` receives one
    line for each value. Secret keys are encrypted. Every key is checked before the first value is
    written, so that a wrong key changes nothing.

    Raises:
        EngineError: a key or a value is wrong; values before a wrong one are written.
    """
    workspace, stack = selected.workspace, selected.name
    settings = [ConfigSetting.from_key(workspace, stack, key, by_path=by_path) for key, _ in values]
    for setting, (key, value_text) in zip(settings, values, strict=True):
        setting.set(value_text, selected.ask_passphrase)
        description = (
            f"was set, encrypted ({setting.config_key.declared})"
            if setting.is_secret
            else "was set"
        )
        report(f"{key} {description} in {workspace.project.get_settings_path(stack).name}")
