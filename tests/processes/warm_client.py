"""Ask a warm process to run a command, with as few imports as possible.

The `gpuform` on the PATH of tests calls only `run_script`.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final

LENGTH_BYTES: Final = 4
"""Of the length of a request, which comes before it."""
FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def send_request(
    address: str,
    arguments: Sequence[str],
    folder: str,
    environ: Mapping[str, str],
    streams: Sequence[int],
) -> socket.socket:
    """Request a command with these descriptors as standard streams."""
    os.umask(umask := os.umask(0))
    request = {"arguments": [*arguments], "folder": folder, "environ": {**environ}, "umask": umask}
    encoded_request = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [len(encoded_request).to_bytes(LENGTH_BYTES, "big")], streams)
    connection.sendall(encoded_request)
    return connection


def receive_answer(connection: socket.socket) -> tuple[int, float]:
    """Wait until the command has ended.

    Returns:
        Its exit code, of one that was killed the signal's number below zero, and the seconds of
        processor time that it took.
    """
    with connection, connection.makefile() as lines:
        answer = json.loads(lines.readline())
    return answer["code"], answer["processor"]


def run_script(address: str) -> None:
    """Run the command in this process's arguments, and end with the same exit code."""
    connection = send_request(address, sys.argv[1:], os.getcwd(), os.environ, (0, 1, 2))  # noqa: PTH109
    for number in FORWARDED:
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    code, _ = receive_answer(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code in FORWARDED else None
        os.kill(os.getpid(), -code)
    sys.exit(code)
