"""`--emulate`: an emulator in this process for the length of a command."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import click

from gpuform.stacks.cli.variables import set_variables

_STORE = Path(".gpuform", "emulator.db")


def emulator_for(directory: Path, *, wanted: bool) -> AbstractContextManager[None]:
    """The emulator of a project, its objects kept in a file; nothing when not wanted.

    That is the nearest one upwards (see `share`), else one of the project's own.
    """
    return _emulating(_store_of(directory)) if wanted else nullcontext()


def share(folder: Path) -> Path:
    """Makes the file that all projects in a folder keep emulated objects in; returns its path."""
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    store = folder / _STORE
    _make_folder(store)
    with serve(store_path=store):
        return store


def _store_of(directory: Path) -> Path:
    places = [folder / _STORE for folder in (directory, *directory.parents)]
    return next((store for store in places if store.exists()), places[0])


@contextmanager
def _emulating(store: Path) -> Iterator[None]:
    from gpuform.providers.emulator.server import environment, serve  # noqa: PLC0415 - Flask

    _make_folder(store)
    with serve(store_path=store) as server, set_variables(environment(server.url)):
        yield


def _make_folder(store: Path) -> None:
    try:
        store.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise click.ClickException(
            f"emulated objects are kept in {store.parent}, which cannot be made: {error.strerror}"
        ) from error
