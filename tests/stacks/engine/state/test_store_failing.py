"""Test a run whose state storage fails midway: no new operation starts, and no object is lost."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from processes.commands import PASSPHRASE, SALT, Cli, Result, run_gpuform
from support.servers.bucket_server import (
    KEYS,
    BucketServer,
    Fault,
    Proxy,
    Request,
    build_bucket_url,
    serve_proxy,
)

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.store import Backend

pytestmark = pytest.mark.slow

PROVIDER = """
import pathlib
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

PLATFORM_FILE = pathlib.Path(__file__).parent / "platform"


class Things(ResourceProvider):
    def create(self, props):
        with PLATFORM_FILE.open("a") as file:
            file.write(props["name"] + "\\n")
        return CreateResult(props["name"], props)

    def delete(self, id, props):
        remaining = [line for line in PLATFORM_FILE.read_text().split() if line != id]
        PLATFORM_FILE.write_text("".join(line + "\\n" for line in remaining))


class Thing(Resource):
    def __init__(self, name, opts=None):
        super().__init__(Things(), name, {"name": name}, opts)
"""
CHAIN = """
    from pulumi import ResourceOptions
    from things import Thing
    last = None
    for n in range(4):
        last = Thing(f"t-{n}", ResourceOptions(depends_on=[last] if last else []))
"""


@dataclass
class FailingStorageProject:
    """A project whose state is in a bucket behind a proxy."""

    folder: Path
    gpuform: Cli
    front: Proxy
    bucket: str

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def unsaved(self) -> Path:
        return self.project / ".gpuform/unsaved/dev.jsonl"

    @property
    def existing_objects(self) -> list[str]:
        file = self.project / "platform"
        return file.read_text().split() if file.exists() else []

    @property
    def snapshot(self) -> Snapshot:
        """Return the checkpoint without the journal, like Pulumi."""
        data = Backend.open(self.url, KEYS).read("demo", "dev")
        assert data is not None
        snapshot = Snapshot.from_json(data, PassphraseCrypter(PASSPHRASE, SALT))
        assert edits.verify(snapshot) == []
        return snapshot

    @property
    def ids(self) -> list[str]:
        return sorted(e.id for e in self.snapshot.resources if "dynamic:Resource::" in e.urn)

    @property
    def url(self) -> str:
        return build_bucket_url(self.bucket, self.front.port)

    def run(self, *arguments: str) -> Result:
        return self.gpuform(
            self.project,
            *arguments,
            PULUMI_BACKEND_URL=self.url,
            PULUMI_HOME=str(self.folder / "home"),
            PULUMI_CONFIG_PASSPHRASE=PASSPHRASE,
            AWS_MAX_ATTEMPTS="1",
            GPUFORM_LEASE_SECONDS="2",
            **KEYS,
        )

    def up(self, *flags: str) -> Result:
        return self.run("up", "--yes", "--skip-preview", "--lock-timeout", "30s", *flags)


@pytest.fixture
def make(
    tmp_path: Path, bucket_server: BucketServer
) -> Iterator[Callable[[], FailingStorageProject]]:
    with serve_proxy(bucket_server) as front:

        def create_project() -> FailingStorageProject:
            front.stop_faults()
            shutil.rmtree(tmp_path / "scene", ignore_errors=True)
            scene = FailingStorageProject(
                tmp_path / "scene", run_gpuform, front, bucket_server.create_bucket()
            )
            scene.project.mkdir(parents=True)
            (scene.project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
            (scene.project / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
            (scene.project / "things.py").write_text(PROVIDER)
            (scene.project / "__main__.py").write_text(dedent(CHAIN))
            assert scene.run("stack", "init", "dev").code == 0
            return scene

        yield create_project


FAULTS = {
    "unavailable": Fault(503, "SlowDown"),
    "no answer": Fault(0),
    "no answer after the effect": Fault(0, effect=True),
    "expired credentials": Fault(400, "ExpiredToken"),
    "bucket gone": Fault(404, "NoSuchBucket"),
}


def is_segment(request: Request) -> bool:
    return request.method == "PUT" and ".journal/" in request.name


def fail_after_first_create(
    scene: FailingStorageProject, fault: Fault
) -> Callable[[Request], Fault | None]:
    """Return a rule by which all requests fail once the journal has to record a created object."""
    failing = []

    def rule(request: Request) -> Fault | None:
        if is_segment(request) and scene.existing_objects:
            failing.append(request)
        return fault if failing else None

    return rule


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_run_without_storage_stops_and_is_recovered(
    make: Callable[[], FailingStorageProject], fault: Fault
) -> None:
    scene = make()
    scene.front.rule = fail_after_first_create(scene, fault)
    ran = scene.up()
    assert ran.code == 1
    assert str(scene.unsaved) in ran.stderr
    assert "gpuform state recover" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert 1 <= len(scene.existing_objects) < 4
    scene.front.stop_faults()
    for refused in (scene.up(), scene.run("preview")):
        assert refused.code == 1
        assert "gpuform state recover" in refused.stderr
    recovered = scene.run("state", "recover", "--lock-timeout", "30s")
    assert recovered.code == 0, recovered.stderr
    assert "Recovered 2 changes" in recovered.stdout
    assert not scene.unsaved.exists()
    assert scene.ids == sorted(scene.existing_objects)
    done = scene.up()
    assert done.code == 0, done.stderr
    assert sorted(scene.existing_objects) == scene.ids == ["t-0", "t-1", "t-2", "t-3"]


def test_no_object_is_lost_whichever_write_fails(make: Callable[[], FailingStorageProject]) -> None:
    scene = make()
    first = len(scene.front.requests)
    assert scene.up().code == 0
    writes = [
        r.number - first for r in scene.front.requests[first:] if r.method not in ("GET", "HEAD")
    ]
    stopped = 0
    for turn, number in enumerate(writes[::2]):
        scene = make()
        begun = len(scene.front.requests)
        fault = FAULTS["no answer after the effect" if turn % 2 else "unavailable"]

        def rule(
            request: Request, last: int = begun + number, fault: Fault = fault
        ) -> Fault | None:
            return fault if request.number >= last else None

        scene.front.rule = rule
        ran = scene.up()
        scene.front.stop_faults()
        stopped += ran.code == 1
        if scene.unsaved.exists():
            recovered = scene.run("state", "recover", "--lock-timeout", "30s")
            assert recovered.code == 0, (number, recovered.stderr)
        ended = scene.up("--continue-on-error")
        assert ended.code == 0, (number, ended.stderr)
        assert sorted(scene.existing_objects) == scene.ids == ["t-0", "t-1", "t-2", "t-3"], number
        assert scene.run("destroy", "--yes", "--skip-preview").code == 0
        assert (scene.existing_objects, scene.ids) == ([], [])
    assert stopped > 5


def test_a_short_outage_is_bridged_by_retries(make: Callable[[], FailingStorageProject]) -> None:
    scene = make()
    scene.front.rule = lambda request: FAULTS["unavailable"] if request.number % 5 == 0 else None
    done = scene.gpuform(
        scene.project,
        *("up", "--yes", "--skip-preview"),
        PULUMI_BACKEND_URL=scene.url,
        PULUMI_HOME=str(scene.folder / "home"),
        PULUMI_CONFIG_PASSPHRASE=PASSPHRASE,
        **KEYS,
    )
    assert done.code == 0, done.stderr
    scene.front.stop_faults()
    assert scene.ids == sorted(scene.existing_objects)


def test_a_storage_that_answers_again_gets_the_final_checkpoint(
    make: Callable[[], FailingStorageProject],
) -> None:
    """The last checkpoint is written, so that the next run has nothing to recover."""
    scene, failed = make(), []

    def rule(request: Request) -> Fault | None:
        if failed or not (is_segment(request) and scene.existing_objects):
            return None
        failed.append(request)
        return FAULTS["unavailable"]

    scene.front.rule = rule
    ran = scene.up()
    assert ran.code == 1
    assert "cannot be written" in ran.stdout
    assert not scene.unsaved.exists()
    assert scene.ids == sorted(scene.existing_objects)


def test_recovery_is_refused_after_another_run_changed_the_state(
    make: Callable[[], FailingStorageProject],
) -> None:
    scene = make()
    scene.front.rule = fail_after_first_create(scene, FAULTS["unavailable"])
    assert scene.up().code == 1
    scene.front.stop_faults()
    unsaved_records = scene.unsaved.read_bytes()
    scene.unsaved.unlink()  # the colleague's machine has no such file
    existing_objects = scene.existing_objects
    (scene.project / "__main__.py").write_text("")
    assert scene.up().code == 0
    scene.unsaved.write_bytes(unsaved_records)
    refused = scene.run("state", "recover")
    assert refused.code == 1, refused.stdout
    assert scene.unsaved.read_bytes() == unsaved_records
    assert "import" in refused.stderr
    assert any(f"(id {id_})" in refused.stderr for id_ in existing_objects)


def test_recovery_keeps_the_journal_of_another_failed_run(
    make: Callable[[], FailingStorageProject],
) -> None:
    """A colleague's run from the same state fails, too, and leaves a journal in the bucket."""
    scene = make()
    scene.front.rule = fail_after_first_create(scene, FAULTS["unavailable"])
    assert scene.up().code == 1
    unsaved_records = scene.unsaved.read_bytes()
    scene.unsaved.unlink()
    (scene.project / "platform").unlink()
    (scene.project / "__main__.py").write_text("from things import Thing\nThing('theirs')\n")

    def rule(request: Request) -> Fault | None:
        checkpoint = request.method == "PUT" and request.name.endswith("/dev.json")
        return FAULTS["unavailable"] if checkpoint and scene.existing_objects else None

    scene.front.rule = rule
    theirs = scene.up()
    assert theirs.code == 1
    assert "the next command continues from there" in theirs.stderr
    assert (scene.existing_objects, scene.ids, scene.unsaved.exists()) == (["theirs"], [], False)
    scene.front.stop_faults()
    scene.unsaved.write_bytes(unsaved_records)
    refused = scene.run("state", "recover", "--lock-timeout", "30s")
    assert refused.code == 1
    assert "(id t-0)" in refused.stderr
    assert scene.ids == ["theirs"]
    assert scene.unsaved.read_bytes() == unsaved_records


def test_recovery_of_a_run_of_another_backend_is_refused(
    make: Callable[[], FailingStorageProject],
) -> None:
    scene = make()
    scene.unsaved.parent.mkdir(parents=True)
    part = {"journal": "s3://other/x.journal", "run": "r", "number": 3, "lines": ""}
    scene.unsaved.write_text(json.dumps(part) + "\n")
    refused = scene.run("state", "recover")
    assert refused.code == 1
    assert "s3://other/x.journal" in refused.stderr


def test_recovery_without_unsaved_records_reports_nothing_to_do(
    make: Callable[[], FailingStorageProject],
) -> None:
    done = make().run("state", "recover")
    assert (done.code, done.stdout) == (0, "The state of stack dev already has all changes.\n")
