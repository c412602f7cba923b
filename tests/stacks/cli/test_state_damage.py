"""Damaged states: told clearly, never overwritten, and brought back."""

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

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import ResourceState, Snapshot, encode_resource, journal
from gpuform.stacks.engine.state.checkpoint import compute_magic
from gpuform.stacks.engine.values import Secret

Run = Any
STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


def machine(name: str, **fields: Any) -> ResourceState:
    made = f"urn:pulumi:dev::demo::lab:index:Machine::{name}"
    outputs = {"key": Secret("hunter2")}
    return ResourceState(made, True, "lab:index:Machine", id=f"m-{name}", outputs=outputs, **fields)


class Files:
    """The stack's state on disk, with one good state before it."""

    def __init__(self, project: Path, salt: str) -> None:
        self.project, self.crypter = project, PassphraseCrypter("", salt)
        self.path = project / ".pulumi/stacks/demo/dev.json"
        self.bak = self.path.with_name("dev.json.bak")
        self.journal = project / ".pulumi/gpuform/demo/dev.journal"
        self.good = self.text(machine("a"))
        self.path.write_bytes(self.text(machine("a"), machine("b")))
        self.bak.write_bytes(self.good)

    def text(self, *entries: ResourceState) -> bytes:
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

    def all(self) -> dict[str, bytes]:
        folder = self.project / ".pulumi"
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def files(dev: Run, project: Path, salt: str) -> Files:
    return Files(project, salt)


def truncated(files: Files) -> None:
    files.path.write_bytes(files.path.read_bytes()[:200])


def emptied(files: Files) -> None:
    files.path.write_bytes(b"")


def not_a_checkpoint(files: Files) -> None:
    files.path.write_text('{"some": "json"}')


def edited_by_hand(files: Files) -> None:
    files.path.write_bytes(files.text(machine("b", dependencies=[machine("gone").urn])))


def with_a_wrong_type(files: Files) -> None:
    files.path.write_text(files.path.read_text().replace('"id":"m-a"', '"id":7'))


DAMAGE = [truncated, emptied, not_a_checkpoint, edited_by_hand, with_a_wrong_type]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("args", [("preview",), ("up", "--yes"), ("state", "delete", "a", "--yes")])
def test_the_last_good_state_is_named_and_nothing_overwritten(
    run: Run, files: Files, damage: Callable[[Files], None], args: tuple[str, ...]
) -> None:
    damage(files)
    before = files.all()
    ran = run(*args)
    assert ran.code == 1
    assert "internal error" not in ran.err
    assert f"{files.bak}  20" in ran.err
    assert "2 resources" in ran.err
    assert f"gpuform state repair --stack dev --from-backup {files.bak}" in ran.err
    assert files.all() == before


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_command_that_is_named_brings_it_back(
    run: Run, files: Files, damage: Callable[[Files], None]
) -> None:
    damage(files)
    damaged = files.path.read_bytes()
    ran = run("state", "repair", "--stack", "dev", "--from-backup", str(files.bak), "--yes")
    assert ran.code == 0, ran.err
    assert files.path.read_bytes() == files.good
    assert files.bak.read_bytes() == files.good
    (kept,) = files.path.parent.glob("dev.json.[0-9]*")
    assert kept.read_bytes() == damaged
    assert str(kept) in ran.out
    assert run("state", "list").code == 0
    assert run("stack", "ls", "--json").json[0]["resourceCount"] == 2  # with the stack


class TestFromBackup:
    def test_the_candidates_are_listed(self, run: Run, files: Files, terminal: None) -> None:
        truncated(files)
        backups = files.project / ".pulumi/backups/demo/dev"
        backups.mkdir(parents=True)
        older = backups / "dev.1700000000000000000.json"
        older.write_bytes(files.text())
        (backups / "dev.1600000000000000000.json").write_bytes(b"torn")
        ran = run("state", "repair", "--from-backup", answers="no\n")
        assert ran.code == 1
        lines = ran.out.splitlines()
        assert lines[0].startswith(f"1  {files.bak}  20")
        assert lines[0].endswith("2 resources")
        assert lines[1] == f"2  {older}  2023-11-14 22:13:20Z  1 resource"
        assert lines[2].startswith(f"-  {backups}/dev.1600000000000000000.json  2020-09-13")
        assert "is not JSON" in lines[2]
        assert run("state", "repair", "--from-backup", answers="2\n").code == 0
        assert files.ids == []

    def test_nobody_to_ask(self, run: Run, files: Files) -> None:
        truncated(files)
        ran = run("state", "repair", "--from-backup")
        assert ran.code == 1
        assert "--from-backup FILE --yes" in ran.err
        assert run("state", "repair", "--from-backup", "--yes").code == 0
        assert files.ids == ["m-a"]

    def test_no_candidate(self, run: Run, files: Files) -> None:
        truncated(files)
        files.bak.unlink()
        assert "No usable earlier state" in run("preview").err
        assert "no usable earlier state" in run("state", "repair", "--from-backup", "--yes").err

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (b"torn", "is not JSON"),
            (b'{"version": 3, "deployment": {}}', "not a Pulumi checkpoint"),
            (None, "is not a state of stack dev of demo"),
        ],
    )
    def test_a_file_that_does_not_fit(
        self, run: Run, files: Files, text: bytes | None, said: str
    ) -> None:
        other = files.project / "other.json"
        foreign = files.good.replace(b"urn:pulumi:dev::", b"urn:pulumi:prod::")
        other.write_bytes(foreign if text is None else text)
        before = files.all()
        ran = run("state", "repair", "--from-backup", str(other), "--yes")
        assert ran.code == 1
        assert said in ran.err
        assert files.all() == before
        assert run("state", "repair", "--from-backup", "absent.json", "--yes").code == 1


class TestRepair:
    def test_a_sound_state(self, run: Run, files: Files) -> None:
        before = files.all()
        ran = run("state", "repair")
        assert ran.code == 0
        assert "The state is valid" in ran.out
        assert files.all() == before

    def test_it_shows_asks_and_keeps(self, run: Run, files: Files, terminal: None) -> None:
        edited_by_hand(files)
        before = files.path.read_bytes()
        ran = run("state", "repair", answers="no\n")
        assert ran.code == 1
        assert f"dropped: {machine('b').urn}: dependency {machine('gone').urn}" in ran.out
        assert files.path.read_bytes() == before
        assert run("state", "repair", answers="yes\n").code == 0
        assert files.bak.read_bytes() == files.good
        (kept,) = files.path.parent.glob("dev.json.[0-9]*")
        assert kept.read_bytes() == before
        shown = run("state", "show", "b", "--show-secrets")
        assert "hunter2" in shown.out

    def test_no_passphrase_is_needed(
        self, run: Run, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        edited_by_hand(files)
        assert run("state", "repair", "--yes").code == 0
        assert files.ids == ["m-b"]

    def test_what_cannot_be_repaired(self, run: Run, files: Files) -> None:
        files.path.write_bytes(files.text(machine("a"), machine("a")))
        before = files.all()
        ran = run("state", "repair", "--yes")
        assert ran.code == 1
        assert "occurs twice" in ran.err
        assert "--from-backup" in ran.err
        assert files.all() == before
        truncated(files)
        assert str(files.bak) in run("state", "repair", "--yes").err

    def test_only_one_kind_at_a_time(self, run: Run, files: Files) -> None:
        assert run("state", "repair", "--from-backup", "x", "--discard-journal").code == 2


class TestJournal:
    def journal(self, files: Files, base: bytes, *entries: ResourceState) -> None:
        """As an interrupted run leaves it: these were created since the state `base`."""
        written = create_file_journal(files.journal, journal.compute_digest(base))
        written.append(
            [
                journal.Record(
                    "add", {"new": 9 + n}, {"resource": encode_resource(entry, files.crypter)}
                )
                for n, entry in enumerate(entries)
            ]
        )
        written.log.close()

    def test_an_edit_goes_on_from_it(self, run: Run, files: Files) -> None:
        self.journal(files, files.path.read_bytes(), machine("c"))
        told = run("state", "list", "--json").json["resources"]
        assert sorted(entry["id"] for entry in told) == ["", "m-a", "m-b", "m-c"]
        exported = run("stack", "export").json["deployment"]["resources"]
        assert sorted(e.get("id", "") for e in exported) == ["", "m-a", "m-b", "m-c"]
        ran = run("state", "delete", "b", "--yes")
        assert ran.code == 0
        assert "recovered 1 changes of it from its journal" in ran.err
        assert files.ids == ["m-a", "m-c"]
        assert not files.journal.exists()

    def test_it_belongs_to_the_state_that_is_brought_back(self, run: Run, files: Files) -> None:
        self.journal(files, files.good, machine("c"))
        truncated(files)
        ran = run("state", "repair", "--from-backup", "--yes")
        assert ran.code == 0
        assert "The 1 changes of its journal are included." in ran.out
        assert "m-c" in run("state", "list").out

    def test_it_can_be_given_up(self, run: Run, files: Files, terminal: None) -> None:
        self.journal(files, b"another state", machine("c"))
        for args in (("stack", "export"), ("state", "list"), ("state", "repair")):
            ran = run(*args)
            assert ran.code == 0
            assert f"{machine('c').urn} (id m-c)" in ran.err
            assert str(files.journal) in ran.err
        assert "m-c" in run("state", "protect", "b", "--yes").err
        for args in (
            ("stack", "rename", "other"),
            ("stack", "change-secrets-provider", "passphrase"),
        ):
            refused = run(*args)
            assert refused.code == 1
            assert "gpuform refresh" in refused.err
        before = files.journal.read_bytes()
        shown = run("state", "repair", "--discard-journal", answers="no\n")
        assert f"{machine('c').urn} (id m-c)" in shown.out
        assert files.journal.exists()
        ran = run("state", "repair", "--discard-journal", "--yes")
        assert ran.code == 0
        (kept,) = files.journal.parent.glob("dev.journal.*")
        assert kept.read_bytes() == before
        assert str(kept) in ran.out
        assert run("state", "protect", "a", "--yes").code == 0
        assert "no journal" in run("state", "repair", "--discard-journal").out

    def test_of_another_version(self, run: Run, files: Files) -> None:
        text = b'{"gpuform-journal":9,"base":""}'
        files.journal.parent.mkdir(parents=True, exist_ok=True)
        files.journal.write_bytes(journal.encode_line(text))
        before = files.all()
        shows = (("stack", "export"), ("stack", "export", "--show-secrets"), ("state", "list"))
        for args in (*shows, ("state", "repair"), ("preview",), ("state", "taint", "a", "--yes")):
            ran = run(*args)
            assert ran.code == (args[0] == "preview" or "taint" in args)
            assert "version 9" in ran.err
            assert "--discard-journal" in ran.err
        assert files.all() == before
        assert run("state", "repair", "--discard-journal", "--yes").code == 0
        assert run("state", "list").code == 0


@pytest.mark.parametrize(
    ("old", "new", "said", "hint"),
    [
        ('"version":3', '"version":5', "version 5; versions 3 and 4", "upgrade gpuform"),
        ('"version":3', '"version":4,"features":["time-travel"]', "time-travel", "upgrade gpuform"),
    ],
)
def test_a_newer_format_is_left_alone(
    run: Run, files: Files, old: str, new: str, said: str, hint: str
) -> None:
    files.path.write_text(files.path.read_text().replace(old, new, 1))
    before = files.all()
    for args in (("up", "--yes"), ("state", "protect", "a", "--yes"), ("state", "repair", "--yes")):
        ran = run(*args)
        assert ran.code == 1
        assert said in ran.err
        assert hint in ran.err
    assert files.all() == before


@pytest.mark.parametrize("version", ["v3.261.0", "v4.0.0-alpha.1", "v3.260.5"])
def test_what_a_newer_cli_has_added_is_not_written_away(
    run: Run, files: Files, version: str
) -> None:
    document = json.loads(files.path.read_text())
    latest = document["checkpoint"]["latest"]
    latest["manifest"] |= {"version": version, "magic": compute_magic(version)}
    latest["resources"][-1]["tomorrow"] = 1
    files.path.write_text(json.dumps(document))
    before = files.all()
    ran = run("state", "protect", "a", "--yes")
    is_newer = version != "v3.260.5"
    assert (ran.code, files.all() == before) == (is_newer, is_newer)
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
def test_a_disk_that_is_full(files: Files, args: tuple[str, ...]) -> None:
    """The kernel refuses files that are larger than a lock's, as a full disk would."""
    before = files.all()
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
    assert files.all() == before


def test_a_folder_that_is_read_only(
    run: Run, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = files.all(), os.open

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
    assert files.all() == before
