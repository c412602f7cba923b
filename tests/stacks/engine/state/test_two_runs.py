"""Test two runs of one stack in a bucket: the second begins when the first is killed or stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from processes.commands import PASSPHRASE, SALT, run_gpuform
from processes.limits import LAST_RESORT
from support.servers.bucket_server import KEYS, BucketServer, build_bucket_url

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.store import Backend

pytestmark = pytest.mark.slow

PROGRAM = """
    import os, pathlib, time
    import pulumi
    from things import Thing
    first = Thing("first")
    Thing("second", wait=os.environ.get("WAIT", ""), opts=pulumi.ResourceOptions(
        depends_on=[first]))
    Thing("third", opts=pulumi.ResourceOptions(depends_on=[first]))
"""
PROVIDER = """
import os, pathlib, time
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

HERE = pathlib.Path(__file__).parent


class Things(ResourceProvider):
    def create(self, props):
        who = os.environ["WHO"]
        with (HERE / "made").open("a") as file:
            file.write(f"{props['name']}-{who}\\n")
        while props["name"] == "second" and os.environ.get("WAIT"):
            (HERE / "waiting").touch()
            if (HERE / "go").exists():
                break
            time.sleep(0.05)
        return CreateResult(f"{props['name']}-{who}", {"name": props["name"]})


class Thing(Resource):
    def __init__(self, name, wait="", opts=None):
        super().__init__(Things(), name, {"name": name}, opts)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (made / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
    (made / "things.py").write_text(PROVIDER)
    (made / "__main__.py").write_text(dedent(PROGRAM))
    return made


@pytest.fixture
def environ(bucket_server: BucketServer, tmp_path: Path) -> dict[str, str]:
    return {
        **KEYS,
        "PULUMI_BACKEND_URL": build_bucket_url(bucket_server.create_bucket(), bucket_server.port),
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "GPUFORM_LEASE_SECONDS": "2",
    }


WHOEVER_MADE_THE_THIRD = [
    ["first-owner", "second-successor", f"third-{run}"] for run in ("owner", "successor")
]
UP = ("up", "--yes", "--skip-preview", "--parallel", "1", "--lock-timeout", "25m")


def start_first_run(project: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    """Start a run, and return the process during the create of `second`."""
    assert run_gpuform(project, "stack", "init", "dev", **environ).code == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuform.stacks.cli", *UP],
        cwd=project,
        env={**os.environ, **environ, "WHO": "owner", "WAIT": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while not (project / "waiting").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


def list_ids(environ: dict[str, str]) -> list[str]:
    data = Backend.open(environ["PULUMI_BACKEND_URL"], KEYS).read("demo", "dev")
    assert data is not None
    snapshot = Snapshot.from_json(data, PassphraseCrypter(PASSPHRASE, SALT))
    assert edits.verify(snapshot) == []
    return sorted(e.id for e in snapshot.resources if "Resource::" in e.urn)


def test_a_run_continues_from_the_journal_of_a_killed_run(
    project: Path, environ: dict[str, str]
) -> None:
    owner = start_first_run(project, environ)
    owner.kill()
    owner.communicate()
    done = run_gpuform(project, *UP, WHO="successor", **environ)
    assert done.code == 0, done.stderr
    assert "takes over the lock" in done.stderr
    assert "changes of it from its journal" in done.stderr
    assert "creating urn:pulumi:dev::demo::pulumi-python:dynamic:Resource::second" in done.stdout
    assert list_ids(environ) in WHOEVER_MADE_THE_THIRD


def test_a_stopped_run_ends_when_resumed_after_a_takeover(
    project: Path, environ: dict[str, str]
) -> None:
    owner = start_first_run(project, environ)
    owner.send_signal(signal.SIGSTOP)
    done = run_gpuform(project, *UP, WHO="successor", **environ)
    assert done.code == 0, done.stderr
    after = list_ids(environ)
    assert after in WHOEVER_MADE_THE_THIRD
    made = (project / "made").read_text()
    (project / "go").touch()
    owner.send_signal(signal.SIGCONT)
    output = owner.communicate(timeout=LAST_RESORT)[0]
    assert owner.returncode == 1
    assert "another process took it" in output
    assert "gpuform state recover" in output
    assert list_ids(environ) == after
    assert (project / "made").read_text() == made, "nothing is begun without the lock"
    unsaved = project / ".gpuform/unsaved/dev.jsonl"
    assert "second-owner" in unsaved.read_text()
    refused = run_gpuform(project, "state", "recover", **environ)
    assert refused.code == 1
    assert "(id second-owner)" in refused.stderr
