"""`--emulate`: an emulator in this process for the length of a command."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path


def emulator_for(directory: Path, *, wanted: bool) -> AbstractContextManager[None]:
    """The emulator of a project, its objects kept in `.gpuform/`; nothing when not wanted."""
    return _emulating(directory / ".gpuform" / "emulator.db") if wanted else nullcontext()


@contextmanager
def _emulating(store: Path) -> Iterator[None]:
    from gpuform.providers.emulator.server import environment, serve  # noqa: PLC0415 - Flask

    store.parent.mkdir(exist_ok=True)
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
