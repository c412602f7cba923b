"""Setting a configuration value: by `config set`, and by `--config` of a run."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuform.stacks.config_keys import ConfigKey, ConfigKeys
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import SECURE, StackSettings, config_paths, is_secure, to_text
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.values import Json, Path
from gpuform.stacks.operations.opening.selecting import AskPassphrase, SelectedStack, passphrase_of


@dataclass(frozen=True, slots=True)
class ConfigSetting:
    """A key of a stack that is to be set. `path` leads to the part of its value that is meant."""

    workspace: Workspace
    stack: str
    known: ConfigKey
    root: str
    path: Path
    is_secret: bool

    @classmethod
    def of(
        cls,
        workspace: Workspace,
        stack: str,
        key: str,
        *,
        by_path: bool = False,
        secret: bool = False,
        plaintext: bool = False,
    ) -> "ConfigSetting":
        """Raises EngineError for a key that nothing reads, and for a secret in the clear."""
        root, path = config_paths.split(key) if by_path else (key, ())
        known = ConfigKeys.of(workspace.project).find(root)
        if known.secret and plaintext:
            raise EngineError(
                f"{known.name} is a secret ({known.declared}) and is not kept in the clear",
                hint="Leave --plaintext out: the value is encrypted.",
            )
        return cls(workspace, stack, known, root, path, secret or known.secret)

    def set(self, text: str, ask: AskPassphrase | None) -> None:
        """Writes it into the stack's file. Raises EngineError for a value of another type.

        `ask` asks for the stack's passphrase where the environment has none.
        """
        if not self.is_secret:
            settings = StackSettings.load(self.workspace.project, self.stack)
            leaf = config_paths.leaf_of(text) if self.path else text
            self._save(settings, leaf, text)
            return
        if not self.path:
            self.known.check(text)
        # Opening the stack finds its encryption, and writes the salt to the file if it was lost.
        opened = self.workspace.open(self.stack, passphrase_of(self.workspace, ask))
        self._save(opened.settings, {SECURE: opened.crypter.encrypt(text)}, text)

    def _save(self, settings: StackSettings, leaf: Json, text: str) -> None:
        value = leaf
        if self.path:
            value = config_paths.set_in(settings.get(self.root), self.path, leaf, self.root)
        if not is_secure(value):
            self.known.check(to_text(value, None) if self.path else text)
        settings.set(self.root, value)
        settings.save()


def set_all(
    selected: SelectedStack,
    pairs: tuple[tuple[str, str], ...],
    *,
    by_path: bool,
    tell: Callable[[str], None],
) -> None:
    """Sets what `--config` gives. All keys are known before the first is written."""
    workspace, stack = selected.workspace, selected.name
    settings = [ConfigSetting.of(workspace, stack, key, by_path=by_path) for key, _ in pairs]
    for setting, (key, text) in zip(settings, pairs, strict=True):
        setting.set(text, selected.ask_passphrase)
        how = f"is set, encrypted ({setting.known.declared})" if setting.is_secret else "is set"
        tell(f"{key} {how} in {workspace.project.settings_path(stack).name}")
