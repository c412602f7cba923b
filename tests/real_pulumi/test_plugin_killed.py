"""Test `pulumi up`, killed at any point of a create, in both forms: the next run continues."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conformance.aios_kinds import CLUSTER as AIOS_CLUSTER
from conformance.emulated import Platform, get_platform_path, start_emulated_platform
from conformance.kind_descriptions import KindDescription
from conformance.scp_kinds import NODE_POOL
from conformance.together_kinds import CLUSTER, SHARED_VOLUME
from processes.commands import (
    PASSPHRASE,
    SALT,
    Cli,
    Result,
    build_pulumi_command,
    build_pulumi_environment,
    pulumi,
)
from processes.limits import LAST_RESORT
from processes.pinned_pulumi import has_language_host

from gpuform.providers import permissions
from gpuform.providers.emulator.faults import DroppedConnection
from gpuform.providers.emulator.server import environment

POINTS = ("unsent", "unanswered", "answered", "waiting")
"""The points of a kill.

Just before the request is sent; after its effect, without an answer; after the answer; during the
wait.
"""
ROOT = Path(__file__).parents[2]
PROGRAM = "from gpuform.providers.catalog import load_resource_class\n"


@dataclass(frozen=True)
class Project:
    """A stack in one of the forms, whose program declares resources."""

    folder: Path
    platform: Platform

    @classmethod
    def begin(
        cls, folder: Path, platform: Platform, description: KindDescription, form: str = "plugin"
    ) -> "Project":
        (folder / "project").mkdir()
        (folder / "state").mkdir()
        (folder / "project/Pulumi.yaml").write_text("name: killed\nruntime: python\n")
        (folder / "project/Pulumi.dev.yaml").write_text(
            f"encryptionsalt: {SALT}\nconfig:\n  gpuform:form: {form}\n"
        )
        project = cls(folder, platform)
        project.write_program(description)
        project.run(pulumi, "stack", "init", "dev")
        return project

    def write_program(self, *kinds: KindDescription) -> None:
        lines = [
            f"load_resource_class({kind.platform!r}, {kind.kind!r})"
            f'("it", **{dict(kind.valid_inputs)!r})'
            for kind in kinds
        ]
        (self.folder / "project/__main__.py").write_text("\n".join([PROGRAM, *lines]))

    @property
    def environ(self) -> dict[str, str]:
        return {
            **environment(self.platform.server.url),
            "PULUMI_BACKEND_URL": f"file://{self.folder}/state",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            permissions.VARIABLE: ",".join(permissions.Permission),
        }

    def run_command(self, cli: Cli, *arguments: str) -> Result:
        return cli(self.folder / "project", *arguments, "--non-interactive", **self.environ)

    def run(self, cli: Cli, *arguments: str) -> Result:
        done = self.run_command(cli, *arguments)
        assert done.code == 0, done.stdout + done.stderr
        return done

    def kill_up_at(self, description: KindDescription, point: str) -> None:
        """Run `pulumi up` until the point, and kill all processes of the run."""
        flags = ("--yes", "--skip-preview", "--non-interactive")
        process = subprocess.Popen(
            build_pulumi_command(self.folder / "project", "up", *flags),
            cwd=self.folder / "project",
            env=build_pulumi_environment(self.environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with process, kill_at_point(self.platform, description, point, process.pid):
            process.wait()
        assert process.returncode == -signal.SIGKILL, f"it ended before it was {point}"

    @property
    def resources(self) -> list[dict[str, Any]]:
        checkpoint = json.loads((self.folder / "state/.pulumi/stacks/killed/dev.json").read_text())
        entries = checkpoint["checkpoint"]["latest"].get("resources") or []
        return [entry for entry in entries if entry["type"].partition(":")[0] != "pulumi"]


@contextlib.contextmanager
def kill_at_point(
    platform: Platform, description: KindDescription, point: str, pid: int
) -> Iterator[None]:
    """Kill a process and all its children at a point of the create."""
    assert description.create
    create = (description.create.method, description.create.path)
    looks = {"answered": 1, "waiting": 3}
    create_paths: list[str] = []

    def wrap(inner: Any) -> Any:
        def app(environ: dict[str, Any], start_response: Any) -> Any:
            asked = (environ["REQUEST_METHOD"], get_platform_path(environ))
            if create_paths or asked == create:
                create_paths.append(asked[0])
            if not create_paths or not asked[1]:
                return inner(environ, start_response)
            if point == "unsent":
                kill_with_children(pid)
                raise DroppedConnection
            if point == "unanswered" or len(create_paths) > looks[point]:
                answer = b"".join(inner(environ, start_response))
                kill_with_children(pid)
                return [answer]
            return inner(environ, start_response)

        return app

    with platform.server.serve_through(wrap):
        yield


def kill_with_children(pid: int) -> None:
    """Kill a process and all its children.

    All are stopped first, so that no process observes the end of another one.
    """
    completed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    parents = {
        int(child): int(parent) for child, parent in map(str.split, completed.stdout.splitlines())
    }

    def is_below(process: int) -> bool:
        return process == pid or (process in parents and is_below(parents[process]))

    family = [process for process in parents if is_below(process)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


@pytest.fixture
def platform() -> Iterator[Platform]:
    with start_emulated_platform(seed="killed") as platform:
        yield platform


@pytest.fixture(params=["pulumi", "gpuform"])
def engine(request: pytest.FixtureRequest, gpuform: Cli) -> Cli:
    return pulumi if request.param == "pulumi" else gpuform


CASES = [
    *((CLUSTER, point) for point in POINTS),
    *((kind, "unanswered") for kind in (SHARED_VOLUME, NODE_POOL, AIOS_CLUSTER)),
]


@pytest.mark.parametrize(
    ("kind", "point"), CASES, ids=[f"{k.platform}-{k.kind}-{p}" for k, p in CASES]
)
def test_the_next_up_resumes_a_killed_create(
    kind: KindDescription, point: str, engine: Cli, platform: Platform, tmp_path: Path
) -> None:
    description = platform.prepare(kind)
    project = Project.begin(tmp_path, platform, description)
    project.kill_up_at(description, point)
    there = platform.list_ids(description)
    assert bool(there) == (point != "unsent")
    project.run(engine, "cancel", "--stack", "dev", "--yes")
    project.run(engine, "up", "--yes", "--skip-preview", "--stack", "dev")
    project.run(engine, "preview", "--expect-no-changes", "--stack", "dev")
    assert {resource["id"] for resource in project.resources} == platform.list_ids(description)
    assert platform.count_creates(description) == 1


@pytest.mark.parametrize("point", ["unanswered", "waiting"])
def test_gpuform_destroy_deletes_the_object_of_a_killed_create(
    point: str, platform: Platform, tmp_path: Path, gpuform: Cli
) -> None:
    project = Project.begin(tmp_path, platform, CLUSTER)
    project.kill_up_at(CLUSTER, point)
    project.run(gpuform, "cancel", "--stack", "dev", "--yes")
    project.run(gpuform, "destroy", "--yes", "--skip-preview", "--stack", "dev")
    assert platform.list_ids(CLUSTER) == set()


@pytest.mark.parametrize(
    "form", ["plugin", pytest.param("dynamic", marks=pytest.mark.in_every_run)]
)
def test_pulumi_destroy_is_refused_while_it_would_lose_a_created_object(
    form: str, platform: Platform, tmp_path: Path
) -> None:
    project = Project.begin(tmp_path, platform, SHARED_VOLUME, form)
    project.run(pulumi, "up", "--yes", "--skip-preview", "--stack", "dev")
    project.write_program(SHARED_VOLUME, CLUSTER)
    project.kill_up_at(CLUSTER, "answered")
    (made,) = platform.list_ids(CLUSTER)
    project.run(pulumi, "cancel", "--stack", "dev", "--yes")
    destroy = ("destroy", "--yes", "--skip-preview", "--stack", "dev")
    done = project.run_command(pulumi, *destroy)
    assert done.code != 0
    assert made in done.stdout
    assert "pulumi up" in done.stdout
    assert platform.list_ids(SHARED_VOLUME)
    project.run(pulumi, "up", "--yes", "--skip-preview", "--stack", "dev")
    assert platform.list_ids(CLUSTER) == {made}
    project.run(pulumi, *destroy)
    assert platform.list_ids(CLUSTER, SHARED_VOLUME) == set()


def test_pulumi_destroy_of_a_stack_without_other_resources_keeps_the_record(
    platform: Platform, tmp_path: Path
) -> None:
    """Without a resource, the CLI starts no plugin for a destroy: the next `up` recovers."""
    project = Project.begin(tmp_path, platform, CLUSTER)
    project.kill_up_at(CLUSTER, "answered")
    (made,) = platform.list_ids(CLUSTER)
    project.run(pulumi, "cancel", "--stack", "dev", "--yes")
    destroy = ("destroy", "--yes", "--skip-preview", "--stack", "dev")
    project.run(pulumi, *destroy)
    project.run(pulumi, "up", "--yes", "--skip-preview", "--stack", "dev")
    assert (
        {resource["id"] for resource in project.resources} == {made} == platform.list_ids(CLUSTER)
    )
    project.run(pulumi, *destroy)
    assert platform.list_ids(CLUSTER) == set()


@pytest.mark.parametrize(
    "form", ["plugin", pytest.param("dynamic", marks=pytest.mark.in_every_run)]
)
def test_an_interruption_ends_the_wait_and_the_id_is_in_the_state(
    form: str, platform: Platform, tmp_path: Path
) -> None:
    """The signal of Ctrl-C reaches the CLI alone, while the emulator's clock stands still."""
    project = Project.begin(tmp_path, platform, CLUSTER, form)
    folder, environ = tmp_path / "project", project.environ
    del environ["GPUFORM_CLOCK"]
    flags = ("--yes", "--skip-preview", "--non-interactive")
    process = subprocess.Popen(
        build_pulumi_command(folder, "up", *flags),
        cwd=folder,
        env=build_pulumi_environment(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        while not platform.list_ids(CLUSTER):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=LAST_RESORT)[0]
    assert process.returncode != 0, output
    assert {
        resource["id"] for resource in project.resources if resource.get("id")
    } == platform.list_ids(CLUSTER)
    for package in ("providers", "stacks"):
        assert f'File "{ROOT / package}' not in output, output
    if not has_language_host():  # which may print a traceback of its own, whatever the program
        assert "Traceback" not in output, output
    platform.server.clock.advance(24 * 3600)
    done = pulumi(folder, "up", *flags, **environ)
    assert done.code == 0, done.stdout
    assert platform.count_creates(CLUSTER) == 1
