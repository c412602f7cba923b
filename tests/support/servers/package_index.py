"""Serve wheels by the simple API of package indexes, as PEP 503 describes it."""

import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO

from flask import Flask, Response
from werkzeug.serving import make_server


@dataclass
class PackageIndex:
    """The wheels of an index by file name, and its address."""

    url: str = ""
    wheels: dict[str, bytes] = field(default_factory=dict)

    def publish(self, name: str, version: str, *requirements: str) -> None:
        """Publish a wheel with one module, in the place of one with this version."""
        metadata_lines = [
            *("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"),
            *("Provides-Extra: cloud", "Requires-Python: >=3.11"),
            *(f"Requires-Dist: {requirement}" for requirement in requirements),
        ]
        files = {
            f"{name}.py": f"version = {version!r}\n",
            f"{name}-{version}.dist-info/METADATA": "\n".join(metadata_lines) + "\n",
            f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
            "Root-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record_path = f"{name}-{version}.dist-info/RECORD"
        files[record_path] = "".join(f"{path},,\n" for path in (*files, record_path))
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path, text in files.items():
                archive.writestr(zipfile.ZipInfo(path), text)
        self.wheels[f"{name}-{version}-py3-none-any.whl"] = packed.getvalue()


@contextmanager
def serve_package_index() -> Iterator[PackageIndex]:
    """Serve an empty index on a free port."""
    index = PackageIndex()
    app = Flask(__name__)

    @app.get("/simple/<name>/")
    def list_wheels(name: str) -> Response:
        links = "".join(
            f'<a href="/files/{file}">{file}</a>'
            for file in index.wheels
            if file.startswith(f"{name}-")
        )
        return Response(links, status=200 if links else 404, mimetype="text/html")

    @app.get("/files/<name>")
    def download(name: str) -> Response:
        return Response(index.wheels[name], mimetype="application/octet-stream")

    server = make_server("127.0.0.1", 0, app, threaded=True)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
