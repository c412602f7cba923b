"""Run the emulator of `--emulate` in this process, for the length of a command.

Operations call this module; it serves `providers/emulator`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from gpuform.providers.context import RunContext, get_run_context, use_run_context
from gpuform.stacks.engine.errors import EngineError

_STORE = Path(".gpuform", "emulator.db")
_PACKAGES = ("flask", "werkzeug", "wsproto")


def run_emulator(
    directory: Path, *, emulate: bool, root: Path | None = None
) -> AbstractContextManager[RunContext]:
    """Run a project's emulator while the context lasts; do nothing if `emulate` is False.

    The result is the present run context, with the emulator's variables if one runs; also calls
    without a context of their own use it meanwhile.

    The emulator's objects are in the nearest file in `directory` or above (see
    `create_shared_store`). If none exists, it is created in `directory`, or in `root`, the folder
    of the workspace that the stack belongs to, if any.

    Raises:
        EngineError: the packages of the emulator are missing, or the file's folder cannot be made.
    """
    if not emulate:
        return nullcontext(get_run_context())
    require_emulator()
    store = _find_store(directory)
    return _serve_store(root / _STORE if root is not None and not store.exists() else store)


def require_emulator() -> None:
    """Raise EngineError if the packages of the emulator are missing."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        # Imported here, because only this error says how gpuform was installed.
        from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415

        raise EngineError(
            f"the emulator requires packages that are not installed: {', '.join(missing)}",
            f"Install them: pip install '{get_pip_requirement('emulator')}'",
        )


def create_shared_store(folder: Path) -> Path:
    """Create the file of emulated objects for all projects of a folder, and return the path."""
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    store = folder / _STORE
    _make_folder(store)
    # The server writes the file when it starts.
    with serve(store_path=store):
        return store


def find_shared_store(directory: Path, root: Path) -> Path:
    """Return the file of a project's emulated objects: the nearest upwards, else `root`'s."""
    store = _find_store(directory)
    return store if store.exists() else root / _STORE


@contextmanager
def serve_emulators(stores: Sequence[Path]) -> Iterator[Mapping[Path, Mapping[str, str]]]:
    """Serve an emulator for each file, and yield each one's variables by file.

    The variables lead another process to the emulator; in this process they are not used.
    """
    require_emulator()
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    with ExitStack() as resources:
        variables = {}
        for store in stores:
            _make_folder(store)
            variables[store] = resources.enter_context(serve(store_path=store)).environment
        yield variables


def _find_store(directory: Path) -> Path:
    """Return the nearest existing store of `directory` or of a folder above.

    Without one, return the path of a new store in `directory`.
    """
    # Upwards, because the projects of a folder may share one (`gpuform emulator share`).
    candidates = [folder / _STORE for folder in (directory, *directory.parents)]
    return next((store for store in candidates if store.exists()), candidates[0])


@contextmanager
def _serve_store(store: Path) -> Iterator[RunContext]:
    """Serve an emulator, and yield the run context that leads to the emulator."""
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    _make_folder(store)
    with (
        serve(store_path=store) as server,
        use_run_context(get_run_context().with_variables(server.environment)) as run_context,
    ):
        yield run_context


def _make_folder(store: Path) -> None:
    """Create the folder of an emulator's file. Raises EngineError."""
    try:
        store.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise EngineError(
            f"folder {store.parent} for emulated objects cannot be created: {error.strerror}"
        ) from error
