"""Files as values: their hashes are those that the Pulumi CLI wrote for the same program.

`file_hashes.json` holds the program's files and what Pulumi CLI 3.274.1 had in its state, as
`pulumi stack export --show-secrets` shows it; FOLDER stands for the program's folder.
"""

import base64
import functools
import http.server
import json
import threading
from pathlib import Path

import pytest

from gpuform.providers.values import Archive, Asset, are_equal
from gpuform.stacks.engine import value_json

RECORDED = Path(__file__).with_name("file_hashes.json")
PROGRAM = """
from pulumi import *


def values():
    return dict(
        file=FileAsset("a.txt"),
        text=StringAsset("some text"),
        remote=RemoteAsset("file://FOLDER/a.txt"),
        folder=FileArchive("dir"),
        zip=FileArchive("z.zip"),
        tgz=FileArchive("./t.tar.gz"),
        rarchive=RemoteArchive("file://FOLDER/z.zip"),
        many=AssetArchive(
            {
                "x.txt": FileAsset("a.txt"),
                "long/" + "n" * 60 + "/" + "m" * 60: StringAsset("t"),
                "ünï.txt": StringAsset("ü"),
                "d": FileArchive("dir"),
                "z": FileArchive("z.zip"),
                "t": FileArchive("t.tar.gz"),
                "x.txt/../x.txt": StringAsset("dup"),
            }
        ),
        long=AssetArchive({"n" * 120: StringAsset("t" * 1000)}),
        none=AssetArchive({}),
        secret=Output.secret(StringAsset("sec")),
        nested={"l": [StringAsset("q")]},
    )


class Component(ComponentResource):
    def __init__(self):
        super().__init__("x:y:C", "c", values())
        self.register_outputs(values())


Component()
for name, value in values().items():
    export(name, value)
export("empty", StringAsset(""))
"""
ONE = """
class Component(pulumi.ComponentResource):
    def __init__(self, **values):
        super().__init__("x:y:C", "c", values)

Component(file={value})
"""


def test_asset_hashes_equal_those_of_the_pulumi_cli(lab):
    recorded = json.loads(RECORDED.read_text().replace("FOLDER", str(lab.directory)))
    for name, content in recorded["files"].items():
        path = lab.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))
    (lab.directory / "dir/link.txt").symlink_to("b.txt")
    assert lab.up(PROGRAM.replace("FOLDER", str(lab.directory))).succeeded, lab.errors
    component, stack = lab.state("c"), lab.state("lab-dev")
    for part, properties in (
        ("component_inputs", component.inputs),
        ("component_outputs", component.outputs),
        ("stack_outputs", stack.outputs),
    ):
        encoded = value_json.encode_map(properties, None, show_secrets=True)
        assert encoded == recorded[part]


def test_assets_of_the_pulumi_cli_round_trip_unchanged():
    for part in ("component_inputs", "stack_outputs"):
        written = json.loads(RECORDED.read_text())[part]
        read = value_json.decode_map(written, None)
        assert value_json.encode_map(read, None, show_secrets=True) == written


def test_changed_file_content_is_an_update(lab):
    file = lab.directory / "a.txt"
    file.write_text("one")
    program = ONE.format(value="pulumi.FileAsset('a.txt')")
    assert lab.up(program).succeeded, lab.errors
    assert not lab.preview(program).has_changes
    file.write_text("two")
    assert lab.preview(program).has_changes


def test_assets_without_hashes_in_the_state_are_unchanged(lab):
    (lab.directory / "a.txt").write_text("one")
    program = ONE.format(value="pulumi.AssetArchive({'a': pulumi.FileAsset('a.txt')})")
    assert lab.up(program).succeeded, lab.errors
    lab.state("c").inputs["file"] = Archive({"a": Asset(path="a.txt")})
    assert not lab.preview(program).has_changes


def test_a_remote_asset_is_hashed(lab):
    (lab.directory / "a.txt").write_text("hello")
    handler = functools.partial(QuietHandler, directory=str(lab.directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert lab.up(ONE.format(value=f"pulumi.RemoteAsset('{url}/a.txt')")).succeeded
        assert lab.state("c").inputs["file"].hash.startswith("2cf24dba5fb0a30e")
        assert not lab.up(ONE.format(value=f"pulumi.RemoteAsset('{url}/b.txt')")).succeeded
        server.shutdown()
    (error,) = lab.errors
    assert error.startswith(f"the program's file {url}/b.txt cannot be read: File not found")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("pulumi.FileAsset('gone.txt')", "gone.txt cannot be read: No such file or directory"),
        ("pulumi.FileArchive('gone')", "gone cannot be read: it is not a folder and does not end"),
        ("pulumi.FileArchive('broken.zip')", ""),
        ("pulumi.AssetArchive({'z': pulumi.FileArchive('broken.zip')})", "broken.zip cannot be"),
        (
            "pulumi.RemoteAsset('ftp://x/y')",
            "ftp://x/y cannot be read: ftp:// is not a supported URL scheme",
        ),
    ],
)
def test_an_unreadable_asset_is_an_error_of_its_resource(lab, value, reason):
    (lab.directory / "broken.zip").write_text("no zip")
    done = lab.up(ONE.format(value=value))
    assert done.succeeded == (not reason)
    if reason:
        (error,) = lab.errors
        assert reason in error


def test_assets_with_equal_content_are_equal():
    file_asset, text_asset = Asset(path="a", hash="h"), Asset(text="text", hash="h")
    assert are_equal(file_asset, text_asset)
    assert not are_equal(file_asset, Asset(path="a", hash="i"))
    assert not are_equal(file_asset, Archive(path="a", hash="h"))
    assert not are_equal(Asset(path="a"), Asset(path="b", hash="h"))
