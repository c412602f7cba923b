"""State in a folder of this machine, or of one that it has mounted."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gpuform.stacks.engine.machine import KernelLock, replace_file
from gpuform.stacks.engine.state import FileLog, Log
from gpuform.stacks.engine.store.backend_files import MAKE_ROOM, BackendError
from gpuform.stacks.engine.store.storage.protocol import (
    ABSENT,
    Blob,
    Entry,
    Exclusion,
    Unwritable,
    Version,
)


class Files:
    """A storage in the folder `root`, which exists."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str) -> Blob | None:
        path = self._path(name)
        try:
            return Blob(path.read_bytes(), ABSENT, _modified(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BackendError(f"{path} cannot be read: {error.strerror or error}") from error

    def write(self, name: str, data: bytes, replacing: Version | None = None) -> Version:
        del replacing
        path = self._path(name)
        try:
            replace_file(path, data)
        except OSError as error:
            raise Unwritable(
                f"{path} cannot be written: {error.strerror or error}",
                hint=f"What was there before is untouched. {MAKE_ROOM}",
            ) from error
        return ABSENT

    def copy(self, source: str, target: str) -> bool:
        found = self.read(source)
        if found is not None:
            self.write(target, found.data)
        return found is not None

    def delete(self, *names: str) -> None:
        for name in names:
            path = self._path(name)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise BackendError(
                    f"{path} cannot be removed: {error.strerror or error}",
                    hint="Fix the permissions, or remove the file by hand.",
                ) from error

    def entries(self, folder: str, after: str = "") -> list[Entry]:
        files = (path for path in self._path(folder).rglob("*") if path.is_file())
        named = sorted((path.relative_to(self.root).as_posix(), path) for path in files)
        found = []
        for name, path in named:
            with suppress(FileNotFoundError):  # gone meanwhile: another process's lock, say
                if name > after:
                    found.append(Entry(name, _modified(path)))
        return found

    def where(self, name: str) -> str:
        return str(self._path(name))

    def name_of(self, where: str) -> str | None:
        path = Path.cwd() / where
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None

    def exclusion(self, name: str) -> Exclusion:
        return KernelLock(self._path(name))

    def log(self, name: str, guard: Callable[[], None], unsaved: Path | None) -> Log:
        del guard, unsaved
        return FileLog(self._path(name))

    def _path(self, name: str) -> Path:
        return self.root / name


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime_ns / 1e9, UTC)
