"""Serve Azure containers over real HTTP by azurite, where `azurite-blob` is installed."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import shutil
import subprocess
from collections.abc import Iterator

from processes.limits import LAST_RESORT
from support.servers.bucket_server import wait_until_listening
from support.servers.ports import reserve_port

ACCOUNT = "devstoreaccount1"
KEY = (  # azurite's own, which everybody knows
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
PROGRAM = shutil.which("azurite-blob")


@contextlib.contextmanager
def serve_azure() -> Iterator[int]:
    """Run azurite until the block ends, and yield the port."""
    assert PROGRAM
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with reserve_port() as port:
        process = subprocess.Popen(
            [PROGRAM, *options, "--blobPort", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_listening(port, process)
            yield port
        finally:
            process.kill()
            process.wait()


def create_container(port: int, name: str) -> None:
    date, version = email.utils.formatdate(usegmt=True), "2020-10-02"
    path = f"/{ACCOUNT}/{name}"
    lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}"]
    string_to_sign = "\n".join([*lines, f"/{ACCOUNT}{path}", "restype:container"])
    digest = hmac.new(base64.b64decode(KEY), string_to_sign.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LAST_RESORT)
    with contextlib.closing(connection):
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()


def build_azure_url(port: int, container: str) -> str:
    return f"azblob://{container}/team/state?localemu=true&domain=127.0.0.1:{port}"
