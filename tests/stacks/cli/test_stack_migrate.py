"""`gpuform stack migrate` between folders, and what remains in the former place."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.servers.bucket_server import KEYS, BucketServer, build_bucket_url
from support.stacks.stack_files import add_history_and_records, read_stack_files

from gpuform.stacks.engine.store import Backend, BackendError, Files

Run = Any


@pytest.fixture
def there(dev: Run, project: Path) -> Path:
    """Return an empty folder, for the stack dev that has a history and records."""
    add_history_and_records(project)
    folder = project.parent / "there"
    folder.mkdir()
    return folder


def open_backend(folder: Path) -> Backend:
    return Backend.open(f"file://{folder}", {})


def test_all_files_are_in_the_new_place_and_the_old_one_refuses(
    dev: Run, project: Path, there: Path
) -> None:
    whole = read_stack_files(open_backend(project))

    moved = dev("stack", "migrate", "file://../there")

    url = there.as_uri()
    assert moved.out == (
        f"Moved stack dev to {url}: {len(whole)} files, each compared after reading it back.\n"
        f"Before the next command, write this URL into backend.url of Pulumi.yaml: {url}\n"
    )
    assert read_stack_files(open_backend(there)) == whole
    assert {name.split("/")[1] for name in whole} == {"stacks", "backups", "history", "gpuform"}
    pointer = ".pulumi/stacks/demo/dev.moved"
    assert list(read_stack_files(open_backend(project))) == [pointer]
    for command in (
        ("preview",),
        ("up", "--yes"),
        ("status",),
        ("state", "list"),
        ("stack", "output"),
        ("stack", "history"),
        ("stack", "export"),
        ("stack", "select", "dev"),
        ("stack", "init", "dev"),
        ("stack", "rm", "dev", "--yes"),
        ("stack", "migrate", "file://../home"),
    ):
        (project.parent / "home").mkdir(exist_ok=True)
        refused = dev(*command)
        assert refused.code != 0, command
        assert f"stack 'dev' moved to {url}" in refused.err, command
        assert str(project / pointer) in refused.err
    assert dev("stack", "ls", "--json").json == []


def test_the_stack_is_selected_in_the_new_place_and_can_move_back(
    dev: Run, project: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_stack_files(open_backend(project))
    assert dev("stack", "migrate", f"file://{there}").code == 0
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{there}")
    assert [row["current"] for row in dev("stack", "ls", "--json").json] == [True]

    back = dev("stack", "migrate", f"file://{project}")

    assert back.code == 0, back.err
    assert read_stack_files(open_backend(project)) == whole
    assert "moved to" in dev("state", "list").err


def test_a_repeated_move_changes_nothing(dev: Run, project: Path, there: Path) -> None:
    assert dev("stack", "migrate", "file://../there").code == 0
    before = read_stack_files(open_backend(there))

    again = dev("stack", "migrate", "file://../there")

    assert again.code == 0
    assert again.out.startswith(f"Moved stack dev to {there.as_uri()}.\n")
    assert read_stack_files(open_backend(there)) == before


def test_a_target_with_such_a_stack_is_refused(dev: Run, project: Path, there: Path) -> None:
    open_backend(there).write("demo", "dev", b'{"version": 3}')
    before = read_stack_files(open_backend(project)), read_stack_files(open_backend(there))

    refused = dev("stack", "migrate", f"file://{there}")

    assert refused.code == 1
    assert f"has files of a stack 'dev' already: {there}/.pulumi/stacks/demo/dev.json" in (
        refused.err
    )
    assert (
        read_stack_files(open_backend(project)),
        read_stack_files(open_backend(there)),
    ) == before


def test_the_same_place_is_refused(dev: Run, there: Path) -> None:
    assert "is already in file://" in dev("stack", "migrate", "file://../project").err


def test_a_lock_in_either_place_stops_the_move(dev: Run, project: Path, there: Path) -> None:
    for folder in (project, there):
        with open_backend(folder).create_lock("demo", "dev"):
            assert "the stack is locked" in dev("stack", "migrate", "file://../there").err
    assert dev("state", "list").code == 0


def test_both_places_are_locked_while_files_are_copied(
    dev: Run, project: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[int] = []
    write = Files.write

    def write_and_look(self: Files, name: str, *args: Any, **options: Any) -> Any:
        if self.root == there.resolve() and name.endswith("/dev.json"):
            folders = [root / ".pulumi/locks/organization/demo/dev" for root in (project, there)]
            locked.extend(len(list(folder.glob("*.json"))) for folder in folders)
        return write(self, name, *args, **options)

    monkeypatch.setattr(Files, "write", write_and_look)
    assert dev("stack", "migrate", f"file://{there}").code == 0
    assert locked == [1, 1]


def test_other_bytes_at_the_target_leave_the_source_whole(
    dev: Run, project: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_stack_files(open_backend(project))
    write = Files.write

    def damage(self: Files, name: str, data: bytes, replacing: Any = None) -> Any:
        is_copy = self.root == there and name.endswith(".history.json")
        return write(self, name, data[:-1] if is_copy else data, replacing)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "write", damage)
        failed = dev("stack", "migrate", f"file://{there}")

    assert failed.code == 1
    assert "has other bytes than were written" in failed.err
    assert read_stack_files(open_backend(project)) == whole
    assert dev("state", "list").code == 0
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{there}")
    assert "the move is not complete" in dev("state", "list", "--stack", "dev").err
    monkeypatch.delenv("PULUMI_BACKEND_URL")
    # What the source removes before the next try does not come back at the target.
    open_backend(project).write_own("demo", "dev", "expired", None)
    assert dev("stack", "migrate", f"file://{there}").code == 0
    assert not (there / ".pulumi/gpuform/demo/dev.expired").exists()


def test_the_copy_of_a_move_that_was_given_up_gives_way_to_the_stack(
    dev: Run, project: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_stack_files(open_backend(project))
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    write = Files.write

    def fail_at_checkpoint(self: Files, name: str, *args: Any, **options: Any) -> Any:
        if self.root == there.resolve() and name.endswith("/dev.json"):
            raise BackendError("the disk is full")
        return write(self, name, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "write", fail_at_checkpoint)
        assert dev("stack", "migrate", f"file://{there}").code == 1
    leftovers = read_stack_files(open_backend(there))
    # As long as the former place has the stack, another stack of its name does not go there.
    with monkeypatch.context() as patched:
        patched.setenv("PULUMI_BACKEND_URL", f"file://{elsewhere}")
        assert dev("stack", "init", "dev").code == 0
        refused = dev("stack", "migrate", f"file://{there}", "--stack", "dev")
        assert "the move is not complete" in refused.err
        assert dev("stack", "rm", "dev", "--yes").code == 0
    assert read_stack_files(open_backend(there)) == leftovers
    assert dev("stack", "migrate", f"file://{elsewhere}").code == 0

    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{elsewhere}")
    moved = dev("stack", "migrate", f"file://{there}", "--stack", "dev")

    assert moved.code == 0, moved.err
    assert read_stack_files(open_backend(there)) == whole


def test_a_pointer_to_a_place_without_the_stack_removes_nothing(
    dev: Run, project: Path, there: Path
) -> None:
    pointer = project / ".pulumi/stacks/demo/dev.moved"
    pointer.write_text(json.dumps({"version": 1, "url": there.as_uri()}))

    refused = dev("stack", "migrate", f"file://{there}")

    assert refused.code == 1
    assert f"is not in file://{there}" in refused.err
    pointer.unlink()
    assert dev("state", "list").code == 0


def test_neither_the_pointer_nor_a_message_has_the_query_of_the_url_which_may_hold_a_key(
    dev: Run, project: Path, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    url = build_bucket_url(bucket_server.create_bucket(), bucket_server.port)

    moved = dev("stack", "migrate", url)
    refused = dev("preview")

    assert moved.code == 0, moved.err
    assert (
        f"write this URL into backend.url of Pulumi.yaml: {url.partition('?')[0]}?..." in moved.out
    )
    pointer = (project / ".pulumi/stacks/demo/dev.moved").read_text()
    for text in (moved.out, refused.err, pointer):
        assert "endpoint" not in text
