"""A topology that somebody edits while `up --all --plan` runs: what the plan shows, or nothing."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.platforms.emulator_hooks import watch_requests
from support.stacks.workspace import Workspace, create_workspace

from gpuform.providers.emulator.server import Server, serve

pytestmark = pytest.mark.slow

RequestTest = Callable[[str, str, int], bool]
"""Whether a request is the one at which the file is edited: by method, path, and its number."""

KEY_PROBE = "00000000-0000-0000-0000-000000000000"
"""In the path by which gpuform asks whether a key may write."""

EDIT_MOMENTS: dict[str, RequestTest] = {
    "at-the-first-request": lambda _method, _path, number: number == 1,
    "when-the-volume-is-changed": lambda method, path, _number: (
        method == "PUT" and path.endswith("/volumes")
    ),
    "at-the-first-look-at-a-cluster": lambda method, path, _number: (
        method == "GET" and "/compute/clusters" in path and "/storage/" not in path
    ),
    "when-the-cluster-is-changed": lambda method, path, _number: (
        method == "PUT" and "/storage/" not in path and KEY_PROBE not in path
    ),
}
CASES = [
    *((moment, "training/topology.yaml", "default: 24", "default: 32") for moment in EDIT_MOMENTS),
    ("when-the-volume-is-changed", "training/topology.yaml", "clusters:", "broken: ["),
    ("at-the-first-request", "volumes/topology.yaml", "default: 6", "default: 9"),
    ("when-the-volume-is-changed", "told/__main__.py", '"place"', '"another_place"'),
]


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(seed="edited") as server:
        yield server


@pytest.fixture
def planned_workspace(server: Server, tmp_path: Path) -> Workspace:
    """Save a plan for three stacks that grows the volume to 6 TiB and the cluster to 24 GPUs."""
    created_workspace = create_workspace(tmp_path / "fleet", server.url, {}, {})
    created_workspace.run_successfully("up", "--all", "--yes")
    created_workspace.edit("volumes/topology.yaml", "default: 5", "default: 6")
    created_workspace.edit("training/topology.yaml", "default: 16", "default: 24")
    created_workspace.run_successfully("preview", "--all", "--save-plan", "plan.json")
    return created_workspace


@contextlib.contextmanager
def edit_during_requests(
    server: Server, is_moment: RequestTest, edit: Callable[[], None]
) -> Iterator[list[Any]]:
    """Call `edit` once, before the answer to the first request with `is_moment`.

    Yields the bodies of the changes of clusters that reach the platform.
    """
    bodies: list[Any] = []
    done: list[bool] = []
    count = 0

    def hook(environ: dict[str, Any]) -> None:
        nonlocal count
        method, path = str(environ["REQUEST_METHOD"]), str(environ["PATH_INFO"])
        if "_emulator" in path:
            return
        count += 1
        if not done and is_moment(method, path, count):
            done.append(True)
            edit()
        if method == "PUT" and "/storage/" not in path and KEY_PROBE not in path:
            data = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            bodies.append(json.loads(data))
            environ["wsgi.input"] = io.BytesIO(data)

    with watch_requests(server, hook):
        yield bodies
    assert done, "the moment never came"


@pytest.mark.parametrize(
    ("moment", "file", "old", "new"), CASES, ids=[f"{case[0]}-{case[3]}" for case in CASES]
)
def test_a_topology_edited_during_a_planned_run_changes_nothing_beyond_the_plan(
    planned_workspace: Workspace, server: Server, moment: str, file: str, old: str, new: str
) -> None:
    with edit_during_requests(
        server, EDIT_MOMENTS[moment], lambda: planned_workspace.edit(file, old, new)
    ) as changes:
        ran = planned_workspace.run("up", "--all", "--plan", "plan.json", "--yes")

    output = ran.stdout + ran.stderr
    assert "Traceback" not in output
    assert {json.dumps(change) for change in changes} <= {json.dumps({"num_gpus": 24})}, output
    sizes = {
        resource["outputs"]["size_tib"]
        for resource in planned_workspace.export("volumes/dev")["resources"]
        if resource["type"].endswith("SharedVolume")
    }
    assert sizes <= {5, 6}, output
    outputs = planned_workspace.export("told/dev")["resources"][0]["outputs"]
    assert "another_place" not in outputs or ran.code == 1, output
    if ran.code != 0:
        assert "out of date" in output or "topology.yaml" in output, output
    else:
        assert (sizes, len(changes)) == ({6}, 1), output
