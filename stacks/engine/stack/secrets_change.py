"""A new key for a stack's secrets: its settings and its state change together.

Two files cannot be replaced at once. So what both are to hold is written to a third one first: with
that the change is decided, and whoever opens the stack next finishes what was cut off.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project, StackSettings
from gpuform.stacks.engine.secrets import SecretsManager
from gpuform.stacks.engine.state import Manifest, Snapshot, compute_digest, edits
from gpuform.stacks.engine.store import MAKE_ROOM, Backend, BackendError, Files
from gpuform.stacks.engine.values import value_json

_VERSION = 1
_KIND = "secrets-change"


@dataclass(frozen=True, slots=True)
class _Replacement:
    """What a file is to hold, and the digest of what it held."""

    after: bytes
    before: str

    def is_due(self, current: bytes, where: str) -> bool:
        """False when it is done. Raises EngineError for a file that changed otherwise."""
        if current == self.after:
            return False
        if compute_digest(current) == self.before:
            return True
        raise EngineError(
            f"a change of the secrets provider was interrupted, and {where} has changed since",
            hint="Put the file back as it was, and run the command again.",
        )


@dataclass(frozen=True, slots=True)
class SecretsChange:
    """A change of one stack's secrets provider; the stack's lock is held meanwhile."""

    backend: Backend
    project: Project
    stack: str

    @property
    def is_pending(self) -> bool:
        """Whether one was cut off."""
        return self._kept is not None

    def make(
        self,
        settings: StackSettings,
        snapshot: Snapshot,
        old: SecretsManager,
        new: SecretsManager,
    ) -> None:
        """Encrypts everything under a new key.

        The settings and the state are the stack's own, as they are on disk. Raises SecretsError
        before anything is changed.
        """
        old.check()
        new.check()
        settings_before = self._settings()
        settings.reencrypt(old, new)
        settings.set_secrets_provider(new.provider)
        after = replace(snapshot, secrets_provider=new.provider, manifest=Manifest())
        edits.check(after)
        checkpoint = _Replacement(after.to_json(new), compute_digest(self._checkpoint()))
        texts = _Replacement(settings.text.encode(), compute_digest(settings_before))
        self._keep(_encoded(checkpoint, texts))
        self.finish()

    def finish(self) -> None:
        """Does what is decided and not done. Raises EngineError, and then it stays decided."""
        kept = self._kept
        where = self.backend.describe_own_location(self.project.name, self.stack, _KIND)
        checkpoint, settings = _decoded(kept or b"", where)
        state = self.backend.where(self.project.name, self.stack)
        write_checkpoint = checkpoint.is_due(self._checkpoint(), state)
        write_settings = settings.is_due(self._settings(), str(self._settings_path))
        try:
            if write_checkpoint:
                self.backend.write(self.project.name, self.stack, checkpoint.after)
            if write_settings:
                path = self._settings_path
                Files(path.parent).write(path.name, settings.after)
        except BackendError as error:
            error.hint = (
                f"{MAKE_ROOM} The new secrets provider is decided, and any command finishes it."
            )
            raise
        self._keep(None)

    @property
    def _kept(self) -> bytes | None:
        return self.backend.read_own(self.project.name, self.stack, _KIND)

    def _keep(self, data: bytes | None) -> None:
        self.backend.write_own(self.project.name, self.stack, _KIND, data)

    @property
    def _settings_path(self) -> Path:
        return self.project.settings_path(self.stack)

    def _settings(self) -> bytes:
        path = self._settings_path
        return path.read_bytes() if path.exists() else b""

    def _checkpoint(self) -> bytes:
        return self.backend.read(self.project.name, self.stack) or b""


def _encoded(checkpoint: _Replacement, settings: _Replacement) -> bytes:
    return value_json.dump(
        {
            "gpuform-secrets-change": _VERSION,
            "checkpoint": {"before": checkpoint.before, "after": checkpoint.after.decode()},
            "settings": {"before": settings.before, "after": settings.after.decode()},
        }
    )


def _decoded(data: bytes, where: str) -> tuple[_Replacement, _Replacement]:
    try:
        document: Any = value_json.load(data)
        version = document["gpuform-secrets-change"]
        found = [
            _Replacement(str(document[part]["after"]).encode(), str(document[part]["before"]))
            for part in ("checkpoint", "settings")
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise _unusable(where, str(error)) from error
    if version != _VERSION:
        raise _unusable(where, f"it has the version {version!r}")
    return found[0], found[1]


def _unusable(where: str, why: str) -> EngineError:
    return EngineError(
        f"{where} says how to finish an interrupted change of the secrets provider, and cannot be "
        f"used: {why}",
        hint="Finish with the gpuform that began it.",
    )
