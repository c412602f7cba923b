"""`gpuform state`: looking at a stack's state and editing it, on real files."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.records import Intent, Intents
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import PendingOperation, ResourceState, Snapshot
from gpuform.stacks.engine.state.edits import verify
from gpuform.stacks.engine.store import Backend
from gpuform.stacks.engine.values import Secret

Run = Any
STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
PROVIDER = "urn:pulumi:dev::demo::pulumi:providers:pulumi-python::default"
TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"


def urn(name: str, stack: str = "dev") -> str:
    return f"urn:pulumi:{stack}::demo::{TYPE}::{name}"


def cluster(name: str, **fields: Any) -> ResourceState:
    made = ResourceState(
        urn(name),
        True,
        TYPE,
        id=f"id-{name}",
        inputs={"__provider": "blob", "gpus": 8.0},
        outputs={"__provider": "blob", "gpus": 8.0, "key": Secret("hunter2")},
        parent=STACK,
        provider=f"{PROVIDER}::p-1",
    )
    return replace(made, **fields)


def state_of(*entries: ResourceState, pending: Sequence[PendingOperation] = ()) -> Snapshot:
    return Snapshot(
        "organization/demo/dev",
        [
            ResourceState(STACK, False, "pulumi:pulumi:Stack"),
            ResourceState(PROVIDER, True, "pulumi:providers:pulumi-python", id="p-1"),
            *entries,
        ],
        [*pending],
    )


class Files:
    """The stack's state on disk."""

    def __init__(self, project: Path, crypter: PassphraseCrypter) -> None:
        self.project, self.crypter = project, crypter
        self.path = project / ".pulumi/stacks/demo/dev.json"
        self.bak = self.path.with_name("dev.json.bak")

    def put(self, snapshot: Snapshot) -> bytes:
        snapshot.secrets_provider = self.crypter.provider
        data = snapshot.to_json(self.crypter)
        self.path.write_bytes(data)
        return data

    def read(self) -> Snapshot:
        snapshot = Snapshot.from_json(self.path.read_bytes(), self.crypter)
        assert verify(snapshot) == []
        return snapshot

    @property
    def names(self) -> list[str]:
        return [entry.urn.rpartition("::")[2] for entry in self.read().resources[2:]]


@pytest.fixture
def files(dev: Run, project: Path, salt: str) -> Files:
    """b needs a."""
    made = Files(project, PassphraseCrypter("", salt))
    made.put(state_of(cluster("a"), cluster("b", dependencies=[urn("a")])))
    return made


class TestLooking:
    def test_list(self, run: Run, files: Files) -> None:
        old = cluster("a", id="id-old", delete=True, protect=True)
        pending = PendingOperation(cluster("c", id=""), "creating")
        files.put(state_of(cluster("a", init_errors=["x"]), old, pending=[pending]))
        lines = run("state", "list").out.splitlines()
        assert lines[0].split() == ["URN", "ID", "FLAGS"]
        assert lines[1].split() == [STACK, "-"]
        assert lines[3].endswith("id-a    not ready")
        assert lines[4].endswith("id-old  protected, waits for deletion")
        assert (
            lines[5]
            == f"{urn('c')}{' ' * (len(PROVIDER) - len(urn('c')))}  -       pending: creating"
        )
        told = run("state", "list", "--json").json
        assert told["resources"][3] == {
            "urn": urn("a"),
            "type": TYPE,
            "id": "id-old",
            "flags": ["protected", "waits for deletion"],
        }
        assert told["pendingOperations"] == [{"urn": urn("c"), "type": "creating"}]

    def test_show_masks_secrets(self, run: Run, files: Files) -> None:
        shown = run("state", "show", "b")
        assert shown.code == 0
        assert f"urn: {urn('b')}" in shown.out
        assert "key: '[secret]'" in shown.out
        assert "hunter2" not in shown.out
        assert "blob" not in shown.out
        told = run("state", "show", urn("b"), "--json").json
        assert told["outputs"] == {"gpus": 8, "key": "[secret]"}
        assert told["dependencies"] == [urn("a")]
        clear = run("state", "show", "b", "--json", "--show-secrets").json
        assert clear["outputs"]["key"] == "hunter2"

    def test_no_passphrase_is_needed_but_for_secrets(
        self, run: Run, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        assert run("state", "list").code == 0
        assert run("state", "show", "a").code == 0
        assert run("stack", "export").code == 0
        refused = run("state", "show", "a", "--show-secrets")
        assert refused.code == 1
        assert "PULUMI_CONFIG_PASSPHRASE" in refused.err

    def test_old_objects_are_shown_too(self, run: Run, files: Files) -> None:
        files.put(state_of(cluster("a"), cluster("a", id="id-old", delete=True)))
        assert run("state", "show", "a").out.count("---\n") == 1
        assert [e["id"] for e in run("state", "show", "a", "--json").json] == ["id-a", "id-old"]

    def test_an_unknown_name_gets_the_nearest(self, run: Run, files: Files) -> None:
        files.put(state_of(cluster("training")))
        ran = run("state", "show", "trainning")
        assert ran.code == 1
        assert urn("training") in ran.err


class TestDelete:
    def test_what_others_need_stays(self, run: Run, files: Files) -> None:
        ran = run("state", "delete", "a", "--yes")
        assert ran.code == 1
        assert urn("b") in ran.err
        assert "--target-dependents" in ran.err
        assert files.names == ["a", "b"]
        assert run("state", "delete", "a", "--yes", "--target-dependents").code == 0
        assert files.names == []

    def test_one_and_the_state_before_is_kept(self, run: Run, files: Files) -> None:
        before = files.path.read_bytes()
        ran = run("state", "delete", urn("b"), "--yes")
        assert ran.code == 0
        assert f"removes {urn('b')} (id id-b) from the state" in ran.out
        assert "Removed 1 resource from the state." in ran.out
        assert files.names == ["a"]
        assert files.bak.read_bytes() == before
        assert not (files.project / ".pulumi/history").exists()

    def test_it_asks(self, run: Run, files: Files, terminal: None) -> None:
        assert run("state", "delete", "b", answers="no\n").code == 1
        assert files.names == ["a", "b"]
        assert run("state", "delete", "b", answers="yes\n").code == 0
        assert files.names == ["a"]

    def test_protected_and_all(self, run: Run, files: Files) -> None:
        assert run("state", "protect", "a", "--yes").code == 0
        assert run("state", "delete", "--all", "--yes").code == 1
        assert run("state", "delete", "--all", "--yes", "--force").code == 0
        assert files.read().resources == []
        nothing = run("state", "delete", "--all")
        assert nothing.code == 0

    def test_one_of_several_objects(self, run: Run, files: Files) -> None:
        files.put(state_of(cluster("a"), cluster("a", id="id-old", delete=True)))
        ran = run("state", "delete", "a", "--yes")
        assert ran.code == 1
        assert "--id ID" in ran.err
        assert run("state", "delete", "a", "--id", "id-old", "--yes").code == 0
        assert [e.id for e in files.read().resources[2:]] == ["id-a"]

    def test_what_is_meant_must_be_said(self, run: Run, files: Files) -> None:
        assert run("state", "delete", "--yes").code == 2
        assert run("state", "delete", "a", "--all", "--yes").code == 2


class TestFlags:
    def test_protect_and_unprotect(self, run: Run, files: Files) -> None:
        assert run("state", "protect", "a", urn("b"), "--yes").code == 0
        assert [e.protect for e in files.read().resources] == [False, False, True, True]
        ran = run("state", "unprotect", "b", "--yes")
        assert "1 resource unprotected." in ran.out
        assert [e.protect for e in files.read().resources] == [False, False, True, False]
        assert run("state", "protect", "--all", "--yes").code == 0
        assert [e.protect for e in files.read().resources] == [False, False, True, True]
        assert run("state", "unprotect", "--all", "--yes").code == 0
        assert not any(e.protect for e in files.read().resources)

    def test_taint_and_untaint(self, run: Run, files: Files) -> None:
        assert run("state", "taint", "a", "b", "--yes").code == 0
        assert [e.taint for e in files.read().resources[2:]] == [True, True]
        assert json.loads(files.path.read_text())["features"] == ["taint"]
        assert run("state", "untaint", "a", "--yes").code == 0
        assert run("state", "untaint", "--all", "--yes").code == 0
        assert json.loads(files.path.read_text())["version"] == 3

    def test_one_unknown_name_changes_nothing(self, run: Run, files: Files) -> None:
        before = files.path.read_bytes()
        assert run("state", "protect", "a", "nope", "--yes").code == 1
        assert files.path.read_bytes() == before

    @pytest.mark.parametrize("command", ["protect", "unprotect", "taint", "untaint"])
    def test_what_is_meant_must_be_said(self, run: Run, files: Files, command: str) -> None:
        assert run("state", command, "--yes").code == 2


class TestRename:
    def test_references_and_intents_follow(self, run: Run, files: Files) -> None:
        intents = _intents(files)
        intents.record(Intent(urn("a"), "together", "Cluster", "training", "us-central-8", 1.0))
        ran = run("state", "rename", "a", "z", "--yes")
        assert ran.code == 0
        assert f"{urn('a')} becomes {urn('z')}" in ran.out
        assert files.names == ["z", "b"]
        assert files.read().resources[3].dependencies == [urn("z")]
        assert [intent.urn for intent in _intents(files).list_all()] == [urn("z")]

    def test_a_failure_leaves_the_intents(
        self, run: Run, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        intents = _intents(files)
        intents.record(Intent(urn("a"), "together", "Cluster", "training", "us-central-8", 1.0))

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("gpuform.stacks.engine.store.storage.files.replace_file", full)
        ran = run("state", "rename", "a", "z", "--yes")
        assert ran.code == 1
        assert "No space left on device" in ran.err
        assert [intent.urn for intent in _intents(files).list_all()] == [urn("a")]

    def test_what_is_refused(self, run: Run, files: Files) -> None:
        assert "already" in run("state", "rename", "a", "b", "--yes").err
        assert "gpuform stack rename" in run("state", "rename", "demo-dev", "x", "--yes").err


def _intents(files: Files) -> Intents:
    return open_intents(Backend.open(f"file://{files.project}", {}), "demo", "dev")


class TestMove:
    @pytest.fixture
    def prod(self, run: Run, files: Files, salt: str) -> Run:
        (files.project / "Pulumi.prod.yaml").write_text(f"encryptionsalt: {salt}\n")
        assert run("stack", "init", "prod").code == 0
        assert run("stack", "select", "dev").code == 0
        return run

    def state(
        self, files: Files, stack: str, passphrase: str = "", project: str = "demo"
    ) -> Snapshot:
        data = (files.project / f".pulumi/stacks/{project}/{stack}.json").read_bytes()
        salt = json.loads(data)["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"]
        snapshot = Snapshot.from_json(data, PassphraseCrypter(passphrase, salt))
        assert verify(snapshot) == []
        return snapshot

    def test_to_another_stack(self, prod: Run, files: Files) -> None:
        ran = prod("state", "move", "--dest", "prod", "a", "--yes")
        assert ran.code == 0, ran.err
        assert f"{urn('a')} becomes {urn('a', 'prod')}" in ran.out
        assert f"{urn('b')}: dependency {urn('a')}" in ran.out
        assert files.names == ["b"]
        assert files.read().resources[2].dependencies == []
        arrived = self.state(files, "prod").resources[-1]
        assert (arrived.urn, arrived.id) == (urn("a", "prod"), "id-a")
        secret = arrived.outputs["key"]
        assert isinstance(secret, Secret)
        assert secret.value == "hunter2"

    def test_under_another_passphrase(
        self, prod: Run, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "two")
        assert prod("stack", "init", "other").code == 0
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
        args = ("state", "move", "--source", "dev", "--dest", "other", "b", "--yes")
        refused = prod(*args)
        assert refused.code == 1
        assert "incorrect passphrase for the destination, stack 'other'" in refused.err
        assert "GPUFORM_DEST_PASSPHRASE" in refused.err
        assert files.names == ["a", "b"]
        monkeypatch.setenv("GPUFORM_DEST_PASSPHRASE", "two")
        assert prod(*args).code == 0
        assert self.state(files, "other", "two").resources[-1].outputs["key"] == Secret("hunter2")

    def test_to_another_project(self, prod: Run, files: Files, project: Path) -> None:
        source = project / ".pulumi/stacks/demo/prod.json"
        target = project / ".pulumi/stacks/shop/live.json"
        target.parent.mkdir()
        source.replace(target)
        ran = prod("state", "move", "--dest", "organization/shop/live", "b", "--yes")
        assert ran.code == 0, ran.err
        arrived = self.state(files, "live", project="shop").resources[-1]
        assert arrived.urn == f"urn:pulumi:live::shop::{TYPE}::b"
        assert prod("state", "move", "--dest", "organization/shop/none", "a", "--yes").code == 1
        assert not list(project.glob("Pulumi.live*"))
        left = project / ".pulumi/gpuform/shop/live.secrets-change"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text("{}")
        refused = prod("state", "move", "--dest", "organization/shop/live", "a", "--yes")
        assert (
            "stack organization/shop/live: a change of its secrets provider was interrupted"
            in refused.err
        )
        assert files.names == ["a"]

    def test_a_failure_at_the_source_is_taken_back(
        self, prod: Run, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from gpuform.stacks.engine.store.storage import files as storage_files

        before, real = files.path.read_bytes(), storage_files.replace_file

        def full_for_dev(path: Path, data: bytes) -> None:
            if path.name.startswith("dev.json"):
                raise OSError(28, "No space left on device")
            real(path, data)

        monkeypatch.setattr(storage_files, "replace_file", full_for_dev)
        ran = prod("state", "move", "--dest", "prod", "a", "--yes")
        assert ran.code == 1
        assert "No space left on device" in ran.err
        assert files.path.read_bytes() == before
        assert self.state(files, "prod").resources == []

    def test_what_is_refused(self, prod: Run, files: Files, terminal: None) -> None:
        assert prod("state", "move", "a").code == 2
        assert "both stack 'dev'" in prod("state", "move", "--dest", "dev", "a").err
        assert prod("state", "move", "--dest", "nope", "a").code == 6
        assert prod("state", "move", "--dest", "prod", "a", answers="no\n").code == 1
        assert files.names == ["a", "b"]
        assert not list((files.project / ".pulumi/locks").rglob("*.json"))


class TestLocks:
    @pytest.mark.parametrize(
        "args",
        [
            ("state", "delete", "b", "--yes"),
            ("state", "protect", "a", "--yes"),
            ("state", "rename", "a", "z", "--yes"),
            ("state", "repair"),
            ("stack", "rename", "prod"),
            ("stack", "import", "--file", "x.json"),
            ("stack", "change-secrets-provider", "passphrase"),
            ("stack", "rm", "dev", "--yes", "--force"),
        ],
        ids=lambda args: " ".join(args[:2]),
    )
    def test_every_change_takes_the_lock(
        self, run: Run, files: Files, args: tuple[str, ...]
    ) -> None:
        (files.project / "x.json").write_text('{"version": 3, "deployment": {}}')
        lock = files.project / ".pulumi/locks/organization/demo/dev/left.json"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.write_text('{"pid": 1, "username": "ann", "hostname": "elsewhere"}')
        before = files.path.read_bytes()
        ran = run(*args)
        assert ran.code == 1
        assert "ann@elsewhere" in ran.err
        assert files.path.read_bytes() == before

    def test_a_wrong_passphrase_is_told_before_anything_is_done(
        self, run: Run, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = files.path.read_bytes()
        for variable in ("wrong", None):
            if variable is None:
                monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
            else:
                monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", variable)
            for args in (("state", "delete", "b", "--yes"), ("destroy", "--yes")):
                ran = run(*args)
                assert ran.code == 1
                assert "passphrase" in ran.err
                assert "PULUMI_CONFIG_PASSPHRASE" in ran.err
            assert files.path.read_bytes() == before
        assert not list((files.project / ".pulumi/locks").rglob("*.json"))


def test_upgrade(dev: Run, project: Path) -> None:
    assert "nothing to upgrade" in dev("state", "upgrade").out
    (project / ".pulumi/stacks/old.json").write_text("{}")
    ran = dev("state", "upgrade")
    assert ran.code == 1
    assert "old.json" in ran.err
    assert "pulumi state upgrade" in ran.err


def test_state_alone_shows_its_help(run: Run) -> None:
    ran = run("state")
    assert ran.code == 0
    for name in ("list", "show", "delete", "protect", "repair", "move", "upgrade"):
        assert f"\n  {name} " in ran.out
