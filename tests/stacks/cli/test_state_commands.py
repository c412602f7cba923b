"""`gpuform state`: looking at a stack's state and editing it, on real files."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.records import Intent, Intents
from gpuform.providers.values import Secret
from gpuform.stacks.engine.records import open_intents, read_moved_resources
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import PendingOperation, ResourceState, Snapshot
from gpuform.stacks.engine.state.edits import verify
from gpuform.stacks.engine.store import Backend

Run = Any
STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
PROVIDER = "urn:pulumi:dev::demo::pulumi:providers:pulumi-python::default"
TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"


def build_urn(name: str, stack: str = "dev") -> str:
    return f"urn:pulumi:{stack}::demo::{TYPE}::{name}"


def build_cluster(name: str, **fields: Any) -> ResourceState:
    made = ResourceState(
        build_urn(name),
        True,
        TYPE,
        id=f"id-{name}",
        inputs={"__provider": "blob", "gpus": 8.0},
        outputs={"__provider": "blob", "gpus": 8.0, "key": Secret("hunter2")},
        parent=STACK,
        provider=f"{PROVIDER}::p-1",
    )
    return replace(made, **fields)


def build_snapshot(*entries: ResourceState, pending: Sequence[PendingOperation] = ()) -> Snapshot:
    return Snapshot(
        "organization/demo/dev",
        [
            ResourceState(STACK, False, "pulumi:pulumi:Stack"),
            ResourceState(PROVIDER, True, "pulumi:providers:pulumi-python", id="p-1"),
            *entries,
        ],
        [*pending],
    )


class StateFiles:
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
def state_files(dev: Run, project: Path, salt: str) -> StateFiles:
    """Write a state in which cluster b depends on cluster a."""
    made = StateFiles(project, PassphraseCrypter("", salt))
    made.put(build_snapshot(build_cluster("a"), build_cluster("b", dependencies=[build_urn("a")])))
    return made


class TestShowing:
    def test_state_list_shows_flags_and_pending_operations(
        self, run: Run, state_files: StateFiles
    ) -> None:
        old = build_cluster("a", id="id-old", delete=True, protect=True)
        pending = PendingOperation(build_cluster("c", id=""), "creating")
        state_files.put(
            build_snapshot(build_cluster("a", init_errors=["x"]), old, pending=[pending])
        )
        lines = run("state", "list").out.splitlines()
        assert lines[0].split() == ["URN", "ID", "FLAGS"]
        assert lines[1].split() == [STACK, "-"]
        assert lines[3].endswith("id-a    not ready")
        assert lines[4].endswith("id-old  protected, waits for deletion")
        assert lines[5] == f"{build_urn('c'):{len(PROVIDER)}}  -       pending: creating"
        document = run("state", "list", "--json").json
        assert document["resources"][3] == {
            "urn": build_urn("a"),
            "type": TYPE,
            "id": "id-old",
            "flags": ["protected", "waits for deletion"],
        }
        assert document["pendingOperations"] == [{"urn": build_urn("c"), "type": "creating"}]

    def test_state_show_masks_secrets(self, run: Run, state_files: StateFiles) -> None:
        ran = run("state", "show", "b")
        assert ran.code == 0
        assert f"urn: {build_urn('b')}" in ran.out
        assert "key: '[secret]'" in ran.out
        assert "hunter2" not in ran.out
        assert "blob" not in ran.out
        document = run("state", "show", build_urn("b"), "--json").json
        assert document["outputs"] == {"gpus": 8, "key": "[secret]"}
        assert document["dependencies"] == [build_urn("a")]
        clear = run("state", "show", "b", "--json", "--show-secrets").json
        assert clear["outputs"]["key"] == "hunter2"

    def test_only_show_secrets_needs_the_passphrase(
        self, run: Run, state_files: StateFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        assert run("state", "list").code == 0
        assert run("state", "show", "a").code == 0
        assert run("stack", "export").code == 0
        refused = run("state", "show", "a", "--show-secrets")
        assert refused.code == 1
        assert "PULUMI_CONFIG_PASSPHRASE" in refused.err

    def test_state_show_includes_old_objects(self, run: Run, state_files: StateFiles) -> None:
        state_files.put(
            build_snapshot(build_cluster("a"), build_cluster("a", id="id-old", delete=True))
        )
        assert run("state", "show", "a").out.count("---\n") == 1
        assert [e["id"] for e in run("state", "show", "a", "--json").json] == ["id-a", "id-old"]

    def test_state_show_of_an_unknown_name_suggests_the_nearest(
        self, run: Run, state_files: StateFiles
    ) -> None:
        state_files.put(build_snapshot(build_cluster("training")))
        ran = run("state", "show", "trainning")
        assert ran.code == 1
        assert build_urn("training") in ran.err


class TestDelete:
    def test_delete_keeps_a_resource_with_dependents(
        self, run: Run, state_files: StateFiles
    ) -> None:
        ran = run("state", "delete", "a", "--yes")
        assert ran.code == 1
        assert build_urn("b") in ran.err
        assert "--target-dependents" in ran.err
        assert state_files.names == ["a", "b"]
        assert run("state", "delete", "a", "--yes", "--target-dependents").code == 0
        assert state_files.names == []

    def test_delete_forgets_one_resource_and_keeps_a_backup(
        self, run: Run, state_files: StateFiles
    ) -> None:
        before = state_files.path.read_bytes()
        ran = run("state", "delete", build_urn("b"), "--yes")
        assert ran.code == 0
        assert f"removes {build_urn('b')} (id id-b) from the state" in ran.out
        assert "Removed 1 resource from the state." in ran.out
        assert state_files.names == ["a"]
        assert state_files.bak.read_bytes() == before
        assert not (state_files.project / ".pulumi/history").exists()

    def test_delete_asks_for_confirmation(
        self, run: Run, state_files: StateFiles, terminal: None
    ) -> None:
        assert run("state", "delete", "b", answers="no\n").code == 1
        assert state_files.names == ["a", "b"]
        assert run("state", "delete", "b", answers="yes\n").code == 0
        assert state_files.names == ["a"]

    def test_delete_all_requires_force_for_protected_resources(
        self, run: Run, state_files: StateFiles
    ) -> None:
        assert run("state", "protect", "a", "--yes").code == 0
        assert run("state", "delete", "--all", "--yes").code == 1
        assert run("state", "delete", "--all", "--yes", "--force").code == 0
        assert state_files.read().resources == []
        nothing = run("state", "delete", "--all")
        assert nothing.code == 0

    def test_delete_of_one_of_several_objects_requires_its_id(
        self, run: Run, state_files: StateFiles
    ) -> None:
        state_files.put(
            build_snapshot(build_cluster("a"), build_cluster("a", id="id-old", delete=True))
        )
        ran = run("state", "delete", "a", "--yes")
        assert ran.code == 1
        assert "--id ID" in ran.err
        assert run("state", "delete", "a", "--id", "id-old", "--yes").code == 0
        assert [e.id for e in state_files.read().resources[2:]] == ["id-a"]

    def test_delete_without_a_name_is_a_usage_error(
        self, run: Run, state_files: StateFiles
    ) -> None:
        assert run("state", "delete", "--yes").code == 2
        assert run("state", "delete", "a", "--all", "--yes").code == 2


class TestFlags:
    def test_protect_and_unprotect_set_the_flag(self, run: Run, state_files: StateFiles) -> None:
        assert run("state", "protect", "a", build_urn("b"), "--yes").code == 0
        assert [e.protect for e in state_files.read().resources] == [False, False, True, True]
        ran = run("state", "unprotect", "b", "--yes")
        assert "1 resource unprotected." in ran.out
        assert [e.protect for e in state_files.read().resources] == [False, False, True, False]
        assert run("state", "protect", "--all", "--yes").code == 0
        assert [e.protect for e in state_files.read().resources] == [False, False, True, True]
        assert run("state", "unprotect", "--all", "--yes").code == 0
        assert not any(e.protect for e in state_files.read().resources)

    def test_taint_and_untaint_set_the_flag_and_the_format(
        self, run: Run, state_files: StateFiles
    ) -> None:
        assert run("state", "taint", "a", "b", "--yes").code == 0
        assert [e.taint for e in state_files.read().resources[2:]] == [True, True]
        assert json.loads(state_files.path.read_text())["features"] == ["taint"]
        assert run("state", "untaint", "a", "--yes").code == 0
        assert run("state", "untaint", "--all", "--yes").code == 0
        assert json.loads(state_files.path.read_text())["version"] == 3

    def test_an_unknown_name_changes_no_flag(self, run: Run, state_files: StateFiles) -> None:
        before = state_files.path.read_bytes()
        assert run("state", "protect", "a", "nope", "--yes").code == 1
        assert state_files.path.read_bytes() == before

    @pytest.mark.parametrize("command", ["protect", "unprotect", "taint", "untaint"])
    def test_flag_commands_without_a_name_are_usage_errors(
        self, run: Run, state_files: StateFiles, command: str
    ) -> None:
        assert run("state", command, "--yes").code == 2


class TestRename:
    def test_rename_updates_references_and_intents(self, run: Run, state_files: StateFiles) -> None:
        intents = _intents(state_files)
        intents.record(
            Intent(build_urn("a"), "together", "Cluster", "training", "us-central-8", 1.0)
        )
        ran = run("state", "rename", "a", "z", "--yes")
        assert ran.code == 0
        assert f"{build_urn('a')} becomes {build_urn('z')}" in ran.out
        assert state_files.names == ["z", "b"]
        assert state_files.read().resources[3].dependencies == [build_urn("z")]
        assert [intent.urn for intent in _intents(state_files).list_all()] == [build_urn("z")]

    def test_a_failed_rename_leaves_the_intents(
        self, run: Run, state_files: StateFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        intents = _intents(state_files)
        intents.record(
            Intent(build_urn("a"), "together", "Cluster", "training", "us-central-8", 1.0)
        )

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("gpuform.stacks.engine.store.storage.replace_file", full)
        ran = run("state", "rename", "a", "z", "--yes")
        assert ran.code == 1
        assert "No space left on device" in ran.err
        assert [intent.urn for intent in _intents(state_files).list_all()] == [build_urn("a")]

    def test_rename_refuses_existing_names_and_the_stack(
        self, run: Run, state_files: StateFiles
    ) -> None:
        assert "already" in run("state", "rename", "a", "b", "--yes").err
        assert "gpuform stack rename" in run("state", "rename", "demo-dev", "x", "--yes").err


def _intents(state_files: StateFiles) -> Intents:
    return open_intents(Backend.open(f"file://{state_files.project}", {}), "demo", "dev")


class TestMove:
    @pytest.fixture
    def run_with_prod(self, run: Run, state_files: StateFiles, salt: str) -> Run:
        (state_files.project / "Pulumi.prod.yaml").write_text(f"encryptionsalt: {salt}\n")
        assert run("stack", "init", "prod").code == 0
        assert run("stack", "select", "dev").code == 0
        return run

    def read_state(
        self, state_files: StateFiles, stack: str, passphrase: str = "", project: str = "demo"
    ) -> Snapshot:
        data = (state_files.project / f".pulumi/stacks/{project}/{stack}.json").read_bytes()
        salt = json.loads(data)["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"]
        snapshot = Snapshot.from_json(data, PassphraseCrypter(passphrase, salt))
        assert verify(snapshot) == []
        return snapshot

    def test_move_to_another_stack_encrypts_again_and_drops_dependencies(
        self, run_with_prod: Run, state_files: StateFiles
    ) -> None:
        ran = run_with_prod("state", "move", "--dest", "prod", "a", "--yes")
        assert ran.code == 0, ran.err
        assert f"{build_urn('a')} becomes {build_urn('a', 'prod')}" in ran.out
        assert f"{build_urn('b')}: dependency {build_urn('a')}" in ran.out
        assert state_files.names == ["b"]
        assert state_files.read().resources[2].dependencies == []
        arrived = self.read_state(state_files, "prod").resources[-1]
        assert (arrived.urn, arrived.id) == (build_urn("a", "prod"), "id-a")
        secret = arrived.outputs["key"]
        assert isinstance(secret, Secret)
        assert secret.value == "hunter2"

    def test_the_source_records_where_its_resources_are_until_they_come_back(
        self, run_with_prod: Run, state_files: StateFiles
    ) -> None:
        backend = Backend.open(f"file://{state_files.project}", os.environ)
        records = [open_intents(backend, "demo", stack).records for stack in ("dev", "prod")]
        assert run_with_prod("state", "move", "--dest", "prod", "a", "--yes").code == 0
        assert [dict(read_moved_resources(record)) for record in records] == [
            {build_urn("a"): "organization/demo/prod"},
            {},
        ]
        assert run_with_prod("state", "move", "--source", "prod", "a", "--yes").code == 0
        records = [open_intents(backend, "demo", stack).records for stack in ("dev", "prod")]
        assert [dict(read_moved_resources(record)) for record in records] == [
            {},
            {build_urn("a", "prod"): "organization/demo/dev"},
        ]

    def test_move_to_another_passphrase_needs_its_variable(
        self, run_with_prod: Run, state_files: StateFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "two")
        assert run_with_prod("stack", "init", "other").code == 0
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
        args = ("state", "move", "--source", "dev", "--dest", "other", "b", "--yes")
        refused = run_with_prod(*args)
        assert refused.code == 1
        assert "incorrect passphrase for the destination, stack 'other'" in refused.err
        assert "GPUFORM_DEST_PASSPHRASE" in refused.err
        assert state_files.names == ["a", "b"]
        monkeypatch.setenv("GPUFORM_DEST_PASSPHRASE", "two")
        assert run_with_prod(*args).code == 0
        assert self.read_state(state_files, "other", "two").resources[-1].outputs["key"] == Secret(
            "hunter2"
        )

    def test_move_to_a_stack_of_another_project(
        self, run_with_prod: Run, state_files: StateFiles, project: Path
    ) -> None:
        source = project / ".pulumi/stacks/demo/prod.json"
        target = project / ".pulumi/stacks/shop/live.json"
        target.parent.mkdir()
        source.replace(target)
        ran = run_with_prod("state", "move", "--dest", "organization/shop/live", "b", "--yes")
        assert ran.code == 0, ran.err
        arrived = self.read_state(state_files, "live", project="shop").resources[-1]
        assert arrived.urn == f"urn:pulumi:live::shop::{TYPE}::b"
        assert (
            run_with_prod("state", "move", "--dest", "organization/shop/none", "a", "--yes").code
            == 1
        )
        assert not list(project.glob("Pulumi.live*"))
        leftover_file = project / ".pulumi/gpuform/shop/live.secrets-change"
        leftover_file.parent.mkdir(parents=True, exist_ok=True)
        leftover_file.write_text("{}")
        refused = run_with_prod("state", "move", "--dest", "organization/shop/live", "a", "--yes")
        assert (
            "stack organization/shop/live: a change of its secrets provider was interrupted"
            in refused.err
        )
        assert state_files.names == ["a"]

    def test_a_failure_at_the_source_reverts_the_move(
        self, run_with_prod: Run, state_files: StateFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from gpuform.stacks.engine.store import storage as storage_files

        before, real = state_files.path.read_bytes(), storage_files.replace_file

        def full_for_dev(path: Path, data: bytes) -> None:
            if path.name.startswith("dev.json"):
                raise OSError(28, "No space left on device")
            real(path, data)

        monkeypatch.setattr(storage_files, "replace_file", full_for_dev)
        ran = run_with_prod("state", "move", "--dest", "prod", "a", "--yes")
        assert ran.code == 1
        assert "No space left on device" in ran.err
        assert state_files.path.read_bytes() == before
        assert self.read_state(state_files, "prod").resources == []

    def test_move_refuses_the_same_stack_and_unknown_stacks(
        self, run_with_prod: Run, state_files: StateFiles, terminal: None
    ) -> None:
        assert run_with_prod("state", "move", "a").code == 2
        assert "both stack 'dev'" in run_with_prod("state", "move", "--dest", "dev", "a").err
        assert run_with_prod("state", "move", "--dest", "nope", "a").code == 6
        assert run_with_prod("state", "move", "--dest", "prod", "a", answers="no\n").code == 1
        assert state_files.names == ["a", "b"]
        assert not list((state_files.project / ".pulumi/locks").rglob("*.json"))


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
    def test_every_changing_command_takes_the_lock(
        self, run: Run, state_files: StateFiles, args: tuple[str, ...]
    ) -> None:
        (state_files.project / "x.json").write_text('{"version": 3, "deployment": {}}')
        lock = state_files.project / ".pulumi/locks/organization/demo/dev/left.json"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.write_text('{"pid": 1, "username": "ann", "hostname": "elsewhere"}')
        before = state_files.path.read_bytes()
        ran = run(*args)
        assert ran.code == 1
        assert "ann@elsewhere" in ran.err
        assert state_files.path.read_bytes() == before

    def test_a_wrong_passphrase_stops_before_any_change(
        self, run: Run, state_files: StateFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = state_files.path.read_bytes()
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
            assert state_files.path.read_bytes() == before
        assert not list((state_files.project / ".pulumi/locks").rglob("*.json"))


def test_state_upgrade_names_old_files_and_the_pulumi_cli(dev: Run, project: Path) -> None:
    assert "nothing to upgrade" in dev("state", "upgrade").out
    (project / ".pulumi/stacks/old.json").write_text("{}")
    ran = dev("state", "upgrade")
    assert ran.code == 1
    assert "old.json" in ran.err
    assert "pulumi state upgrade" in ran.err


def test_state_without_command_shows_its_help(run: Run) -> None:
    ran = run("state")
    assert ran.code == 0
    for name in ("list", "show", "delete", "protect", "repair", "move", "upgrade"):
        assert f"\n  {name} " in ran.out
