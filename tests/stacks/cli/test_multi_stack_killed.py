"""A run of several stacks that dies at a write: all of its processes at once, as a machine dies.

Whatever the write is, to a platform, to a state or to a record, the next run makes it whole: every
stack is as declared, and nothing is there twice.
"""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.patient import wait_until_gone
from support.stacks.workspace import Workspace, create_workspace

from gpuform.providers.emulator.server import serve

# Loaded by each process when it starts: counts the writes of all of them in one file, and at the
# chosen one kills every process that has registered.
KILLER = """
import fcntl, os, pathlib, signal
folder, last = os.environ["KILLER_FOLDER"], int(os.environ["KILLER_AT"])
open(os.path.join(folder, "pids"), "a").write(f"{os.getpid()}\\n")

def count():
    with open(os.path.join(folder, "count"), "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0) + 1
        file.seek(0)
        file.truncate()
        file.write(str(number))
        file.flush()
        if number == last:
            for line in open(os.path.join(folder, "pids")).read().split():
                if int(line) != os.getpid():
                    try:
                        os.kill(int(line), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            os.kill(os.getpid(), signal.SIGKILL)

def counted(holder, name):
    function = getattr(holder, name)
    def call(*given, **options):
        count()
        return function(*given, **options)
    setattr(holder, name, call)

counted(os, "fsync")
counted(pathlib.Path, "replace")

import http.client
put = http.client.HTTPConnection.putrequest

import httpx
send = httpx.HTTPTransport.handle_request

def sent(self, request):
    if request.method != "GET" and "_emulator" not in str(request.url):
        count()
        answer = send(self, request)
        answer.read()
        count()
        return answer
    return send(self, request)

httpx.HTTPTransport.handle_request = sent
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="killed") as server:
        yield create_workspace(tmp_path / "fleet", server.url, {}, {})


def run_killed_at(workspace: Workspace, number: int, *command: str) -> bool:
    """Run a command, kill it at the write of this number, and return whether there was one."""
    folder = workspace.root.parent / "killer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(KILLER)
    variables = {"KILLER_FOLDER": str(folder), "KILLER_AT": str(number)}
    done = workspace.run(*command, PYTHONPATH=str(folder), **variables)
    assert done.code in (0, -9), done.stdout + done.stderr
    wait_until_gone([int(pid) for pid in (folder / "pids").read_text().split()])
    return done.code == -9


def count_objects(workspace: Workspace) -> tuple[int, int]:
    """Return how many volumes and clusters the platform has."""
    url, key = (workspace.variables[f"TOGETHER_{name}"] for name in ("BASE_URL", "API_KEY"))
    counts = []
    for kind in ("/storage/volumes", ""):
        request = urllib.request.Request(
            f"{url}/v1/compute/clusters{kind}", headers={"Authorization": f"Bearer {key}"}
        )
        with urllib.request.urlopen(request) as answer:
            (listed,) = (v for v in json.load(answer).values() if isinstance(v, list))
        counts.append(len(listed))
    return counts[0], counts[1]


def expect_recovery(workspace: Workspace) -> None:
    done = workspace.run("up", "--all", "--yes")
    assert done.code == 0, done.stdout + done.stderr
    workspace.run_successfully("preview", "--all", "--expect-no-changes")
    assert count_objects(workspace) == (1, 1)


@pytest.mark.slow
@pytest.mark.sampled(60)
@pytest.mark.parametrize("number", range(1, 151))
def test_an_update_killed_at_any_write_is_completed_by_the_next(
    workspace: Workspace, number: int
) -> None:
    run_killed_at(workspace, number, "up", "--all", "--yes", "--jobs", "2")
    expect_recovery(workspace)


@pytest.mark.slow
@pytest.mark.sampled(60)
@pytest.mark.parametrize("number", range(1, 121))
def test_a_destroy_killed_at_any_write_is_completed_by_the_next(
    workspace: Workspace, number: int
) -> None:
    workspace.run_successfully("up", "--all", "--yes")
    run_killed_at(workspace, number, "destroy", "--all", "--yes")
    done = workspace.run("destroy", "--all", "--yes")
    assert done.code == 0, done.stdout + done.stderr
    assert count_objects(workspace) == (0, 0)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(1, 60))
@pytest.mark.parametrize("stack", ["volumes/dev", "training/dev"])
def test_the_part_of_a_lost_runner_is_run_again_by_another(
    workspace: Workspace, stack: str, number: int
) -> None:
    workspace.run_successfully("preview", "--all", "--save-plan", "plan.json")
    apply = ("up", "--all", "--plan", "plan.json", "--yes", "--stack")
    if stack == "training/dev":
        workspace.run_successfully(*apply, "volumes/dev")
    if not run_killed_at(workspace, number, *apply, stack):
        pytest.skip("the run has fewer writes")

    again = workspace.run(*apply, stack)

    assert again.code == 0, again.stdout + again.stderr
    if stack == "volumes/dev":
        workspace.run_successfully(*apply, "training/dev")
    workspace.run_successfully(*apply, "told/dev")
    workspace.run_successfully("preview", "--all", "--expect-no-changes")
    assert count_objects(workspace) == (1, 1)
