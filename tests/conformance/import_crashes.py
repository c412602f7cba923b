"""Kills `gpuform import` after each request and each write, and runs it once more.

A program of its own, as `crash_points`: `python -m conformance.import_crashes FILE FOLDER` prints a
line of JSON. FILE is what gets the entries.
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
from conformance.crash_points import CRYPTER, START, URL, Counting, Hook, in_child, warm_up
from conformance.tensorone_kinds import CLUSTER
from tenacity import Retrying  # noqa: F401 - imported once, for all children

from gpuform.providers.context.transport import create_wsgi_transport, mount_transport
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
OURS = {
    "topology.yaml": "# mine\noutputs:\n  a: 1   # kept\n",
    "__main__.py": "import pulumi\nx = 1  # kept\n",
}
NAMED = {"topology.yaml": "    name: {}\n", "__main__.py": '    name="{}",\n'}
SECRET = "planted-in-a-variable"


def gpuform(*arguments: str) -> str:
    """What a command says; it has to succeed."""
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
    ):
        cli.main(args=list(arguments), prog_name="gpuform")
    assert "error:" not in said.getvalue(), said.getvalue()
    return said.getvalue()


def world(folder: Path, held: ExitStack, hook: Hook | None = None) -> httpx.Client:
    store = held.enter_context(Store(folder / "emulator.db", seed="crashes"))
    transport = create_wsgi_transport(create_app(store, Clock(store, start=START)))
    held.enter_context(
        mount_transport(URL, transport if hook is None else Counting(transport, hook))
    )
    os.environ.update(environment(URL))
    os.environ.update({"PULUMI_CONFIG_PASSPHRASE": "test only", "PULUMI_STACK": "dev"})
    os.chdir(folder / "project")
    return httpx.Client(base_url=URL, transport=transport)


def prepare(folder: Path, file: str) -> None:
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend: {url: file://.}\n")
    (project / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {CRYPTER.salt_state}\n")
    (project / file).write_text(OURS[file])
    with ExitStack() as held:
        http = world(folder, held)
        for name in NAMES:
            body = {**CLUSTER.good, "name": name, "environment_variables": {"MODE": SECRET}}
            headers = {"Authorization": f"Bearer {KEY}"}
            http.post("/tensorone/v1/clusters", json=body, headers=headers).raise_for_status()
        http.post("/_emulator/clock", json={"advance": 3600}).raise_for_status()
        gpuform("stack", "init", "dev")


def run(folder: Path, last: int, told: Path) -> None:
    with ExitStack() as held:
        hook = Hook(last, told)
        world(folder, held, hook)
        hook.watch_writes()
        gpuform(*IMPORT)


def mend(folder: Path, file: str) -> None:
    """Nothing twice and nothing half, once the command was run again."""
    with ExitStack() as held:
        http = world(folder, held)
        gpuform(*IMPORT)
        text = Path(file).read_text()
        assert "import:" not in text, text
        assert "import_" not in text, text
        assert all(text.count(NAMED[file].format(name)) == 1 for name in NAMES), text
        assert set(OURS[file].splitlines()) <= set(text.splitlines()), text
        files = [text, Path("Pulumi.dev.yaml").read_text()]
        state = json.loads(Path(".pulumi/stacks/demo/dev.json").read_text())
        assert not any(SECRET in each for each in [*files, json.dumps(state)])
        resources = state["checkpoint"]["latest"]["resources"]
        ids = [each["id"] for each in resources if "tensorone:Cluster" in each["type"]]
        there = http.get("/_emulator/objects").json()["tensorone"]["clusters"]
        assert sorted(ids) == sorted(each["id"] for each in there)
        assert len(ids) == len(NAMES)
        gpuform("preview", "--expect-no-changes")
        assert not Path(".pulumi/gpuform/demo/dev.journal").exists()


def crash_everywhere(file: str, folder: Path) -> dict[str, Any]:
    base, log, told = folder / "base", folder / "log", folder / "told"
    failures = []
    if in_child(lambda: prepare(base, file), log):
        return {"points": 0, "failures": [{"at": "before", "why": log.read_text()}]}
    for last in itertools.count(1):
        log.unlink(missing_ok=True)
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        status = in_child(lambda work=work, last=last: run(work, last, told), log)
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        at = f"{last}: {told.read_text()}" if was_killed else "the end"
        if not was_killed and status:
            failures.append({"at": at, "why": log.read_text()})
        if in_child(lambda work=work: mend(work, file), log):
            failures.append({"at": at, "why": log.read_text()})
        if not was_killed or len(failures) > 5:
            return {"points": last - 1, "failures": failures}
    raise AssertionError("unreachable")


def main() -> None:
    file, folder = sys.argv[1:]
    warm_up(Path(folder))
    print(json.dumps(crash_everywhere(file, Path(folder))))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
