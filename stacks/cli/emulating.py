"""`--emulate`: an emulator in this process for the length of a command."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import click

from gpuform.stacks.cli.variables import set_variables


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
    with serve(store_path=store) as server, set_variables(environment(server.url)):
        yield
