"""Test damaged files of any kind: an error names the damage, and no plan recreates objects."""

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


def list_paths(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document, as a tuple of keys."""
    if path:
        yield path
    items = document.items() if isinstance(document, dict) else ()
    for key, item in enumerate(document) if isinstance(document, list) else items:
        yield from list_paths(item, (*path, key))


def replace_json_value(document: Any, path: tuple[Any, ...], json_text: str) -> str:
    """Return the document as JSON, with `text` in the place of the value at `path`."""
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = "@here@"
    return json.dumps(document).replace('"@here@"', json_text)


@st.composite
def damaged_contents(draw: st.DrawFn, text: str) -> bytes:
    """Draw the content of a file with a wrong value, or with bytes cut off, added or changed."""
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
    path = draw(st.sampled_from(sorted(list_paths(document), key=str)))
    if how == "twice" and isinstance(path[-1], str):
        key = json.dumps(path[-1])
        return replace_json_value(document, path, f"1, {key}: 2").encode()
    return replace_json_value(document, path, draw(st.sampled_from(WRONG))).encode()


class ExistingStack:
    """A stack that exists, restored before each damage."""

    def __init__(self, planned_project: PlannedProject) -> None:
        self.scene, self.path = planned_project, planned_project.project / STATE
        self.good = self.path.read_text()
        self.copy_folder = planned_project.project.parent / "kept"
        shutil.copytree(planned_project.project, self.copy_folder)

    def restore(self) -> None:
        shutil.rmtree(self.scene.project / ".pulumi")
        shutil.copytree(self.copy_folder, self.scene.project, dirs_exist_ok=True)

    def run(self, *args: str) -> Any:
        ran = self.scene.run(*args)
        assert ran.code in (0, 1, 2, 6), (args, ran.err)
        assert "internal error" not in ran.err, (args, ran.err)
        assert "Traceback" not in ran.out + ran.err
        return ran

    def check_state(self) -> bool:
        """Return whether the state is usable, in which case no command plans a create.

        A preview may also fail because a lifecycle rejects a resource's own values.
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
        before = self.scene.sent_changes, self.read_files()
        for args in (("up", "--yes", "--skip-preview"), *RUNNING):
            ran = self.run(*args)
            assert ran.code != 0, args
            assert "error: " in ran.err + ran.out
        assert (self.scene.sent_changes, self.read_files()) == before
        return False

    def read_files(self) -> dict[str, bytes]:
        paths = (self.scene.project / ".pulumi/stacks").rglob("*")
        return {str(path): path.read_bytes() for path in paths if path.is_file()}


@pytest.fixture
def existing_stack(applied_project: PlannedProject) -> ExistingStack:
    return ExistingStack(applied_project)


@pytest.mark.slow
@FAST
@given(data=st.data())
def test_a_damaged_checkpoint_never_plans_creates(
    existing_stack: ExistingStack, data: st.DataObject
) -> None:
    existing_stack.restore()
    existing_stack.path.write_bytes(data.draw(damaged_contents(existing_stack.good)))
    existing_stack.check_state()


ENTRY = ("checkpoint", "latest", "resources", 2)
DAMAGED_PATHS: list[tuple[tuple[Any, ...], str, str]] = [
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
"""Paths in a checkpoint, with a damaged value and the resulting message."""


@pytest.mark.slow
def test_a_damaged_checkpoint_is_reported_with_its_position_and_a_repair(
    existing_stack: ExistingStack,
) -> None:
    for path, damaged_value, message in DAMAGED_PATHS:
        existing_stack.path.write_text(
            replace_json_value(json.loads(existing_stack.good), path, damaged_value)
        )
        before = existing_stack.read_files()
        ran = existing_stack.run("up", "--yes")
        assert ran.code == 1
        assert message in ran.err
        assert f"error: {existing_stack.path}: " in ran.err
        assert "gpuform state repair --stack dev --from-backup" in ran.err
        repaired = existing_stack.run("state", "repair", "--yes")
        assert repaired.code == 1
        assert message in repaired.err
        assert "--from-backup" in repaired.err
        assert existing_stack.read_files() == before


@pytest.mark.parametrize("entry", ["latest", "resources"])
def test_an_empty_checkpoint_of_the_pulumi_cli_is_valid(
    existing_stack: ExistingStack, entry: str
) -> None:
    """The CLI writes neither `latest` before the first update nor an empty list of resources."""
    document = json.loads(existing_stack.good)
    checkpoint = document["checkpoint"]
    del (checkpoint if entry == "latest" else checkpoint["latest"])[entry]
    existing_stack.path.write_text(json.dumps(document))
    planned = existing_stack.run("preview", "--json")
    assert planned.code == 0
    assert planned.json["changeSummary"] == {"create": 3}


@pytest.mark.slow
def test_import_refuses_a_damaged_deployment_and_keeps_the_state(
    existing_stack: ExistingStack,
) -> None:
    before = existing_stack.read_files()
    file = existing_stack.scene.project / "in.json"
    for deployment in ("null", "[]", '""', DEEP, VERY_DEEP):
        file.write_text(f'{{"version": 3, "deployment": {deployment}}}')
        ran = existing_stack.run("stack", "import", "--file", "in.json")
        assert ran.code == 1
        assert "in.json" in ran.err
    assert existing_stack.read_files() == before
    file.write_text('{"version": 3, "deployment": {}}')
    assert existing_stack.run("stack", "import", "--file", "in.json").code == 0


@pytest.mark.slow
@FAST
@given(data=st.data())
def test_damaged_stack_settings_never_plan_creates(
    existing_stack: ExistingStack, data: st.DataObject
) -> None:
    existing_stack.restore()
    file = existing_stack.scene.project / "Pulumi.dev.yaml"
    content = file.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    added = [b"\xff", b"\x00", b"config: 7\n", b"config: {a: " + DEEP.encode() + b"}\n", b"? : :"]
    file.write_bytes(content[:at] + data.draw(st.sampled_from(added)) + content[at:])
    existing_stack.check_state()


@pytest.mark.slow
def test_a_damaged_stack_selection_is_named_and_left_unchanged(
    existing_stack: ExistingStack,
) -> None:
    """Without the damaged file, a stack can be selected again."""
    (file,) = (existing_stack.scene.project.parent / "home/workspaces").iterdir()
    for content in (b"{", b"[]", b'{"stack": 7}', b'{"stack": []}', VERY_DEEP.encode(), b"\xff"):
        file.write_bytes(content)
        ran = existing_stack.run("preview")
        assert ran.code == 1
        assert str(file) in ran.err
        assert existing_stack.run("stack", "select", "dev").code == 1
        assert file.read_bytes() == content
        assert existing_stack.run("preview", "--expect-no-changes", "--stack", "dev").code == 0
    file.unlink()
    assert existing_stack.run("stack", "select", "dev").code == 0
    assert existing_stack.run("preview", "--expect-no-changes").code == 0


def format_journal_line(text: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text), text)


LINES = [
    b"00000000 {}\n" + format_journal_line(b'{"op":"end","token":1}'),
    b"garbage\n",
    format_journal_line(b'{"op":"add"}'),
    format_journal_line(b'{"op":"checkpoint"}'),
    format_journal_line(b'{"op":7}'),
    format_journal_line(b'{"op":"replace","old":999,"new":1}'),
    format_journal_line(b'{"op":"add","new":9,"resource":[]}'),
    format_journal_line(b'{"op":"begin","token":1,"operation":{"type":"x","resource":{}}}'),
    format_journal_line(b'{"op":"outputs","of":0,"outputs":' + VERY_DEEP.encode() + b"}"),
    format_journal_line(b'{"op":"outputs","of":0,"outputs":{"a":' + DEEP.encode() + b"}}"),
    format_journal_line(b"[]"),
]


@pytest.mark.slow
def test_a_damaged_journal_stops_up_and_is_kept_after_discard(
    existing_stack: ExistingStack,
) -> None:
    """Objects in the journal may exist, so that a discarded journal is kept beside its old path."""
    base = compute_digest(existing_stack.path.read_bytes()).encode()
    journal = existing_stack.scene.project / ".pulumi/gpuform/demo/dev.journal"
    journal.parent.mkdir(parents=True, exist_ok=True)
    for lines in LINES:
        written = format_journal_line(b'{"gpuform-journal":1,"base":"%s"}' % base) + lines
        journal.write_bytes(written)
        ran = existing_stack.run("up", "--yes")
        assert ran.code == 1
        assert f"the journal {journal} is damaged" in ran.err
        assert "--discard-journal" in ran.err
        assert journal.read_bytes() == written
        assert existing_stack.run("state", "repair", "--discard-journal", "--yes").code == 0
        (copy_path,) = journal.parent.glob("dev.journal.*")
        assert copy_path.read_bytes() == written
        copy_path.unlink()
    assert existing_stack.run("preview", "--expect-no-changes").code == 0


def test_damaged_unsaved_lines_are_named_and_kept(existing_stack: ExistingStack) -> None:
    file = existing_stack.scene.project / ".gpuform/unsaved/dev.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    for damaged_line in ("{", "[]", "{}", '{"lines": 7}', VERY_DEEP):
        file.write_text(f"{damaged_line}\n")
        assert "gpuform state recover" in existing_stack.run("up", "--yes").err
        ran = existing_stack.run("state", "recover")
        assert ran.code == 1
        assert f"{file} is damaged" in ran.err
        assert file.exists()
