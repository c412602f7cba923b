"""Copy stacks that are created on an emulator once a process: each test works on its own copy."""

import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from support.servers.ports import bind_free_port

from gpuform.providers.emulator.server import Server, serve


class StackCopies:
    """Project directories and emulators as they were when a stack had been made, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[str, socket.socket] = {}

    @contextmanager
    def serve_copy(
        self, name: str, project: Path, create_stack: Callable[[Server], None]
    ) -> Iterator[Server]:
        """Serve the emulator of the stack `name`, with the stack's files in `project`.

        Args:
            name: tests that ask for the same name get copies of the same stack.
            project: the project's directory, with the same files for all stacks of this name.
            create_stack: creates the stack in `project`, the first time.
        """
        store = project.with_name("emulator.sqlite")
        copy_folder = self._folder / name
        is_first = name not in self._ports
        if is_first:
            # The state of a stack holds addresses with the port.
            self._ports[name] = bind_free_port()
        else:
            shutil.copytree(copy_folder / "project", project, dirs_exist_ok=True)
            shutil.copy(copy_folder / "emulator.sqlite", store)
        port = self._ports[name].getsockname()[1]
        with serve(port, store, seed=name, smallest_wait=20.0) as server:
            if is_first:
                create_stack(server)
                shutil.copytree(project, copy_folder / "project")
                _copy_database(store, copy_folder / "emulator.sqlite")
            yield server

    def close(self) -> None:
        for port in self._ports.values():
            port.close()


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)
