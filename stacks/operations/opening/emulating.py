"""`--emulate`: an emulator in this process for the length of a command."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.operations.opening.variables import set_variables

_STORE = Path(".gpuform", "emulator.db")
_PACKAGES = ("flask", "werkzeug", "wsproto")


def emulator_for(
    directory: Path, *, wanted: bool, root: Path | None = None
) -> AbstractContextManager[None]:
    """The emulator of a project, its objects kept in a file; nothing when not wanted.

    That is the nearest one upwards (see `share`), else one of the project's own; where it is one of
    several stacks, that of their `root`.
    """
    if not wanted:
        return nullcontext()
    require_emulator()
    store = _store_of(directory)
    return _emulating(root / _STORE if root is not None and not store.exists() else store)


def require_emulator() -> None:
    """Raises EngineError, with what to install, where the emulator's packages are missing."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        # Only here: most runs have nothing to do with how gpuform was installed.
        from gpuform.stacks.engine.machine import requirement  # noqa: PLC0415

        raise EngineError(
            f"the emulator needs packages that are not installed: {', '.join(missing)}",
            f"Install them: pip install '{requirement('emulator')}'",
        )


def share(folder: Path) -> Path:
    """Makes the file that all projects in a folder keep emulated objects in; returns its path."""
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    store = folder / _STORE
    _make_folder(store)
    with serve(store_path=store):
        return store


def shared_store(directory: Path, root: Path) -> Path:
    """The file of a project's emulated objects: the nearest one upwards, else that of `root`."""
    found = _store_of(directory)
    return found if found.exists() else root / _STORE


@contextmanager
def emulators(stores: Sequence[Path]) -> Iterator[Mapping[Path, Mapping[str, str]]]:
    """An emulator for each file, and the variables that lead other processes to it."""
    require_emulator()
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    with ExitStack() as held:
        found = {}
        for store in stores:
            _make_folder(store)
            found[store] = held.enter_context(serve(store_path=store)).environment
        yield found


def _store_of(directory: Path) -> Path:
    places = [folder / _STORE for folder in (directory, *directory.parents)]
    return next((store for store in places if store.exists()), places[0])


@contextmanager
def _emulating(store: Path) -> Iterator[None]:
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    _make_folder(store)
    with serve(store_path=store) as server, set_variables(server.environment):
        yield


def _make_folder(store: Path) -> None:
    try:
        store.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise EngineError(
            f"emulated objects are kept in {store.parent}, which cannot be made: {error.strerror}"
        ) from error
