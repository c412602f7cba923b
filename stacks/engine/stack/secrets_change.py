"""Change the secrets provider of a stack: re-encrypt its settings and its state together.

Two files cannot be replaced atomically. So the new contents of both are written to a third file
first: then the change is decided, and the next command that opens the stack finishes an interrupted
change. `Workspace` and `gpuform stack change-secrets-provider` call this module.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.project import Project, StackSettings
from gpuform.stacks.engine.secrets import SecretsManager
from gpuform.stacks.engine.state import Manifest, Snapshot, compute_digest, edits
from gpuform.stacks.engine.store import MAKE_ROOM, Backend, BackendError, Files

_VERSION = 1
_KIND = "secrets-change"


@dataclass(frozen=True, slots=True)
class _Replacement:
    """The new content of a file, and the digest of its old content."""

    after: bytes
    before: str

    def is_due(self, current: bytes, where: str) -> bool:
        """Return True if the file still has the old content, False for the new content.

        Raises:
            EngineError: the file has changed in another way.
        """
        if current == self.after:
            return False
        if compute_digest(current) == self.before:
            return True
        raise EngineError(
            f"a change of the secrets provider was interrupted, and {where} was edited since",
            hint="Undo the edits of the file, and run the command again.",
        )


@dataclass(frozen=True, slots=True)
class SecretsChange:
    """A change of one stack's secrets provider; the caller holds the stack's lock."""

    backend: Backend
    project: Project
    stack: str

    @property
    def is_pending(self) -> bool:
        """Return True if an interrupted change of the secrets provider is recorded."""
        return self._read_pending_change() is not None

    def make(
        self,
        settings: StackSettings,
        snapshot: Snapshot,
        old: SecretsManager,
        new: SecretsManager,
    ) -> None:
        """Encrypt all secrets of the stack with the new provider, and write state and settings.

        After an interruption the next command on the stack finishes the change.

        Args:
            settings: the stack's settings as stored; changed in place.
            snapshot: the stack's state as stored.
            old: the present secrets manager.
            new: the secrets manager to change to.

        Raises:
            SecretsError: a secrets manager does not work; nothing is changed.
            EngineError: a file cannot be written; the change stays pending.
        """
        # Both have to work before anything is written.
        old.check()
        new.check()
        settings_before = self._read_settings()
        settings.reencrypt(old, new)
        settings.set_secrets_provider(new.provider)
        after = replace(snapshot, secrets_provider=new.provider, manifest=Manifest())
        edits.check(after)
        checkpoint = _Replacement(after.to_json(new), compute_digest(self._read_checkpoint()))
        settings_replacement = _Replacement(
            settings.content.encode(), compute_digest(settings_before)
        )
        # From here on the change is decided: any command that opens the stack finishes it.
        self._write_pending_change(_encode_change(checkpoint, settings_replacement))
        self.finish()

    def finish(self) -> None:
        """Write the files of a decided change.

        Raises:
            EngineError: there is no decided change, or a file cannot be written or has changed;
                then the change stays pending.
        """
        where = self.backend.describe_own_location(self.project.name, self.stack, _KIND)
        checkpoint, settings = _decode_change(self._read_pending_change() or b"", where)
        state = self.backend.locate_checkpoint(self.project.name, self.stack)
        write_checkpoint = checkpoint.is_due(self._read_checkpoint(), state)
        write_settings = settings.is_due(self._read_settings(), str(self._settings_path))
        try:
            if write_checkpoint:
                self.backend.write(self.project.name, self.stack, checkpoint.after)
            if write_settings:
                path = self._settings_path
                Files(path.parent).write(path.name, settings.after)
        except BackendError as error:
            error.hint = (
                f"{MAKE_ROOM} The change of the secrets provider has begun; the next command "
                "finishes it."
            )
            raise
        # Removed last: after a crash the next command finishes the change.
        self._write_pending_change(None)

    def _read_pending_change(self) -> bytes | None:
        """Return the stored record of an interrupted change, or None without one."""
        return self.backend.read_own(self.project.name, self.stack, _KIND)

    def _write_pending_change(self, data: bytes | None) -> None:
        """Store the record of the change, or remove it if `data` is None."""
        self.backend.write_own(self.project.name, self.stack, _KIND, data)

    @property
    def _settings_path(self) -> Path:
        """Return the path of the stack's settings file."""
        return self.project.get_settings_path(self.stack)

    def _read_settings(self) -> bytes:
        """Return the content of the settings file, empty if there is no file."""
        path = self._settings_path
        return path.read_bytes() if path.exists() else b""

    def _read_checkpoint(self) -> bytes:
        """Return the content of the stack's checkpoint, empty if there is none."""
        return self.backend.read(self.project.name, self.stack) or b""


def _encode_change(checkpoint: _Replacement, settings: _Replacement) -> bytes:
    """Return the record of a change: new contents and old digests of checkpoint and settings."""
    return value_json.dump(
        {
            "gpuform-secrets-change": _VERSION,
            "checkpoint": {"before": checkpoint.before, "after": checkpoint.after.decode()},
            "settings": {"before": settings.before, "after": settings.after.decode()},
        }
    )


def _decode_change(data: bytes, where: str) -> tuple[_Replacement, _Replacement]:
    """Return the new checkpoint and the new settings of a change. Raises EngineError."""
    try:
        document: Any = value_json.load(data)
        version = document["gpuform-secrets-change"]
        replacements = [
            _Replacement(str(document[part]["after"]).encode(), str(document[part]["before"]))
            for part in ("checkpoint", "settings")
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise _build_unusable_error(where, str(error)) from error
    if version != _VERSION:
        raise _build_unusable_error(where, f"it has the version {version!r}")
    return replacements[0], replacements[1]


def _build_unusable_error(where: str, reason: str) -> EngineError:
    """Build the error for an unusable record of a secrets change, stored at `where`."""
    return EngineError(
        f"{where}, the record of an interrupted change of the secrets provider, cannot be used: "
        f"{reason}",
        hint="Finish the change with the version of gpuform that began it.",
    )
