"""Test every command after a killed create, on the same machine and on another one."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.stacks.file_locks import create_file_journal
from support.topologies.declarations import BENCH

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.records import Intent, Intents
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import to_unix_time
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state.journal import Record
from gpuform.stacks.engine.store import Backend

pytestmark = pytest.mark.slow

Run = Any

VOLUME = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:SharedVolume::data"
CLUSTER = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.tensorone:Cluster::bench"


class InterruptedStack:
    """The stack dev with a cluster and a volume, and what the platforms have."""

    def __init__(self, run: Run, project: Path, http: httpx.Client) -> None:
        self.run = run
        self.project = project
        self.http = http

    @property
    def state(self) -> Path:
        return self.project / ".pulumi/stacks/demo/dev.json"

    @property
    def intents(self) -> Intents:
        return open_intents(Backend.open(f"file://{self.project}", {}), "demo", "dev")

    @property
    def now(self) -> float:
        return float(self.http.get("/_emulator/clock").json()["now"])

    def advance_clock(self, seconds: float) -> None:
        self.http.post("/_emulator/clock", json={"advance": seconds}).raise_for_status()

    def list_ids(self) -> set[str]:
        objects = self.http.get("/_emulator/objects").json()
        return {
            listed_object["id"]
            for listed_object in (
                *objects["together"]["volumes"],
                *objects["tensorone"]["clusters"],
            )
            if listed_object["status"] not in ("deleting", "deleted")
        }

    def simulate_killed_create(self, urn: str, *, id_is_known: bool) -> str:
        """Change state and records as if the create had been killed around its answer."""
        document = json.loads(self.state.read_text())
        latest = document["checkpoint"]["latest"]
        (entry,) = [resource for resource in latest["resources"] if resource["urn"] == urn]
        latest["resources"].remove(entry)
        id_ = str(entry.pop("id"))
        created_at = to_unix_time(entry["outputs"].get("created_at"))
        begun = {"resource": {**entry, "outputs": {}}, "type": "creating"}
        latest["pending_operations"] = [*latest.get("pending_operations", []), begun]
        self.state.write_text(json.dumps(document))
        inputs = entry["inputs"]
        is_volume = "volume_name" in inputs
        self.intents.record(
            Intent(
                urn,
                platform="together" if is_volume else "tensorone",
                kind="SharedVolume" if is_volume else "Cluster",
                name=inputs["volume_name"] if is_volume else inputs["name"],
                region="" if is_volume else inputs["region"],
                started_at=self.now if created_at is None else created_at - 1,
                is_timed=True,
                sent={"size_tib": 1} if is_volume else {"gpu_count": 2},
                id=id_ if id_is_known else None,
            )
        )
        return id_

    def delete_outside(self, id_: str) -> None:
        """Delete a volume outside of the stack."""
        path = f"/together/v1/compute/clusters/storage/volumes/{id_}"
        key = {"Authorization": "Bearer emulator-admin-key"}
        self.http.delete(path, headers=key).raise_for_status()
        self.advance_clock(600)


@pytest.fixture
def interrupted_stack(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InterruptedStack]:
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(BENCH)
    with serve(seed="interrupted") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        assert dev("up", "--yes", "--skip-preview").code == 0
        with httpx.Client(base_url=server.url, verify=False) as http:
            yield InterruptedStack(dev, project, http)


@pytest.fixture
def other_machine(
    interrupted_stack: InterruptedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Enter a copy of the project on another machine, which shares only repository and backend."""
    there = tmp_path / "clone" / "project"
    shutil.copytree(
        interrupted_stack.project, there, ignore=shutil.ignore_patterns(".gpuform", ".pulumi")
    )
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{interrupted_stack.project}")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "another home"))
    monkeypatch.chdir(there)
    return there


@pytest.mark.parametrize("id_is_known", [True, False])
@pytest.mark.parametrize("urn", [VOLUME, CLUSTER], ids=["volume", "cluster"])
class TestCompletedCreate:
    def test_destroy_on_another_machine_deletes_the_object_of_a_killed_create(
        self, interrupted_stack: InterruptedStack, other_machine: Path, urn: str, id_is_known: bool
    ) -> None:
        interrupted_stack.simulate_killed_create(urn, id_is_known=id_is_known)
        ran = interrupted_stack.run("destroy", "--yes", "--stack", "dev")
        assert ran.code == 0, ran.err
        assert ", which is in the stack's state now" in ran.err
        assert "2 deleted" in ran.out
        assert interrupted_stack.list_ids() == set()
        assert interrupted_stack.intents.list_all() == []
        assert interrupted_stack.run("stack", "rm", "dev", "--yes").code == 0

    def test_stack_rm_refuses_while_a_killed_create_has_an_object(
        self, interrupted_stack: InterruptedStack, urn: str, id_is_known: bool
    ) -> None:
        before = interrupted_stack.list_ids()
        interrupted_stack.simulate_killed_create(urn, id_is_known=id_is_known)
        interrupted_stack.run("state", "delete", "--yes", CLUSTER if urn == VOLUME else VOLUME)
        ran = interrupted_stack.run("stack", "rm", "dev", "--yes")
        assert ran.code == 1
        assert "stack 'dev' still has 1 resources" in ran.err
        assert interrupted_stack.list_ids() == before

    @pytest.mark.parametrize(
        "command", [("refresh", "--yes"), ("expire", "--yes"), ("up", "--yes")], ids=" ".join
    )
    def test_any_run_adopts_the_object_of_a_killed_create(
        self,
        interrupted_stack: InterruptedStack,
        urn: str,
        id_is_known: bool,
        command: tuple[str, ...],
    ) -> None:
        before = interrupted_stack.list_ids()
        interrupted_stack.simulate_killed_create(urn, id_is_known=id_is_known)
        assert interrupted_stack.run(*command).code == 0
        latest = json.loads(interrupted_stack.state.read_text())["checkpoint"]["latest"]
        assert {resource["id"] for resource in latest["resources"] if "id" in resource} >= before
        assert not latest.get("pending_operations")
        assert interrupted_stack.intents.list_all() == []
        assert interrupted_stack.run("up", "--yes").code == 0
        assert interrupted_stack.run("preview", "--expect-no-changes").code == 0
        assert interrupted_stack.list_ids() == before


def test_a_preview_shows_the_recovery_and_writes_nothing(
    interrupted_stack: InterruptedStack,
) -> None:
    interrupted_stack.simulate_killed_create(VOLUME, id_is_known=False)

    def read_files() -> dict[Path, bytes]:
        folder = interrupted_stack.project / ".pulumi"
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = read_files()
    ran = interrupted_stack.run("preview")
    assert ran.code == 0
    assert "resume waiting: its create was interrupted" in ran.out
    assert "to create" not in ran.out
    # The preview must not claim what only a later run does.
    assert "which the next `up`, `refresh` or `destroy` writes into the stack's state" in ran.err
    assert read_files() == before


def test_a_killed_create_without_an_object_is_forgotten(
    interrupted_stack: InterruptedStack,
) -> None:
    id_ = interrupted_stack.simulate_killed_create(VOLUME, id_is_known=False)
    interrupted_stack.delete_outside(id_)
    ran = interrupted_stack.run("destroy", "--yes")
    assert ran.code == 0, ran.err
    assert (
        "an interrupted create of data (SharedVolume 'data' on together) created nothing" in ran.err
    )
    assert "1 deleted" in ran.out
    assert interrupted_stack.intents.list_all() == []
    assert "interrupted" not in interrupted_stack.run("destroy", "--yes").err


@pytest.mark.parametrize("id_is_known", [True, False])
def test_a_killed_create_with_other_inputs_is_kept_and_named(
    interrupted_stack: InterruptedStack, id_is_known: bool
) -> None:
    """The region has changed since the killed create; a create in the new one was refused."""
    before = interrupted_stack.list_ids()
    id_ = interrupted_stack.simulate_killed_create(CLUSTER, id_is_known=id_is_known)
    document = json.loads(interrupted_stack.state.read_text())
    (begun,) = document["checkpoint"]["latest"]["pending_operations"]
    begun["resource"]["inputs"]["region"] = "eu-west-1"
    interrupted_stack.state.write_text(json.dumps(document))
    ran = interrupted_stack.run("destroy", "--yes")
    assert ran.code == 1
    assert "this run declares another object" in ran.err
    assert not id_is_known or id_ in ran.err
    assert "gpuform import tensorone:Cluster" in ran.err
    assert (interrupted_stack.list_ids(), len(interrupted_stack.intents.list_all())) == (before, 1)
    assert interrupted_stack.run("destroy", "--yes", "--create-anew").code == 0
    assert interrupted_stack.intents.list_all() == []


class TestUncertainCreate:
    """A volume has no time of its own, and nobody has looked for it in time."""

    @pytest.fixture
    def uncertain_id(self, interrupted_stack: InterruptedStack) -> str:
        id_ = interrupted_stack.simulate_killed_create(VOLUME, id_is_known=False)
        interrupted_stack.advance_clock(86_400)
        return id_

    @pytest.mark.parametrize("command", ["up", "destroy", "refresh", "expire"])
    def test_an_uncertain_create_stops_every_command_before_a_change(
        self, interrupted_stack: InterruptedStack, uncertain_id: str, command: str
    ) -> None:
        before = interrupted_stack.list_ids()
        ran = interrupted_stack.run(command, "--yes")
        assert ran.code == 1
        assert f"may have created one of these, or none: {uncertain_id}" in ran.err
        assert f"`--adopt {uncertain_id}`" in ran.err
        assert "--create-anew" in ran.err
        assert "data (SharedVolume 'data' on together)" in ran.err
        assert interrupted_stack.list_ids() == before
        assert len(interrupted_stack.intents.list_all()) == 1

    def test_an_uncertain_create_stops_the_removal_of_the_stack(
        self, interrupted_stack: InterruptedStack, uncertain_id: str
    ) -> None:
        interrupted_stack.run("state", "delete", "--yes", CLUSTER)
        ran = interrupted_stack.run("stack", "rm", "dev", "--yes")
        assert ran.code == 1
        assert uncertain_id in ran.err
        assert interrupted_stack.run("stack", "rm", "dev", "--yes", "--create-anew").code == 0
        assert uncertain_id in interrupted_stack.list_ids()

    def test_adopt_takes_over_the_object_of_an_uncertain_create(
        self, interrupted_stack: InterruptedStack, uncertain_id: str
    ) -> None:
        ran = interrupted_stack.run("destroy", "--yes", "--adopt", uncertain_id)
        assert ran.code == 0, ran.err
        assert interrupted_stack.list_ids() == set()

    def test_create_anew_with_destroy_leaves_the_object(
        self, interrupted_stack: InterruptedStack, uncertain_id: str
    ) -> None:
        ran = interrupted_stack.run("destroy", "--yes", "--create-anew")
        assert ran.code == 0, ran.err
        assert interrupted_stack.list_ids() == {uncertain_id}
        assert interrupted_stack.intents.list_all() == []

    def test_create_anew_with_up_creates_another_object(
        self, interrupted_stack: InterruptedStack, uncertain_id: str
    ) -> None:
        before = interrupted_stack.list_ids()
        ran = interrupted_stack.run("up", "--yes", "--create-anew")
        assert ran.code == 0, ran.err
        assert interrupted_stack.list_ids() > before
        assert len(interrupted_stack.list_ids()) == len(before) + 1

    def test_an_object_of_another_stack_is_not_adopted(
        self, interrupted_stack: InterruptedStack, uncertain_id: str
    ) -> None:
        state = json.loads(interrupted_stack.state.read_text())
        (operation,) = state["checkpoint"]["latest"].pop("pending_operations")
        other = operation["resource"]
        latest = state["checkpoint"]["latest"]
        state_entry = json.dumps({**other, "id": uncertain_id}).replace(
            "urn:pulumi:dev", "urn:pulumi:prod"
        )
        providers = [
            e for e in state["checkpoint"]["latest"]["resources"] if "providers:" in e["urn"]
        ]
        theirs = json.loads(json.dumps(providers).replace("urn:pulumi:dev", "urn:pulumi:prod"))
        latest["resources"] = [*theirs, json.loads(state_entry)]
        state["checkpoint"]["stack"] = "organization/demo/prod"
        interrupted_stack.state.with_name("prod.json").write_text(json.dumps(state))
        ran = interrupted_stack.run("destroy", "--yes", "--adopt", uncertain_id)
        assert "created nothing" in ran.err
        assert uncertain_id in interrupted_stack.list_ids()


def test_a_colleague_s_cluster_of_a_month_later_is_never_touched(
    interrupted_stack: InterruptedStack,
) -> None:
    """The create was answered with 500, and somebody created an object of its name a month later.

    A platform's time is no proof: the user states that no object belongs to the stack.
    """
    theirs = interrupted_stack.simulate_killed_create(CLUSTER, id_is_known=False)
    (intent,) = interrupted_stack.intents.list_all()
    month = 30 * 86_400
    interrupted_stack.intents.record(replace(intent, started_at=intent.started_at - month))
    ran = interrupted_stack.run("up", "--yes")
    assert ran.code == 1
    assert f"may have created one of these, or none: {theirs}" in ran.err
    assert f"--adopt {theirs}" in ran.err
    assert interrupted_stack.run("destroy", "--yes").code == 1
    ran = interrupted_stack.run("destroy", "--yes", "--create-anew")
    assert ran.code == 0, ran.err
    assert interrupted_stack.list_ids() == {theirs}


def test_intents_beside_the_project_are_read(interrupted_stack: InterruptedStack) -> None:
    """Hosts without access to the backend leave intents there, as earlier versions did."""
    interrupted_stack.simulate_killed_create(VOLUME, id_is_known=True)
    (intent,) = interrupted_stack.intents.list_all()
    interrupted_stack.intents.forget(intent=intent)
    beside = interrupted_stack.project / ".gpuform" / "intents" / "3f-9a.json"
    beside.parent.mkdir(parents=True)
    old = {k: v for k, v in vars(intent).items() if k not in ("is_timed", "sent", "outcome")}
    beside.write_text(json.dumps(old))
    ran = interrupted_stack.run("destroy", "--yes")
    assert ran.code == 0, ran.err
    assert interrupted_stack.list_ids() == set()
    assert not beside.exists()


def test_a_killed_create_without_recorded_inputs_says_what_to_do(
    interrupted_stack: InterruptedStack,
) -> None:
    id_ = interrupted_stack.simulate_killed_create(VOLUME, id_is_known=True)
    document = json.loads(interrupted_stack.state.read_text())
    del document["checkpoint"]["latest"]["pending_operations"]
    interrupted_stack.state.write_text(json.dumps(document))
    ran = interrupted_stack.run("destroy", "--yes")
    assert ran.code == 1
    assert f"the state does not record its inputs ({id_})" in ran.err
    assert "gpuform import together:SharedVolume data ID" in ran.err
    assert interrupted_stack.run("up", "--yes").code == 0
    assert interrupted_stack.run("destroy", "--yes").code == 0
    assert interrupted_stack.list_ids() == set()


def test_doctor_and_orphans_report_a_killed_create(interrupted_stack: InterruptedStack) -> None:
    id_ = interrupted_stack.simulate_killed_create(VOLUME, id_is_known=True)
    assert "a create was started" in interrupted_stack.run("doctor").out
    assert id_ in interrupted_stack.run("orphans").out


def test_a_run_that_lost_its_lock_sends_no_more_changes(
    interrupted_stack: InterruptedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is checked before each request, not only before each write of the state."""

    def lost(_stack: Stack) -> None:
        raise EngineError("the lock was lost", hint="another process has taken over")

    def list_changes() -> list[Any]:
        sent = interrupted_stack.http.get("/_emulator/requests").json()
        return [request for request in sent if request["method"] != "GET"]

    before = list_changes()
    monkeypatch.setattr(Stack, "check_lock", lost)
    topology = interrupted_stack.project / "topology.yaml"
    topology.write_text(BENCH.replace("size_tib: 1", "size_tib: 2"))
    ran = interrupted_stack.run("up", "--yes")
    assert ran.code == 1
    assert "the lock was lost" in ran.out
    assert list_changes() == before


class TestOvertakenRun:
    """A run was killed, and another program has continued from the state before the run."""

    @pytest.fixture
    def journal(self, interrupted_stack: InterruptedStack) -> Path:
        """Move the volume from the state into the journal of a killed run."""
        document = json.loads(interrupted_stack.state.read_text())
        latest = document["checkpoint"]["latest"]
        (entry,) = [resource for resource in latest["resources"] if resource["urn"] == VOLUME]
        latest["resources"].remove(entry)
        begun = {"resource": {**entry, "outputs": {}}, "type": "creating"}
        del begun["resource"]["id"]
        path = interrupted_stack.project / ".pulumi/gpuform/demo/dev.journal"
        file_journal = create_file_journal(path, "of the state that the run began with")
        file_journal.append(
            [
                Record("begin", {"token": 1, "operation": begun}),
                Record("add", {"new": 3, "resource": entry}),
                Record("end", {"token": 1}),
            ]
        )
        file_journal.log.close()
        interrupted_stack.state.write_text(json.dumps(document))
        return path

    @pytest.mark.parametrize("command", ["up", "refresh"])
    def test_a_run_finds_objects_known_only_to_the_journal_and_keeps_the_journal(
        self, interrupted_stack: InterruptedStack, journal: Path, command: str
    ) -> None:
        before, journal_content = interrupted_stack.list_ids(), journal.read_bytes()
        ran = interrupted_stack.run(command, "--yes")
        assert ran.code == 0, ran.err
        assert ", which is in the stack's state now" in ran.err
        assert not journal.exists()
        (kept_journal,) = journal.parent.glob("dev.journal.*")
        assert kept_journal.read_bytes() == journal_content
        assert f"that run is kept in {kept_journal}" in ran.err
        again = interrupted_stack.run("preview", "--expect-no-changes")
        assert (again.code, "interrupted" in again.err) == (0, False)
        assert interrupted_stack.list_ids() == before

    def test_destroy_deletes_an_object_known_only_to_the_journal(
        self, interrupted_stack: InterruptedStack, journal: Path
    ) -> None:
        assert "2 deleted" in interrupted_stack.run("destroy", "--yes").out
        assert interrupted_stack.list_ids() == set()
        assert not journal.exists()

    def test_stack_rm_refuses_while_the_journal_has_an_object(
        self, interrupted_stack: InterruptedStack, journal: Path
    ) -> None:
        interrupted_stack.run("state", "delete", "--yes", CLUSTER)
        assert journal.exists()
        ran = interrupted_stack.run("stack", "rm", "dev", "--yes")
        assert ran.code == 1
        assert "stack 'dev' still has 1 resources" in ran.err

    def test_up_asks_before_deleting_an_undeclared_object_of_the_journal(
        self, interrupted_stack: InterruptedStack, journal: Path
    ) -> None:
        (interrupted_stack.project / "topology.yaml").write_text(
            BENCH.partition("shared_volumes")[0]
        )
        assert "data  together:SharedVolume  delete" in interrupted_stack.run("preview").out
        assert journal.exists()
        before = interrupted_stack.list_ids()
        assert interrupted_stack.run("up").code != 0  # nobody says yes
        assert interrupted_stack.list_ids() == before
        assert "1 deleted" in interrupted_stack.run("up", "--yes").out
        assert len(interrupted_stack.list_ids()) == len(before) - 1

    def test_a_deleted_object_of_the_journal_is_recreated(
        self, interrupted_stack: InterruptedStack, journal: Path
    ) -> None:
        state = json.loads(interrupted_stack.state.read_text())["checkpoint"]["latest"]
        (id_,) = interrupted_stack.list_ids() - {
            resource.get("id") for resource in state["resources"]
        }
        interrupted_stack.delete_outside(id_)
        ran = interrupted_stack.run("up", "--yes")
        assert ran.code == 0, ran.err
        assert f"an interrupted run created data ({id_}), which no longer exists" in ran.err
        assert "1 created" in ran.out
        assert not journal.exists()

    def test_a_failing_platform_stops_the_run_and_the_journal_stays(
        self, interrupted_stack: InterruptedStack, journal: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = journal.read_bytes()
        with monkeypatch.context() as broken:
            broken.setenv("TOGETHER_API_KEY", "another key")
            for command in ("up", "destroy"):
                ran = interrupted_stack.run(command, "--yes")
                assert ran.code == 1
                assert "data (" in ran.err
        assert journal.read_bytes() == content
        assert interrupted_stack.run("stack", "export").code == 0
        assert interrupted_stack.run("up", "--yes").code == 0

    def test_a_create_declared_only_in_the_journal_is_recovered(
        self, interrupted_stack: InterruptedStack, journal: Path
    ) -> None:
        """The intent shows a sent create of a resource that the program does not declare."""
        before = interrupted_stack.list_ids()
        document = json.loads(interrupted_stack.state.read_text())
        state_ids = {
            resource.get("id") for resource in document["checkpoint"]["latest"]["resources"]
        }
        (id_,) = before - state_ids
        head, begin, *_ = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(head + begin)
        declared = json.loads(begin.partition(b" ")[2])["operation"]["resource"]
        interrupted_stack.intents.record(
            Intent(
                VOLUME,
                platform="together",
                kind="SharedVolume",
                name=declared["inputs"]["volume_name"],
                region="",
                started_at=interrupted_stack.now,
                is_timed=True,
                sent={"size_tib": 1},
                id=id_,
            )
        )
        ran = interrupted_stack.run("destroy", "--yes")
        assert ran.code == 0, ran.err
        assert interrupted_stack.list_ids() == set()
        assert interrupted_stack.intents.list_all() == []

    @pytest.mark.parametrize("command", ["up", "destroy"])
    def test_an_object_of_the_journal_is_recovered_without_its_dependency(
        self, interrupted_stack: InterruptedStack, journal: Path, command: str
    ) -> None:
        document = json.loads(interrupted_stack.state.read_text())
        latest = document["checkpoint"]["latest"]
        (cluster,) = [
            resource["id"] for resource in latest["resources"] if resource["urn"] == CLUSTER
        ]
        latest["resources"] = []
        interrupted_stack.state.write_text(json.dumps(document))
        (interrupted_stack.project / "topology.yaml").write_text(
            "shared_volumes:\n" + BENCH.partition("shared_volumes:\n")[2]
        )
        before = interrupted_stack.list_ids()
        ran = interrupted_stack.run(command, "--yes")
        assert ran.code == 0, ran.err
        assert "which is in the stack's state now" in ran.err
        assert interrupted_stack.list_ids() == (before if command == "up" else {cluster})
        assert interrupted_stack.run("preview").code == 0
        assert not journal.exists()
