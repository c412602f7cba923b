"""Damage of any kind: an error that tells it, and never a plan that makes things anew."""

import copy
import json
import shutil
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.stacks.planned_project import PlannedProject

from gpuform.stacks.engine.state import compute_digest

STATE = ".pulumi/stacks/demo/dev.json"
FAST = settings(
    max_examples=12,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
READING = [("stack", "ls"), ("stack", "output"), ("state", "list"), ("stack", "export")]
RUNNING = [("refresh", "--yes"), ("destroy", "--yes"), ("stack", "rm", "dev", "--yes")]
DEEP = "[" * 400 + "]" * 400
VERY_DEEP = "[" * 100_000 + "]" * 100_000
WRONG = ["null", "7", '"x"', "[]", "{}", "true", "[7]", '{"a": [{}]}', "1e999", "NaN", DEEP]


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every value in a document, by the keys that lead to it."""
    if path:
        yield path
    items = document.items() if isinstance(document, dict) else ()
    for key, item in enumerate(document) if isinstance(document, list) else items:
        yield from places(item, (*path, key))


def changed(document: Any, path: tuple[Any, ...], text: str) -> str:
    """The document with other JSON, or something that is none, in one place."""
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = "@here@"
    return json.dumps(document).replace('"@here@"', text)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> bytes:
    """A file's text with a wrong value, or with bytes that are cut off, added or changed."""
    how = draw(st.sampled_from(["value", "value", "value", "cut", "insert", "twice", "bytes"]))
    data = text.encode()
    at = draw(st.integers(0, len(data) - 1))
    if how == "cut":
        return data[:at]
    if how == "insert":
        return data[:at] + draw(st.sampled_from([b"\x00", b"{", b'"', b"\xff", b"[["])) + data[at:]
    if how == "bytes":
        return data.replace(draw(st.sampled_from([b":", b'"', b"}", b"urn"])), b"\xfe", 1)
    document = json.loads(text)
    path = draw(st.sampled_from(sorted(places(document), key=str)))
    if how == "twice" and isinstance(path[-1], str):
        key = json.dumps(path[-1])
        return changed(document, path, f"1, {key}: 2").encode()
    return changed(document, path, draw(st.sampled_from(WRONG))).encode()


class Stack:
    """A stack that exists, put back before each damage."""

    def __init__(self, planned_project: PlannedProject) -> None:
        self.scene, self.path = planned_project, planned_project.project / STATE
        self.good = self.path.read_text()
        self.kept = planned_project.project.parent / "kept"
        shutil.copytree(planned_project.project, self.kept)

    def restore(self) -> None:
        shutil.rmtree(self.scene.project / ".pulumi")
        shutil.copytree(self.kept, self.scene.project, dirs_exist_ok=True)

    def run(self, *args: str) -> Any:
        ran = self.scene.run(*args)
        assert ran.code in (0, 1, 2, 6), (args, ran.err)
        assert "internal error" not in ran.err, (args, ran.err)
        assert "Traceback" not in ran.out + ran.err
        return ran

    def check(self) -> bool:
        """Whether the state could be used: then nothing is planned to be made.

        What a resource says of itself is its lifecycle's to judge, so that a preview may fail.
        """
        for args in READING:
            self.run(*args)
        planned = self.run("preview", "--json")
        if planned.code == 0 or "gpuform state repair" not in planned.err:
            summary = planned.json.get("changeSummary", {}) if planned.out else {}
            assert not summary.keys() & {"create", "create-replacement"}
            for verb in ("refresh", "destroy"):
                self.run(verb, "--preview-only")
            return True
        before = self.scene.sent_changes, self.files()
        for args in (("up", "--yes", "--skip-preview"), *RUNNING):
            ran = self.run(*args)
            assert ran.code != 0, args
            assert "error: " in ran.err + ran.out
        assert (self.scene.sent_changes, self.files()) == before
        return False

    def files(self) -> dict[str, bytes]:
        found = (self.scene.project / ".pulumi/stacks").rglob("*")
        return {str(path): path.read_bytes() for path in found if path.is_file()}


@pytest.fixture
def stack(applied_project: PlannedProject) -> Stack:
    return Stack(applied_project)


@pytest.mark.slow
@FAST
@given(data=st.data())
def test_of_a_checkpoint(stack: Stack, data: st.DataObject) -> None:
    stack.restore()
    stack.path.write_bytes(data.draw(damaged(stack.good)))
    stack.check()


ENTRY = ("checkpoint", "latest", "resources", 2)
TOLD: list[tuple[tuple[Any, ...], str, str]] = [
    (("checkpoint", "latest"), "null", "`latest` is not an object"),
    (("checkpoint", "latest"), "[]", "`latest` is not an object"),
    (("checkpoint", "latest", "resources"), "null", "`resources` is null, not a list"),
    (("checkpoint", "latest", "resources"), "{}", "`resources` is a dict, not a list"),
    (("checkpoint", "latest", "metadata"), f'{{"a": {DEEP}}}', "`metadata` is nested deeper"),
    (("checkpoint", "latest", "resources", 2), "null", "resources[2] is not an object"),
    ((*ENTRY, "id"), '""', "has no id: its object would be forgotten"),
    ((*ENTRY, "id"), "null", "has no id: its object would be forgotten"),
    ((*ENTRY, "id"), "7", "id is 7"),
    (
        (*ENTRY, "type"),
        '"my:mod:Other"',
        ("has the type my:mod:Other, which differs from the type in its URN"),
    ),
    ((*ENTRY, "urn"), '"x"', "x is not a URN"),
    ((*ENTRY, "outputs"), "null", "properties that are not an object"),
    ((*ENTRY, "outputs", "status"), DEEP, "nested deeper than 100"),
    ((*ENTRY, "outputs", "status"), VERY_DEEP, "nested too deeply"),
    ((*ENTRY, "outputs", "status"), "1e999", "a number that is too large"),
    ((*ENTRY, "id"), '"a", "id": "b"', "has the key 'id' twice"),
]
"""Where a checkpoint is damaged, by what, and what is said of it."""


@pytest.mark.slow
def test_of_a_checkpoint_is_told_with_its_place(stack: Stack) -> None:
    for path, text, said in TOLD:
        stack.path.write_text(changed(json.loads(stack.good), path, text))
        before = stack.files()
        told = stack.run("up", "--yes")
        assert told.code == 1
        assert said in told.err
        assert f"error: {stack.path}: " in told.err
        assert "gpuform state repair --stack dev --from-backup" in told.err
        repaired = stack.run("state", "repair", "--yes")
        assert repaired.code == 1
        assert said in repaired.err
        assert "--from-backup" in repaired.err
        assert stack.files() == before


@pytest.mark.parametrize("entry", ["latest", "resources"])
def test_an_empty_stack_of_the_cli_is_one(stack: Stack, entry: str) -> None:
    """The CLI writes no `latest` before the first update, and no empty list of resources."""
    document = json.loads(stack.good)
    checkpoint = document["checkpoint"]
    del (checkpoint if entry == "latest" else checkpoint["latest"])[entry]
    stack.path.write_text(json.dumps(document))
    planned = stack.run("preview", "--json")
    assert planned.code == 0
    assert planned.json["changeSummary"] == {"create": 3}


@pytest.mark.slow
def test_of_what_is_imported(stack: Stack) -> None:
    before = stack.files()
    file = stack.scene.project / "in.json"
    for deployment in ("null", "[]", '""', DEEP, VERY_DEEP):
        file.write_text(f'{{"version": 3, "deployment": {deployment}}}')
        ran = stack.run("stack", "import", "--file", "in.json")
        assert ran.code == 1
        assert "in.json" in ran.err
    assert stack.files() == before
    file.write_text('{"version": 3, "deployment": {}}')
    assert stack.run("stack", "import", "--file", "in.json").code == 0


@pytest.mark.slow
@FAST
@given(data=st.data())
def test_of_the_settings(stack: Stack, data: st.DataObject) -> None:
    stack.restore()
    file = stack.scene.project / "Pulumi.dev.yaml"
    text = file.read_bytes()
    at = data.draw(st.integers(0, len(text)))
    added = [b"\xff", b"\x00", b"config: 7\n", b"config: {a: " + DEEP.encode() + b"}\n", b"? : :"]
    file.write_bytes(text[:at] + data.draw(st.sampled_from(added)) + text[at:])
    stack.check()


@pytest.mark.slow
def test_of_the_selection(stack: Stack) -> None:
    """It is named and left alone: without it a stack can be selected again."""
    (file,) = (stack.scene.project.parent / "home/workspaces").iterdir()
    for text in (b"{", b"[]", b'{"stack": 7}', b'{"stack": []}', VERY_DEEP.encode(), b"\xff"):
        file.write_bytes(text)
        ran = stack.run("preview")
        assert ran.code == 1
        assert str(file) in ran.err
        assert stack.run("stack", "select", "dev").code == 1
        assert file.read_bytes() == text
        assert stack.run("preview", "--expect-no-changes", "--stack", "dev").code == 0
    file.unlink()
    assert stack.run("stack", "select", "dev").code == 0
    assert stack.run("preview", "--expect-no-changes").code == 0


def line(text: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text), text)


LINES = [
    b"00000000 {}\n" + line(b'{"op":"end","token":1}'),
    b"garbage\n",
    line(b'{"op":"add"}'),
    line(b'{"op":"checkpoint"}'),
    line(b'{"op":7}'),
    line(b'{"op":"replace","old":999,"new":1}'),
    line(b'{"op":"add","new":9,"resource":[]}'),
    line(b'{"op":"begin","token":1,"operation":{"type":"x","resource":{}}}'),
    line(b'{"op":"outputs","of":0,"outputs":' + VERY_DEEP.encode() + b"}"),
    line(b'{"op":"outputs","of":0,"outputs":{"a":' + DEEP.encode() + b"}}"),
    line(b"[]"),
]


@pytest.mark.slow
def test_of_a_journal(stack: Stack) -> None:
    """What it told of may exist; given up, it is kept beside its place."""
    base = compute_digest(stack.path.read_bytes()).encode()
    journal = stack.scene.project / ".pulumi/gpuform/demo/dev.journal"
    journal.parent.mkdir(parents=True, exist_ok=True)
    for lines in LINES:
        written = line(b'{"gpuform-journal":1,"base":"%s"}' % base) + lines
        journal.write_bytes(written)
        told = stack.run("up", "--yes")
        assert told.code == 1
        assert f"the journal {journal} is damaged" in told.err
        assert "--discard-journal" in told.err
        assert journal.read_bytes() == written
        assert stack.run("state", "repair", "--discard-journal", "--yes").code == 0
        (kept,) = journal.parent.glob("dev.journal.*")
        assert kept.read_bytes() == written
        kept.unlink()
    assert stack.run("preview", "--expect-no-changes").code == 0


def test_of_what_could_not_be_saved(stack: Stack) -> None:
    file = stack.scene.project / ".gpuform/unsaved/dev.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    for text in ("{", "[]", "{}", '{"lines": 7}', VERY_DEEP):
        file.write_text(f"{text}\n")
        assert "gpuform state recover" in stack.run("up", "--yes").err
        ran = stack.run("state", "recover")
        assert ran.code == 1
        assert f"{file} is damaged" in ran.err
        assert file.exists()
