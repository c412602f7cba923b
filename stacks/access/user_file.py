"""Files of the user that gpuform changes a part of: whole or not at all, and never for others."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuform.stacks.access.errors import NoAccess
from gpuform.stacks.access.file_lock import locked
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file

Change = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file outside of the project. `what` names it in messages: `the kubeconfig`.

    `is_private`: from its first change on, only its owner can read it. Symbolic links are followed
    and stay. Every method raises EngineError.
    """

    path: Path
    what: str
    is_private: bool = True

    def read(self) -> str:
        """Its text; empty when there is no such file."""
        try:
            return self.path.read_bytes().decode()
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            raise NoAccess(f"{self.what} {self.path} is not UTF-8 text") from None
        except OSError as error:
            raise self._failed("read", error) from None

    def refuse_inside(self, project: Path) -> None:
        """What a project has is committed and handed on; credentials are not."""
        real, folder = self.path.resolve(), project.resolve()
        if real.is_relative_to(folder):
            leads = f", which leads to {real}," if real != self.path.absolute() else ""
            raise NoAccess(
                f"{self.path}{leads} is inside the project {folder}",
                hint="Files with credentials are kept out of projects, which are committed and "
                "handed on. Choose a file elsewhere with --file, such as ~/.kube/config.",
            )

    def update(self, change: Change) -> bool:
        """Puts in its place what `change` makes of its text; whether that was another one.

        Under the lock that kubectl takes, too.
        """
        try:
            if not self.path.parent.is_dir():
                self.path.parent.mkdir(parents=True, mode=0o700)
            with locked(self.path):
                return self._update(change)
        except OSError as error:
            raise self._failed("changed", error) from None

    def delete(self) -> bool:
        """Deletes it; whether it was there."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failed("deleted", error) from None
        return True

    def _update(self, change: Change) -> bool:
        while True:
            before = self.read()
            after = change(before)
            if after == before:
                return False
            self._refuse_unwritable()
            if self.read() == before:  # else an editor, which knows no locks, was faster
                break
        if self.is_private and self.path.exists():
            self.path.chmod(stat.S_IMODE(self.path.stat().st_mode) & 0o600)
        replace_file(self.path, after.encode())
        return True

    def _refuse_unwritable(self) -> None:
        """A file is put in its place by its folder's leave: its own mode has to be asked."""
        if not self.path.exists():
            return
        mode = self.path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise NoAccess(f"{self.what} {self.path} is no ordinary file")
        if not mode & stat.S_IWUSR or not os.access(self.path, os.W_OK):
            raise NoAccess(
                f"{self.what} {self.path} is read-only",
                hint="Nothing was changed. Make it writable, or choose another file with --file.",
            )

    def _failed(self, done: str, error: OSError) -> EngineError:
        return EngineError(
            f"{self.what} {self.path} cannot be {done}: {error.strerror or error}",
            hint="Nothing was changed.",
        )
