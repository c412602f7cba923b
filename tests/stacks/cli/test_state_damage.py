"""Test damaged states: a clear error, no overwriting, and repair."""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from support.stacks.file_locks import create_file_journal

from gpuform.providers.values import Secret
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import ResourceState, Snapshot, encode_resource, journal
from gpuform.stacks.engine.state.checkpoint import compute_magic

Run = Any
STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


def build_machine(name: str, **fields: Any) -> ResourceState:
    made = f"urn:pulumi:dev::demo::lab:index:Machine::{name}"
    outputs = {"key": Secret("hunter2")}
    return ResourceState(made, True, "lab:index:Machine", id=f"m-{name}", outputs=outputs, **fields)


class DamagedStack:
    """The stack's state on disk, with one good state before it."""

    def __init__(self, project: Path, salt: str) -> None:
        self.project, self.crypter = project, PassphraseCrypter("", salt)
        self.path = project / ".pulumi/stacks/demo/dev.json"
        self.bak = self.path.with_name("dev.json.bak")
        self.journal_path = project / ".pulumi/gpuform/demo/dev.journal"
        self.good = self.build_state(build_machine("a"))
        self.path.write_bytes(self.build_state(build_machine("a"), build_machine("b")))
        self.bak.write_bytes(self.good)

    def build_state(self, *entries: ResourceState) -> bytes:
        snapshot = Snapshot(
            "organization/demo/dev",
            [ResourceState(STACK, False, "pulumi:pulumi:Stack"), *entries],
            secrets_provider=self.crypter.provider,
        )
        return snapshot.to_json(self.crypter)

    @property
    def ids(self) -> list[str]:
        entries = json.loads(self.path.read_bytes())["checkpoint"]["latest"]["resources"]
        return sorted(entry["id"] for entry in entries if entry.get("id"))

    def read_all_files(self) -> dict[str, bytes]:
        folder = self.project / ".pulumi"
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def damaged_stack(dev: Run, project: Path, salt: str) -> DamagedStack:
    return DamagedStack(project, salt)


def truncate_state(damaged_stack: DamagedStack) -> None:
    damaged_stack.path.write_bytes(damaged_stack.path.read_bytes()[:200])


def empty_state(damaged_stack: DamagedStack) -> None:
    damaged_stack.path.write_bytes(b"")


def write_other_json(damaged_stack: DamagedStack) -> None:
    damaged_stack.path.write_text('{"some": "json"}')


def add_missing_dependency(damaged_stack: DamagedStack) -> None:
    damaged_stack.path.write_bytes(
        damaged_stack.build_state(build_machine("b", dependencies=[build_machine("gone").urn]))
    )


def write_wrong_type(damaged_stack: DamagedStack) -> None:
    damaged_stack.path.write_text(damaged_stack.path.read_text().replace('"id":"m-a"', '"id":7'))


DAMAGE = [truncate_state, empty_state, write_other_json, add_missing_dependency, write_wrong_type]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("args", [("preview",), ("up", "--yes"), ("state", "delete", "a", "--yes")])
def test_a_damaged_state_names_the_backup_and_is_not_overwritten(
    run: Run,
    damaged_stack: DamagedStack,
    damage: Callable[[DamagedStack], None],
    args: tuple[str, ...],
) -> None:
    damage(damaged_stack)
    before = damaged_stack.read_all_files()
    ran = run(*args)
    assert ran.code == 1
    assert "internal error" not in ran.err
    assert f"{damaged_stack.bak}  20" in ran.err
    assert "2 resources" in ran.err
    assert f"gpuform state repair --stack dev --from-backup {damaged_stack.bak}" in ran.err
    assert damaged_stack.read_all_files() == before


@pytest.mark.parametrize("damage", DAMAGE)
def test_repair_from_backup_restores_a_damaged_state(
    run: Run, damaged_stack: DamagedStack, damage: Callable[[DamagedStack], None]
) -> None:
    damage(damaged_stack)
    damaged = damaged_stack.path.read_bytes()
    ran = run("state", "repair", "--stack", "dev", "--from-backup", str(damaged_stack.bak), "--yes")
    assert ran.code == 0, ran.err
    assert damaged_stack.path.read_bytes() == damaged_stack.good
    assert damaged_stack.bak.read_bytes() == damaged_stack.good
    (copy_path,) = damaged_stack.path.parent.glob("dev.json.[0-9]*")
    assert copy_path.read_bytes() == damaged
    assert str(copy_path) in ran.out
    assert run("state", "list").code == 0
    assert run("stack", "ls", "--json").json[0]["resourceCount"] == 2  # with the stack


class TestFromBackup:
    def test_repair_from_backup_lists_backups_to_choose_from(
        self, run: Run, damaged_stack: DamagedStack, terminal: None
    ) -> None:
        truncate_state(damaged_stack)
        backups = damaged_stack.project / ".pulumi/backups/demo/dev"
        backups.mkdir(parents=True)
        older = backups / "dev.1700000000000000000.json"
        older.write_bytes(damaged_stack.build_state())
        (backups / "dev.1600000000000000000.json").write_bytes(b"torn")
        ran = run("state", "repair", "--from-backup", answers="no\n")
        assert ran.code == 1
        lines = ran.out.splitlines()
        assert lines[0].startswith(f"1  {damaged_stack.bak}  20")
        assert lines[0].endswith("2 resources")
        assert lines[1] == f"2  {older}  2023-11-14 22:13:20Z  1 resource"
        assert lines[2].startswith(f"-  {backups}/dev.1600000000000000000.json  2020-09-13")
        assert "is not JSON" in lines[2]
        assert run("state", "repair", "--from-backup", answers="2\n").code == 0
        assert damaged_stack.ids == []

    def test_repair_from_backup_without_a_terminal_requires_yes(
        self, run: Run, damaged_stack: DamagedStack
    ) -> None:
        truncate_state(damaged_stack)
        ran = run("state", "repair", "--from-backup")
        assert ran.code == 1
        assert "--from-backup FILE --yes" in ran.err
        assert run("state", "repair", "--from-backup", "--yes").code == 0
        assert damaged_stack.ids == ["m-a"]

    def test_a_damaged_state_without_a_backup_says_so(
        self, run: Run, damaged_stack: DamagedStack
    ) -> None:
        truncate_state(damaged_stack)
        damaged_stack.bak.unlink()
        assert "No usable earlier state" in run("preview").err
        assert "no usable earlier state" in run("state", "repair", "--from-backup", "--yes").err

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"torn", "is not JSON"),
            (b'{"version": 3, "deployment": {}}', "not a Pulumi checkpoint"),
            (None, "is not a state of stack dev of demo"),
        ],
    )
    def test_repair_from_backup_refuses_files_of_another_kind_or_stack(
        self, run: Run, damaged_stack: DamagedStack, text: bytes | None, message: str
    ) -> None:
        other = damaged_stack.project / "other.json"
        foreign = damaged_stack.good.replace(b"urn:pulumi:dev::", b"urn:pulumi:prod::")
        other.write_bytes(foreign if text is None else text)
        before = damaged_stack.read_all_files()
        ran = run("state", "repair", "--from-backup", str(other), "--yes")
        assert ran.code == 1
        assert message in ran.err
        assert damaged_stack.read_all_files() == before
        assert run("state", "repair", "--from-backup", "absent.json", "--yes").code == 1


class TestRepair:
    def test_repair_leaves_a_valid_state(self, run: Run, damaged_stack: DamagedStack) -> None:
        before = damaged_stack.read_all_files()
        ran = run("state", "repair")
        assert ran.code == 0
        assert "The state is valid" in ran.out
        assert damaged_stack.read_all_files() == before

    def test_repair_shows_its_changes_asks_and_keeps_the_old_state(
        self, run: Run, damaged_stack: DamagedStack, terminal: None
    ) -> None:
        add_missing_dependency(damaged_stack)
        before = damaged_stack.path.read_bytes()
        ran = run("state", "repair", answers="no\n")
        assert ran.code == 1
        assert (
            f"dropped: {build_machine('b').urn}: dependency {build_machine('gone').urn}" in ran.out
        )
        assert damaged_stack.path.read_bytes() == before
        assert run("state", "repair", answers="yes\n").code == 0
        assert damaged_stack.bak.read_bytes() == damaged_stack.good
        (copy_path,) = damaged_stack.path.parent.glob("dev.json.[0-9]*")
        assert copy_path.read_bytes() == before
        result = run("state", "show", "b", "--show-secrets")
        assert "hunter2" in result.out

    def test_repair_needs_no_passphrase(
        self, run: Run, damaged_stack: DamagedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        add_missing_dependency(damaged_stack)
        assert run("state", "repair", "--yes").code == 0
        assert damaged_stack.ids == ["m-b"]

    def test_repair_refuses_a_state_it_cannot_repair(
        self, run: Run, damaged_stack: DamagedStack
    ) -> None:
        damaged_stack.path.write_bytes(
            damaged_stack.build_state(build_machine("a"), build_machine("a"))
        )
        before = damaged_stack.read_all_files()
        ran = run("state", "repair", "--yes")
        assert ran.code == 1
        assert "occurs twice" in ran.err
        assert "--from-backup" in ran.err
        assert damaged_stack.read_all_files() == before
        truncate_state(damaged_stack)
        assert str(damaged_stack.bak) in run("state", "repair", "--yes").err

    def test_repair_flags_conflict(self, run: Run, damaged_stack: DamagedStack) -> None:
        assert run("state", "repair", "--from-backup", "x", "--discard-journal").code == 2


class TestJournal:
    def write_journal(
        self, damaged_stack: DamagedStack, base: bytes, *entries: ResourceState
    ) -> None:
        """Write the journal of an interrupted run that created `entries` after `base`."""
        written = create_file_journal(damaged_stack.journal_path, journal.compute_digest(base))
        written.append(
            [
                journal.Record(
                    "add",
                    {"new": 9 + n},
                    {"resource": encode_resource(entry, damaged_stack.crypter)},
                )
                for n, entry in enumerate(entries)
            ]
        )
        written.log.close()

    def test_an_edit_includes_the_changes_of_the_journal(
        self, run: Run, damaged_stack: DamagedStack
    ) -> None:
        self.write_journal(damaged_stack, damaged_stack.path.read_bytes(), build_machine("c"))
        resources = run("state", "list", "--json").json["resources"]
        assert sorted(entry["id"] for entry in resources) == ["", "m-a", "m-b", "m-c"]
        exported = run("stack", "export").json["deployment"]["resources"]
        assert sorted(e.get("id", "") for e in exported) == ["", "m-a", "m-b", "m-c"]
        ran = run("state", "delete", "b", "--yes")
        assert ran.code == 0
        assert "recovered 1 changes of it from its journal" in ran.err
        assert damaged_stack.ids == ["m-a", "m-c"]
        assert not damaged_stack.journal_path.exists()

    def test_repair_from_backup_includes_the_journal_of_that_state(
        self, run: Run, damaged_stack: DamagedStack
    ) -> None:
        self.write_journal(damaged_stack, damaged_stack.good, build_machine("c"))
        truncate_state(damaged_stack)
        ran = run("state", "repair", "--from-backup", "--yes")
        assert ran.code == 0
        assert "The 1 changes of its journal are included." in ran.out
        assert "m-c" in run("state", "list").out

    def test_discard_journal_keeps_a_copy_of_the_journal(
        self, run: Run, damaged_stack: DamagedStack, terminal: None
    ) -> None:
        self.write_journal(damaged_stack, b"another state", build_machine("c"))
        for args in (("stack", "export"), ("state", "list"), ("state", "repair")):
            ran = run(*args)
            assert ran.code == 0
            assert f"{build_machine('c').urn} (id m-c)" in ran.err
            assert str(damaged_stack.journal_path) in ran.err
        assert "m-c" in run("state", "protect", "b", "--yes").err
        for args in (
            ("stack", "rename", "other"),
            ("stack", "change-secrets-provider", "passphrase"),
        ):
            refused = run(*args)
            assert refused.code == 1
            assert "gpuform refresh" in refused.err
        before = damaged_stack.journal_path.read_bytes()
        result = run("state", "repair", "--discard-journal", answers="no\n")
        assert f"{build_machine('c').urn} (id m-c)" in result.out
        assert damaged_stack.journal_path.exists()
        ran = run("state", "repair", "--discard-journal", "--yes")
        assert ran.code == 0
        (copy_path,) = damaged_stack.journal_path.parent.glob("dev.journal.*")
        assert copy_path.read_bytes() == before
        assert str(copy_path) in ran.out
        assert run("state", "protect", "a", "--yes").code == 0
        assert "no journal" in run("state", "repair", "--discard-journal").out

    def test_a_journal_of_another_version_is_refused(
        self, run: Run, damaged_stack: DamagedStack
    ) -> None:
        header = b'{"gpuform-journal":9,"base":""}'
        damaged_stack.journal_path.parent.mkdir(parents=True, exist_ok=True)
        damaged_stack.journal_path.write_bytes(journal.encode_line(header))
        before = damaged_stack.read_all_files()
        shows = (("stack", "export"), ("stack", "export", "--show-secrets"), ("state", "list"))
        for args in (*shows, ("state", "repair"), ("preview",), ("state", "taint", "a", "--yes")):
            ran = run(*args)
            assert ran.code == (args[0] == "preview" or "taint" in args)
            assert "version 9" in ran.err
            assert "--discard-journal" in ran.err
        assert damaged_stack.read_all_files() == before
        assert run("state", "repair", "--discard-journal", "--yes").code == 0
        assert run("state", "list").code == 0


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('"version":3', '"version":5', "version 5; versions 3 and 4", "upgrade gpuform"),
        ('"version":3', '"version":4,"features":["time-travel"]', "time-travel", "upgrade gpuform"),
    ],
)
def test_a_state_of_a_newer_format_is_left_unchanged(
    run: Run, damaged_stack: DamagedStack, old: str, new: str, message: str, hint: str
) -> None:
    damaged_stack.path.write_text(damaged_stack.path.read_text().replace(old, new, 1))
    before = damaged_stack.read_all_files()
    for args in (("up", "--yes"), ("state", "protect", "a", "--yes"), ("state", "repair", "--yes")):
        ran = run(*args)
        assert ran.code == 1
        assert message in ran.err
        assert hint in ran.err
    assert damaged_stack.read_all_files() == before


@pytest.mark.parametrize("version", ["v3.261.0", "v4.0.0-alpha.1", "v3.260.5"])
def test_unknown_fields_of_a_newer_cli_stop_an_edit(
    run: Run, damaged_stack: DamagedStack, version: str
) -> None:
    document = json.loads(damaged_stack.path.read_text())
    latest = document["checkpoint"]["latest"]
    latest["manifest"] |= {"version": version, "magic": compute_magic(version)}
    latest["resources"][-1]["tomorrow"] = 1
    damaged_stack.path.write_text(json.dumps(document))
    before = damaged_stack.read_all_files()
    ran = run("state", "protect", "a", "--yes")
    is_newer = version != "v3.260.5"
    assert (ran.code, damaged_stack.read_all_files() == before) == (is_newer, is_newer)
    if is_newer:
        assert f"written by Pulumi CLI {version}" in ran.err
        assert "tomorrow" in ran.err
        assert "upgrade gpuform" in ran.err
    exported = run("stack", "export")
    assert exported.code == 0
    assert ("tomorrow" in exported.out) == is_newer


LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # a file of it would be cut off and stay
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from gpuform.stacks.cli.app import cli
cli.main(args=sys.argv[1:], prog_name="gpuform")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="the system has no such limit")
@pytest.mark.parametrize("args", [("state", "protect", "a", "--yes"), ("stack", "rename", "prod")])
def test_a_full_disk_leaves_every_file_unchanged(
    damaged_stack: DamagedStack, args: tuple[str, ...]
) -> None:
    """The kernel refuses files larger than a lock file, as a full disk would."""
    before = damaged_stack.read_all_files()
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, "400", *args],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=LAST_RESORT,
    )
    assert ran.returncode == 1
    assert os.strerror(errno.EFBIG) in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "is unchanged" in ran.stderr
    assert damaged_stack.read_all_files() == before


def test_a_read_only_folder_is_an_error(
    run: Run, damaged_stack: DamagedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = damaged_stack.read_all_files(), os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and ".pulumi" in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    for args in (("up", "--yes"), ("state", "protect", "a", "--yes"), ("stack", "rename", "prod")):
        ran = run(*args)
        assert ran.code == 1
        assert "the stack cannot be locked" in ran.err
        assert os.strerror(errno.EROFS) in ran.err
    monkeypatch.undo()
    assert damaged_stack.read_all_files() == before
