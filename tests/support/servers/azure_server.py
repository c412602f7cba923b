"""An Azure container over real HTTP: azurite as a process, where `azurite-blob` is installed."""

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
from support.servers.bucket_server import free_port, wait_for

ACCOUNT = "devstoreaccount1"
KEY = (  # azurite's own, which everybody knows
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
PROGRAM = shutil.which("azurite-blob")


@contextlib.contextmanager
def serving_azure() -> Iterator[int]:
    """The port of a server, until the end."""
    assert PROGRAM
    port = free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    process = subprocess.Popen(
        [PROGRAM, *options, "--blobPort", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port, process)
        yield port
    finally:
        process.kill()
        process.wait()


def make_container(port: int, name: str) -> None:
    date, version = email.utils.formatdate(usegmt=True), "2020-10-02"
    path = f"/{ACCOUNT}/{name}"
    lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}"]
    text = "\n".join([*lines, f"/{ACCOUNT}{path}", "restype:container"])
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
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


def azure_url(port: int, container: str) -> str:
    return f"azblob://{container}/team/state?localemu=true&domain=127.0.0.1:{port}"
