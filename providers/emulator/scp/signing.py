"""The platform's signature, and the URL that a client signed.

The rule is that of the official Go SDK, `client/signature_generator.go`.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import quote
from wsgiref.types import WSGIEnvironment


@dataclass(frozen=True)
class Signed:
    """What a signature covers; the body is not part of it."""

    method: str
    url: str
    timestamp: str
    access_key: str
    account_id: str
    client_type: str

    def signature(self, secret_key: str) -> str:
        message = self.method + self.url + self.timestamp
        message += self.access_key + self.account_id + self.client_type
        digest = hmac.digest(secret_key.encode(), message.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()


def requested_url(environ: WSGIEnvironment) -> str:
    """The absolute URL as it was on the wire: scheme, the client's Host, raw path and query.

    A caller in process gives no raw path; there it is the path percent-encoded anew.
    """
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw is None:
        query = environ.get("QUERY_STRING", "")
        raw = quote(environ.get("PATH_INFO", "")) + (f"?{query}" if query else "")
    if "://" in raw.partition("?")[0]:  # a client that takes this for a proxy sends it whole
        return str(raw)
    host = environ.get("HTTP_HOST") or f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}"
    return f"{environ['wsgi.url_scheme']}://{host}{raw}"
