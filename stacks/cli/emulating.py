"""`--emulate`: an emulator in this process for the length of a command."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import click


def emulator_for(directory: Path, *, wanted: bool) -> AbstractContextManager[None]:
    """The emulator of a project, its objects kept in `.gpuform/`; nothing when not wanted."""
    return _emulating(directory / ".gpuform" / "emulator.db") if wanted else nullcontext()


@contextmanager
def _emulating(store: Path) -> Iterator[None]:
    from gpuform.providers.emulator.server import environment, serve  # noqa: PLC0415 - Flask

    try:
        store.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise click.ClickException(
            f"--emulate keeps its objects in {store.parent}, which cannot be made: {error.strerror}"
        ) from error
    with serve(store_path=store) as server:
        variables = environment(server.url)
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
