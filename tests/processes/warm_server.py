"""Run `gpuform` commands, each in a forked child that has all modules already.

`warm.py` starts this process, and `warm_client.py` connects to its socket. A request has the
arguments, the folder and the environment of a command as JSON, and the three standard streams as
descriptors. The client then forwards its signals, a byte with the number of each; the command of a
client that has ended is killed. The answer is a line of JSON: the exit code of the command, and the
seconds of processor time that it took.

A child reports the modules that it has imported and the keys that it has derived. Later children
then have them.
"""

import atexit
import functools
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from warm_client import LENGTH_BYTES

from gpuform.stacks import cli
from gpuform.stacks.cli import app  # noqa: F401 - for all commands
from gpuform.stacks.engine.secrets import passphrase

ROOT: Final = Path(__file__).parents[2]
SOURCE_FOLDERS: Final = tuple(f"{ROOT / folder}/" for folder in ("schemas", "providers", "stacks"))
NOTE_BYTES: Final = 4096
"""A longer note would not arrive in one piece where several children write at a time."""
READ_AT_START: Final = ("PYTHON", "LC_")
WITHOUT_MEANING: Final = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
"""Variables that an interpreter reads when it begins, but for those that change no result."""

Keys = dict[tuple[str, bytes], bytes]


@dataclass
class CommandServer:
    """Start the requested commands, and report to each client how the command ended."""

    listener: socket.socket
    keys: Keys = field(default_factory=dict)
    unread_notes: bytes = b""
    clients: dict[int, socket.socket] = field(default_factory=dict)
    """The connections by the process ids of their commands."""
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def serve(self) -> None:
        """Serve until standard input ends."""
        self.notes, self._note_writer = os.pipe()
        self.ended, self._ended_writer = os.pipe()
        for descriptor in (self.notes, self.ended, self._ended_writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ended_writer, warn_on_full_buffer=False)
        for source in (self.listener, self.notes, self.ended, sys.stdin.fileno()):
            self.selector.register(source, selectors.EVENT_READ)
        print("ready", flush=True)  # noqa: T201 - read by `warm.py`
        while True:
            for key, _ in self.selector.select():
                if key.fd == sys.stdin.fileno():
                    self._kill_all()
                    return
                self._handle(key)

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self.listener:
            self._begin_command()
        elif key.fd == self.notes:
            self._read_notes()
        elif key.fd == self.ended:
            os.read(self.ended, 1024)
            self._report_ended()
        else:
            self._forward_signals(key.data)

    def _begin_command(self) -> None:
        connection, _ = self.listener.accept()
        try:
            request, streams = receive_request(connection)
        except (EOFError, ConnectionError):  # a client that was killed meanwhile
            connection.close()
            return
        gc.freeze()  # no child shall look through what is here for garbage
        child = os.fork()
        if child == 0:
            self._close()
            connection.close()
            run_command(request, streams, self._note_writer, self.keys)
        for stream in streams:
            os.close(stream)
        self.clients[child] = connection
        self.selector.register(connection, selectors.EVENT_READ, child)

    def _close(self) -> None:
        """Close the server's own descriptors in a child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        self.listener.close()
        for connection in self.clients.values():
            connection.close()
        for descriptor in (self.notes, self.ended, self._ended_writer):
            os.close(descriptor)

    def _forward_signals(self, child: int) -> None:
        connection = self.clients.get(child)
        if connection is None:  # the command has ended since `select` saw the client's bytes
            return
        try:
            numbers = connection.recv(64)
        except ConnectionResetError:
            numbers = b""
        for number in numbers:
            os.kill(child, number)
        if not numbers:
            self.selector.unregister(connection)
            kill_with_group(child)

    def _kill_all(self) -> None:
        for child in self.clients:
            kill_with_group(child)

    def _report_ended(self) -> None:
        for child in [*self.clients]:
            ended, status, usage = os.wait4(child, os.WNOHANG)
            if not ended:
                continue
            connection = self.clients.pop(child)
            with suppress(KeyError):
                self.selector.unregister(connection)
            code = os.waitstatus_to_exitcode(status)
            answer = {"code": code, "processor": usage.ru_utime + usage.ru_stime}
            with connection, suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _read_notes(self) -> None:
        *lines, self.unread_notes = (self.unread_notes + os.read(self.notes, 65_536)).split(b"\n")
        for line in lines:
            note = json.loads(line)
            if "module" in note:
                with suppress(Exception):
                    importlib.import_module(note["module"])
            else:
                salt, key = (bytes.fromhex(note[name]) for name in ("salt", "key"))
                self.keys[note["passphrase"], salt] = key


def kill_with_group(child: int) -> None:
    """Kill a child, which has not been waited for, and the group that it leads."""
    # It leads none before its `setsid`, and has no child of its own then.
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a client's request and the descriptors of the client's standard streams.

    Raises:
        EOFError: the client has ended before the end of the request.
    """
    head, streams, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 3)
    length = int.from_bytes(head, "big")
    encoded_request = bytearray()
    while len(encoded_request) < length:
        encoded_request += (received := connection.recv(length - len(encoded_request)))
        if not received:
            break
    if not head or len(encoded_request) < length:
        for stream in streams:
            os.close(stream)
        raise EOFError
    return json.loads(encoded_request), streams


def run_command(request: dict[str, Any], streams: list[int], notes: int, keys: Keys) -> NoReturn:
    """Become the process of a command, and end as its interpreter would."""
    code: object = 70
    try:
        take_over_request(request, streams)
        passphrase._derive_key = functools.partial(derive_key, keys, passphrase._derive_key)
        atexit.register(write_notes, notes, {*sys.modules}, keys, {*keys})
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        code = 1
    finally:
        end_process(code)


def take_over_request(request: dict[str, Any], streams: list[int]) -> None:
    """Take over the folder, the environment and the streams of a client."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    variables = request["environ"]
    if select_interpreter_variables(variables) != select_interpreter_variables(os.environ):
        command = [sys.executable, "-P", "-m", "gpuform.stacks.cli", *request["arguments"]]
        os.execve(command[0], command, variables)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    tempfile.tempdir = None
    sys.argv = ["gpuform", *request["arguments"]]
    # As in the console script: the processes of `multiprocessing` import the main module again.
    script = Path(sys.executable).with_name("gpuform")
    sys.path[0] = str(script.parent)
    sys.modules["__main__"].__file__ = str(script)
    sys.stdin = sys.__stdin__ = open_stream(0, "r")
    sys.stdout = sys.__stdout__ = open_stream(1, "w")
    sys.stderr = sys.__stderr__ = open_stream(2, "w")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


def select_interpreter_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with an effect only at the start of an interpreter."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(READ_AT_START) and name not in WITHOUT_MEANING
    }


def open_stream(descriptor: int, mode: str) -> io.TextIOWrapper:
    """Return a standard stream with the settings of an interpreter."""
    raw = open(descriptor, f"{mode}b", closefd=False)  # noqa: SIM115 - never closed
    is_error = descriptor == 2
    return io.TextIOWrapper(
        raw,
        encoding="utf-8",
        errors="backslashreplace" if is_error else "strict",
        line_buffering=is_error or os.isatty(descriptor),
    )


def derive_key(
    keys: Keys, derive: Callable[[str, bytes], bytes], passphrase: str, salt: bytes
) -> bytes:
    """Return the key of a passphrase and a salt out of `keys`, where `derive` is called once."""
    if (passphrase, salt) not in keys:
        keys[passphrase, salt] = derive(passphrase, salt)
    return keys[passphrase, salt]


def write_notes(
    notes: int, known_modules: set[str], keys: Keys, known_keys: set[tuple[str, bytes]]
) -> None:
    """Report new keys and new modules of gpuform and dependencies to the server."""
    lines = [
        {"passphrase": passphrase, "salt": salt.hex(), "key": key.hex()}
        for (passphrase, salt), key in keys.items()
        if (passphrase, salt) not in known_keys
    ]
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None) or ""
        is_ours = file.startswith((sys.prefix, sys.base_prefix, *SOURCE_FOLDERS))
        if is_ours and name not in known_modules and "__m" not in name:
            lines.append({"module": name})
    for line in lines:
        note = json.dumps(line).encode() + b"\n"
        if len(note) <= NOTE_BYTES:
            os.write(notes, note)


def end_process(code: object) -> NoReturn:
    """End this process like an interpreter: threads first, then registered functions."""
    number = 0 if code is None else code
    if not isinstance(number, int):
        print(number, file=sys.stderr)  # noqa: T201 - as an interpreter does
        number = 1
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(number & 0xFF)


def main() -> None:
    """Serve at the socket whose path is the first argument."""
    importlib.import_module("gpuform.stacks.testing.preloading")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(128)
        CommandServer(listener).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
