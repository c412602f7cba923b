"""Stacks on an emulator that are made once a process: each test works on a copy of its own."""

import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gpuform.providers.emulator.server import Server, serve

HOST = "127.0.0.1"


class StackCopies:
    """Project directories and emulators as they were when a stack had been made, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[str, socket.socket] = {}

    @contextmanager
    def serving(self, name: str, project: Path, make: Callable[[Server], None]) -> Iterator[Server]:
        """Serve the emulator of the stack `name`, and have its files in `project`.

        Args:
            name: who asks for the same name gets copies of the same stack.
            project: the project's directory. Its files are those of every stack of that name.
            make: makes the stack in `project`, the first time.
        """
        store = project.with_name("emulator.sqlite")
        kept = self._folder / name
        is_first = name not in self._ports
        if is_first:
            self._ports[name] = _reserve_port()
        else:
            shutil.copytree(kept / "project", project, dirs_exist_ok=True)
            shutil.copy(kept / "emulator.sqlite", store)
        with serve(self._ports[name].getsockname()[1], store, seed=name) as server:
            if is_first:
                make(server)
                shutil.copytree(project, kept / "project")
                _copy_database(store, kept / "emulator.sqlite")
            yield server

    def close(self) -> None:
        for port in self._ports.values():
            port.close()


def _reserve_port() -> socket.socket:
    """Keep a port for servers that share addresses: what a stack knows of has the port in it."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind((HOST, 0))
    return port


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)
