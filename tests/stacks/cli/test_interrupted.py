"""What comes after a killed create, whichever command it is, on whichever machine."""

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
from gpuform.schemas.together.statuses import to_unix_time
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state.journal import Record
from gpuform.stacks.engine.store import Backend

pytestmark = pytest.mark.slow

Run = Any

VOLUME = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:SharedVolume::data"
CLUSTER = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.tensorone:Cluster::bench"


class Account:
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

    def wait(self, seconds: float) -> None:
        self.http.post("/_emulator/clock", json={"advance": seconds}).raise_for_status()

    def ids(self) -> set[str]:
        found = self.http.get("/_emulator/objects").json()
        return {
            each["id"]
            for each in (*found["together"]["volumes"], *found["tensorone"]["clusters"])
            if each["status"] not in ("deleting", "deleted")
        }

    def kill_create(self, urn: str, *, id_is_known: bool) -> str:
        """As if the process that made it had been killed, just before or after it knew the id."""
        document = json.loads(self.state.read_text())
        latest = document["checkpoint"]["latest"]
        (entry,) = [each for each in latest["resources"] if each["urn"] == urn]
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

    def delete(self, id_: str) -> None:
        """By somebody else."""
        path = f"/together/v1/compute/clusters/storage/volumes/{id_}"
        key = {"Authorization": "Bearer emulator-admin-key"}
        self.http.delete(path, headers=key).raise_for_status()
        self.wait(600)


@pytest.fixture
def account(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(BENCH)
    with serve(seed="interrupted") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        assert dev("up", "--yes", "--skip-preview").code == 0
        with httpx.Client(base_url=server.url, verify=False) as http:
            yield Account(dev, project, http)


@pytest.fixture
def clone(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another machine: what is in the repository and in the backend, and nothing else."""
    there = tmp_path / "clone" / "project"
    shutil.copytree(account.project, there, ignore=shutil.ignore_patterns(".gpuform", ".pulumi"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{account.project}")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "another home"))
    monkeypatch.chdir(there)
    return there


@pytest.mark.parametrize("id_is_known", [True, False])
@pytest.mark.parametrize("urn", [VOLUME, CLUSTER], ids=["volume", "cluster"])
class TestACreateThatHappened:
    def test_is_destroyed_on_another_machine(
        self, account: Account, clone: Path, urn: str, id_is_known: bool
    ) -> None:
        account.kill_create(urn, id_is_known=id_is_known)
        ran = account.run("destroy", "--yes", "--stack", "dev")
        assert ran.code == 0, ran.err
        assert "was created by an interrupted run: it is in the stack's state now" in ran.err
        assert "2 deleted" in ran.out
        assert account.ids() == set()
        assert account.intents.list_all() == []
        assert account.run("stack", "rm", "dev", "--yes").code == 0

    def test_keeps_the_stack_from_being_removed(
        self, account: Account, urn: str, id_is_known: bool
    ) -> None:
        before = account.ids()
        account.kill_create(urn, id_is_known=id_is_known)
        account.run("state", "delete", "--yes", CLUSTER if urn == VOLUME else VOLUME)
        ran = account.run("stack", "rm", "dev", "--yes")
        assert ran.code == 1
        assert "stack 'dev' still has 1 resources" in ran.err
        assert account.ids() == before

    @pytest.mark.parametrize(
        "command", [("refresh", "--yes"), ("expire", "--yes"), ("up", "--yes")], ids=" ".join
    )
    def test_is_the_stack_s_after_any_command(
        self, account: Account, urn: str, id_is_known: bool, command: tuple[str, ...]
    ) -> None:
        before = account.ids()
        account.kill_create(urn, id_is_known=id_is_known)
        assert account.run(*command).code == 0
        known = json.loads(account.state.read_text())["checkpoint"]["latest"]
        assert {each["id"] for each in known["resources"] if "id" in each} >= before
        assert not known.get("pending_operations")
        assert account.intents.list_all() == []
        assert account.run("up", "--yes").code == 0
        assert account.run("preview", "--expect-no-changes").code == 0
        assert account.ids() == before


def test_a_preview_shows_what_will_be_found_and_keeps_nothing(account: Account) -> None:
    account.kill_create(VOLUME, id_is_known=False)

    def files() -> dict[Path, bytes]:
        folder = account.project / ".pulumi"
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = files()
    ran = account.run("preview")
    assert ran.code == 0
    assert "resume waiting: its create was interrupted" in ran.out
    assert "to create" not in ran.out
    assert files() == before


def test_a_create_that_made_nothing_is_forgotten(account: Account) -> None:
    id_ = account.kill_create(VOLUME, id_is_known=False)
    account.delete(id_)
    ran = account.run("destroy", "--yes")
    assert ran.code == 0, ran.err
    assert (
        "an interrupted create of data (SharedVolume 'data' on together) created nothing" in ran.err
    )
    assert "1 deleted" in ran.out
    assert account.intents.list_all() == []
    assert "interrupted" not in account.run("destroy", "--yes").err


@pytest.mark.parametrize("id_is_known", [True, False])
def test_a_create_of_what_is_declared_otherwise_now_is_kept_and_named(
    account: Account, id_is_known: bool
) -> None:
    """Its region has changed since; the create in the new one was refused."""
    before = account.ids()
    id_ = account.kill_create(CLUSTER, id_is_known=id_is_known)
    document = json.loads(account.state.read_text())
    (begun,) = document["checkpoint"]["latest"]["pending_operations"]
    begun["resource"]["inputs"]["region"] = "eu-west-1"
    account.state.write_text(json.dumps(document))
    ran = account.run("destroy", "--yes")
    assert ran.code == 1
    assert "this run declares another one" in ran.err
    assert not id_is_known or id_ in ran.err
    assert "gpuform import tensorone:Cluster" in ran.err
    assert (account.ids(), len(account.intents.list_all())) == (before, 1)
    assert account.run("destroy", "--yes", "--create-anew").code == 0
    assert account.intents.list_all() == []


class TestWhatNobodyCanTell:
    """A volume has no time of its own, and nobody has looked for it in time."""

    @pytest.fixture
    def doubtful(self, account: Account) -> str:
        id_ = account.kill_create(VOLUME, id_is_known=False)
        account.wait(86_400)
        return id_

    @pytest.mark.parametrize("command", ["up", "destroy", "refresh", "expire"])
    def test_stops_every_command_before_it_does_anything(
        self, account: Account, doubtful: str, command: str
    ) -> None:
        before = account.ids()
        ran = account.run(command, "--yes")
        assert ran.code == 1
        assert f"may have created one of these, or none: {doubtful}" in ran.err
        assert f"`--adopt {doubtful}`" in ran.err
        assert "--create-anew" in ran.err
        assert "data (SharedVolume 'data' on together)" in ran.err
        assert account.ids() == before
        assert len(account.intents.list_all()) == 1

    def test_stops_the_removal_of_the_stack(self, account: Account, doubtful: str) -> None:
        account.run("state", "delete", "--yes", CLUSTER)
        ran = account.run("stack", "rm", "dev", "--yes")
        assert ran.code == 1
        assert doubtful in ran.err
        assert account.run("stack", "rm", "dev", "--yes", "--create-anew").code == 0
        assert doubtful in account.ids()

    def test_is_adopted_when_the_user_says_so(self, account: Account, doubtful: str) -> None:
        ran = account.run("destroy", "--yes", "--adopt", doubtful)
        assert ran.code == 0, ran.err
        assert account.ids() == set()

    def test_is_left_alone_when_the_user_says_so(self, account: Account, doubtful: str) -> None:
        ran = account.run("destroy", "--yes", "--create-anew")
        assert ran.code == 0, ran.err
        assert account.ids() == {doubtful}
        assert account.intents.list_all() == []

    def test_is_made_anew_when_the_user_says_so(self, account: Account, doubtful: str) -> None:
        before = account.ids()
        ran = account.run("up", "--yes", "--create-anew")
        assert ran.code == 0, ran.err
        assert account.ids() > before
        assert len(account.ids()) == len(before) + 1

    def test_what_another_stack_has_is_not_adopted(self, account: Account, doubtful: str) -> None:
        state = json.loads(account.state.read_text())
        (operation,) = state["checkpoint"]["latest"].pop("pending_operations")
        other = operation["resource"]
        latest = state["checkpoint"]["latest"]
        text = json.dumps({**other, "id": doubtful}).replace("urn:pulumi:dev", "urn:pulumi:prod")
        providers = [
            e for e in state["checkpoint"]["latest"]["resources"] if "providers:" in e["urn"]
        ]
        theirs = json.loads(json.dumps(providers).replace("urn:pulumi:dev", "urn:pulumi:prod"))
        latest["resources"] = [*theirs, json.loads(text)]
        state["checkpoint"]["stack"] = "organization/demo/prod"
        account.state.with_name("prod.json").write_text(json.dumps(state))
        ran = account.run("destroy", "--yes", "--adopt", doubtful)
        assert "created nothing" in ran.err
        assert doubtful in account.ids()


def test_a_colleague_s_cluster_of_a_month_later_is_never_touched(account: Account) -> None:
    """The create was answered with 500; what has its name now was made long after it.

    A platform's time is no proof: the user says that none is theirs.
    """
    theirs = account.kill_create(CLUSTER, id_is_known=False)
    (intent,) = account.intents.list_all()
    month = 30 * 86_400
    account.intents.record(replace(intent, started_at=intent.started_at - month))
    ran = account.run("up", "--yes")
    assert ran.code == 1
    assert f"may have created one of these, or none: {theirs}" in ran.err
    assert f"--adopt {theirs}" in ran.err
    assert account.run("destroy", "--yes").code == 1
    ran = account.run("destroy", "--yes", "--create-anew")
    assert ran.code == 0, ran.err
    assert account.ids() == {theirs}


def test_records_beside_the_project_are_taken_in(account: Account) -> None:
    """As hosts leave them that cannot reach the backend, and as they once were."""
    account.kill_create(VOLUME, id_is_known=True)
    (intent,) = account.intents.list_all()
    account.intents.forget(intent=intent)
    beside = account.project / ".gpuform" / "intents" / "3f-9a.json"
    beside.parent.mkdir(parents=True)
    old = {k: v for k, v in vars(intent).items() if k not in ("is_timed", "sent", "outcome")}
    beside.write_text(json.dumps(old))
    ran = account.run("destroy", "--yes")
    assert ran.code == 0, ran.err
    assert account.ids() == set()
    assert not beside.exists()


def test_without_a_word_of_what_was_declared_it_says_so(account: Account) -> None:
    id_ = account.kill_create(VOLUME, id_is_known=True)
    document = json.loads(account.state.read_text())
    del document["checkpoint"]["latest"]["pending_operations"]
    account.state.write_text(json.dumps(document))
    ran = account.run("destroy", "--yes")
    assert ran.code == 1
    assert f"the state does not record its inputs ({id_})" in ran.err
    assert "gpuform import together:SharedVolume data ID" in ran.err
    assert account.run("up", "--yes").code == 0
    assert account.run("destroy", "--yes").code == 0
    assert account.ids() == set()


def test_the_doctor_and_orphans_tell_of_it(account: Account) -> None:
    id_ = account.kill_create(VOLUME, id_is_known=True)
    assert "a create was begun" in account.run("doctor").out
    assert id_ in account.run("orphans").out


def test_a_run_whose_lock_is_another_s_changes_nothing_more(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is looked at before each request, not only before what is written."""

    def lost(_stack: Stack) -> None:
        raise EngineError("the lock was lost", hint="another process has taken over")

    def changes() -> list[Any]:
        sent = account.http.get("/_emulator/requests").json()
        return [each for each in sent if each["method"] != "GET"]

    before = changes()
    monkeypatch.setattr(Stack, "check_lock", lost)
    topology = account.project / "topology.yaml"
    topology.write_text(BENCH.replace("size_tib: 1", "size_tib: 2"))
    ran = account.run("up", "--yes")
    assert ran.code == 1
    assert "the lock was lost" in ran.out
    assert changes() == before


class TestOvertaken:
    """A run was killed, and another program has gone on with the state that it had before."""

    @pytest.fixture
    def journal(self, account: Account) -> Path:
        """The volume is in the journal of the killed run alone, which had its id last."""
        document = json.loads(account.state.read_text())
        latest = document["checkpoint"]["latest"]
        (entry,) = [each for each in latest["resources"] if each["urn"] == VOLUME]
        latest["resources"].remove(entry)
        begun = {"resource": {**entry, "outputs": {}}, "type": "creating"}
        del begun["resource"]["id"]
        path = account.project / ".pulumi/gpuform/demo/dev.journal"
        kept = create_file_journal(path, "of the state that the run began with")
        kept.append(
            [
                Record("begin", {"token": 1, "operation": begun}),
                Record("add", {"new": 3, "resource": entry}),
                Record("end", {"token": 1}),
            ]
        )
        kept.log.close()
        account.state.write_text(json.dumps(document))
        return path

    @pytest.mark.parametrize("command", ["up", "refresh"])
    def test_what_only_the_journal_knows_is_found_and_the_journal_kept(
        self, account: Account, journal: Path, command: str
    ) -> None:
        before, text = account.ids(), journal.read_bytes()
        ran = account.run(command, "--yes")
        assert ran.code == 0, ran.err
        assert "was created by an interrupted run: it is in the stack's state now" in ran.err
        assert not journal.exists()
        (kept,) = journal.parent.glob("dev.journal.*")
        assert kept.read_bytes() == text
        assert f"that run is kept in {kept}" in ran.err
        again = account.run("preview", "--expect-no-changes")
        assert (again.code, "interrupted" in again.err) == (0, False)
        assert account.ids() == before

    def test_is_destroyed(self, account: Account, journal: Path) -> None:
        assert "2 deleted" in account.run("destroy", "--yes").out
        assert account.ids() == set()
        assert not journal.exists()

    def test_keeps_the_stack_from_being_removed(self, account: Account, journal: Path) -> None:
        account.run("state", "delete", "--yes", CLUSTER)
        assert journal.exists()
        ran = account.run("stack", "rm", "dev", "--yes")
        assert ran.code == 1
        assert "stack 'dev' still has 1 resources" in ran.err

    def test_what_the_program_no_longer_declares_is_asked_about(
        self, account: Account, journal: Path
    ) -> None:
        (account.project / "topology.yaml").write_text(BENCH.partition("shared_volumes")[0])
        assert "data  together:SharedVolume  delete" in account.run("preview").out
        assert journal.exists()
        before = account.ids()
        assert account.run("up").code != 0  # nobody says yes
        assert account.ids() == before
        assert "1 deleted" in account.run("up", "--yes").out
        assert len(account.ids()) == len(before) - 1

    def test_of_what_is_gone_nothing_is_left(self, account: Account, journal: Path) -> None:
        state = json.loads(account.state.read_text())["checkpoint"]["latest"]
        (id_,) = account.ids() - {each.get("id") for each in state["resources"]}
        account.delete(id_)
        ran = account.run("up", "--yes")
        assert ran.code == 0, ran.err
        assert f"data ({id_}) was created by an interrupted run, and no longer exists" in ran.err
        assert "1 created" in ran.out
        assert not journal.exists()

    def test_a_platform_that_cannot_tell_stops_the_run_and_the_journal_stays(
        self, account: Account, journal: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = journal.read_bytes()
        with monkeypatch.context() as broken:
            broken.setenv("TOGETHER_API_KEY", "another key")
            for command in ("up", "destroy"):
                ran = account.run(command, "--yes")
                assert ran.code == 1
                assert "data (" in ran.err
        assert journal.read_bytes() == text
        assert account.run("stack", "export").code == 0
        assert account.run("up", "--yes").code == 0

    def test_a_create_that_only_the_journal_declares(self, account: Account, journal: Path) -> None:
        """Its intent tells that it was sent, and the other program has never seen it."""
        before = account.ids()
        document = json.loads(account.state.read_text())
        known = {each.get("id") for each in document["checkpoint"]["latest"]["resources"]}
        (id_,) = before - known
        head, begin, *_ = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(head + begin)
        declared = json.loads(begin.partition(b" ")[2])["operation"]["resource"]
        account.intents.record(
            Intent(
                VOLUME,
                platform="together",
                kind="SharedVolume",
                name=declared["inputs"]["volume_name"],
                region="",
                started_at=account.now,
                is_timed=True,
                sent={"size_tib": 1},
                id=id_,
            )
        )
        ran = account.run("destroy", "--yes")
        assert ran.code == 0, ran.err
        assert account.ids() == set()
        assert account.intents.list_all() == []

    @pytest.mark.parametrize("command", ["up", "destroy"])
    def test_what_it_needs_was_deleted_by_the_other_program(
        self, account: Account, journal: Path, command: str
    ) -> None:
        document = json.loads(account.state.read_text())
        latest = document["checkpoint"]["latest"]
        (cluster,) = [each["id"] for each in latest["resources"] if each["urn"] == CLUSTER]
        latest["resources"] = []
        account.state.write_text(json.dumps(document))
        (account.project / "topology.yaml").write_text(
            "shared_volumes:\n" + BENCH.partition("shared_volumes:\n")[2]
        )
        before = account.ids()
        ran = account.run(command, "--yes")
        assert ran.code == 0, ran.err
        assert "it is in the stack's state now" in ran.err
        assert account.ids() == (before if command == "up" else {cluster})
        assert account.run("preview").code == 0
        assert not journal.exists()
