"""Kill `gpuform import` after each request and each write, and run the command once more.

This is a program like `crash_points`: `python -m conformance.import_crashes FILE FOLDER` prints a
line of JSON. FILE is the project's file that gets the entries.
"""

import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from conformance.crash_points import (
    CRYPTER,
    START,
    URL,
    CountingTransport,
    CrashHook,
    run_in_child,
    warm_up,
)
from conformance.tensorone_kinds import CLUSTER
from tenacity import Retrying  # noqa: F401 - imported once, for all children

from gpuform.providers.context.run_context import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.server import environment
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone import KEY
from gpuform.stacks.cli import stack_runs  # noqa: F401 - as above
from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.commands import (
    run_commands,  # noqa: F401 - as above
    stack_commands,  # noqa: F401 - as above
)

IMPORT = ("import", "--all", "--platform", "tensorone", "--yes")
NAMES = ("one", "two")
PROJECT_FILES = {
    "topology.yaml": "# mine\noutputs:\n  a: 1   # kept\n",
    "__main__.py": "import pulumi\nx = 1  # kept\n",
}
NAME_LINES = {"topology.yaml": "    name: {}\n", "__main__.py": '    name="{}",\n'}
SECRET = "planted-in-a-variable"


def run_gpuform(*arguments: str) -> str:
    """Run a command, check the exit code, and return the output."""
    string_i_o = io.StringIO()
    with (
        contextlib.redirect_stdout(string_i_o),
        contextlib.redirect_stderr(string_i_o),
        contextlib.suppress(SystemExit),
    ):
        cli.main(args=list(arguments), prog_name="gpuform")
    assert "error:" not in string_i_o.getvalue(), string_i_o.getvalue()
    return string_i_o.getvalue()


def start_platforms(
    folder: Path, exit_stack: ExitStack, hook: CrashHook | None = None
) -> httpx.Client:
    store = exit_stack.enter_context(Store(folder / "emulator.db", seed="crashes"))
    transport = create_wsgi_transport(create_app(store, Clock(store, start=START)))
    exit_stack.enter_context(
        mount_transport(URL, transport if hook is None else CountingTransport(transport, hook))
    )
    os.environ.update(environment(URL))
    os.environ.update({"PULUMI_CONFIG_PASSPHRASE": "test only", "PULUMI_STACK": "dev"})
    os.chdir(folder / "project")
    return httpx.Client(base_url=URL, transport=transport)


def create_project(folder: Path, file: str) -> None:
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend: {url: file://.}\n")
    (project / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {CRYPTER.salt_state}\n")
    (project / file).write_text(PROJECT_FILES[file])
    with ExitStack() as exit_stack:
        http = start_platforms(folder, exit_stack)
        for name in NAMES:
            body = {**CLUSTER.valid_inputs, "name": name, "environment_variables": {"MODE": SECRET}}
            headers = {"Authorization": f"Bearer {KEY}"}
            http.post("/tensorone/v1/clusters", json=body, headers=headers).raise_for_status()
        http.post("/_emulator/clock", json={"advance": 3600}).raise_for_status()
        run_gpuform("stack", "init", "dev")


def run(folder: Path, last: int, points_file: Path) -> None:
    with ExitStack() as exit_stack:
        hook = CrashHook(last, points_file)
        start_platforms(folder, exit_stack, hook)
        hook.watch_writes()
        run_gpuform(*IMPORT)


def check_recovery(folder: Path, file: str) -> None:
    """Assert after another run that every import is complete and happened once."""
    with ExitStack() as exit_stack:
        http = start_platforms(folder, exit_stack)
        run_gpuform(*IMPORT)
        content = Path(file).read_text()
        assert "import:" not in content, content
        assert "import_" not in content, content
        assert all(content.count(NAME_LINES[file].format(name)) == 1 for name in NAMES), content
        assert set(PROJECT_FILES[file].splitlines()) <= set(content.splitlines()), content
        files = [content, Path("Pulumi.dev.yaml").read_text()]
        state = json.loads(Path(".pulumi/stacks/demo/dev.json").read_text())
        assert not any(SECRET in resource for resource in [*files, json.dumps(state)])
        resources = state["checkpoint"]["latest"]["resources"]
        ids = [resource["id"] for resource in resources if "tensorone:Cluster" in resource["type"]]
        there = http.get("/_emulator/objects").json()["tensorone"]["clusters"]
        assert sorted(ids) == sorted(resource["id"] for resource in there)
        assert len(ids) == len(NAMES)
        run_gpuform("preview", "--expect-no-changes")
        assert not Path(".pulumi/gpuform/demo/dev.journal").exists()


def crash_at_every_point(file: str, folder: Path) -> dict[str, Any]:
    base, log, points_file = folder / "base", folder / "log", folder / "point"
    failures = []
    if run_in_child(lambda: create_project(base, file), log):
        return {"points": 0, "failures": [{"at": "before", "why": log.read_text()}]}
    for last in itertools.count(1):
        log.unlink(missing_ok=True)
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        status = run_in_child(lambda work=work, last=last: run(work, last, points_file), log)
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        at = f"{last}: {points_file.read_text()}" if was_killed else "the end"
        if not was_killed and status:
            failures.append({"at": at, "why": log.read_text()})
        if run_in_child(lambda work=work: check_recovery(work, file), log):
            failures.append({"at": at, "why": log.read_text()})
        if not was_killed or len(failures) > 5:
            return {"points": last - 1, "failures": failures}
    raise AssertionError("unreachable")


def main() -> None:
    file, folder = sys.argv[1:]
    warm_up(Path(folder))
    print(json.dumps(crash_at_every_point(file, Path(folder))))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
