"""A service that receives notifications as JSON over HTTP, for tests."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Webhook:
    """The messages that the service got; `status` is the code of its answers."""

    address: str = ""
    """The address for Apprise, with a token as in real addresses."""
    status: int = 200
    messages: list[dict[str, Any]] = field(default_factory=list)

    def take_messages(self) -> list[tuple[str, str]]:
        """Return title and text of the messages so far, and forget them."""
        taken = [(message["title"], message["message"]) for message in self.messages]
        self.messages.clear()
        return taken

    def take_titles(self) -> list[str]:
        """Return the titles of the messages so far, and forget them."""
        return [title for title, _ in self.take_messages()]


TOKEN = "t0ken-of-the-channel"


@contextmanager
def receive_notifications() -> Iterator[Webhook]:
    """Run the service on a port of this machine."""
    webhook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if webhook.status < 400:
                webhook.messages.append(body)
            self.send_response(webhook.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        webhook.address = f"json://127.0.0.1:{server.server_port}/{TOKEN}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield webhook
        finally:
            server.shutdown()
