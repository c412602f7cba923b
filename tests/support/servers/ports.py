"""Reserve ports of this machine: for servers that start later, for addresses without a server."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

HOST: Final = "127.0.0.1"


@contextlib.contextmanager
def reserve_port() -> Iterator[int]:
    """Yield a port of 127.0.0.1 that no other program gets until the block ends.

    Nothing listens there, so connections are refused. A server with SO_REUSEADDR can bind the port.
    """
    with bind_free_port() as reserved:
        port: int = reserved.getsockname()[1]
        yield port


def bind_free_port() -> socket.socket:
    """Return a socket that is bound to a free port of 127.0.0.1, and does not listen."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    return reserved
