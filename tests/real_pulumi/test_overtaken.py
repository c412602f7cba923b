"""Test that one engine continues after a killed run of the other one.

Nothing is lost, nothing is created twice, and every command works afterwards.
"""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from processes.commands import (
    PASSPHRASE,
    SALT,
    Cli,
    Result,
    build_pulumi_command,
    build_pulumi_environment,
    pulumi,
)
from support.stacks.scenario_replay import mask

from gpuform.providers.emulator.server import Server, environment, serve

PROGRAM = """
import pulumi
from gpuform.providers.together import SharedVolume

token = pulumi.Config().require_secret("token")
for name in NAMES:
    SharedVolume(
        name,
        pulumi.ResourceOptions(additional_secret_outputs=["volume_name"]),
        volume_name=name,
        region="us-central-8",
        size_tib=SIZE,
    )
pulumi.export("token", token)
"""

# Ends at the nth time that something is written to the disk, before or after it is there.
MORTAL = """
import os, sys
from gpuform.stacks.cli import app

left = [int(sys.argv[1])]
fsync = os.fsync

def mortal(handle):
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)
    fsync(handle)

os.fsync = mortal
app.cli.main(args=sys.argv[2:], prog_name="gpuform")
"""


@dataclass
class Stack:
    folder: Path
    gpuform: Cli
    server: Server
    environ: dict[str, str] = field(default_factory=dict)

    def write_program(self, *names: str, size: int = 1) -> None:
        program = PROGRAM.replace("NAMES", repr(names)).replace("SIZE", str(size))
        (self.folder / "project/__main__.py").write_text(program)

    def run(self, cli: Cli, *arguments: str) -> Result:
        return cli(self.folder / "project", *arguments, "--non-interactive", **self.environment)

    def run_successfully(self, cli: Cli, *arguments: str) -> Result:
        done = self.run(cli, *arguments)
        assert done.code == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def recover_with_gpuform(self, command: str) -> None:
        """Run gpuform's command, and adopt what it asks about: nobody else creates objects."""
        done = self.run(self.gpuform, command, *YES)
        asked = re.findall(r"--adopt (\S+?)`", done.stderr) if done.code else []
        if asked:
            adopt = [word for id_ in asked for word in ("--adopt", id_)]
            done = self.run(self.gpuform, command, *YES, *adopt)
        assert done.code == 0, f"{command}: {done.stdout}\n{done.stderr}"

    def run_killed_at(self, moment: int, *arguments: str) -> bool:
        """Return whether gpuform was killed at this moment, rather than ending by itself."""

        def mortal(folder: Path, *given: str, **environ: str) -> Result:
            argv = [sys.executable, "-c", MORTAL, str(moment), *given]
            done = subprocess.run(
                argv,
                cwd=folder,
                env=os.environ | environ,
                capture_output=True,
                text=True,
                check=False,
            )
            return Result(done.returncode, done.stdout, done.stderr)

        code = self.run(mortal, *arguments).code
        assert code in (0, 9)
        return code == 9

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PULUMI_BACKEND_URL": f"file://{self.folder}/state",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            **environment(self.server.url),
            **self.environ,
        }

    def list_volumes(self) -> dict[str, str]:
        """Return the names of all volumes by id."""
        answer = httpx.get(
            f"{self.server.url}/together/v1/compute/clusters/storage/volumes",
            headers={"Authorization": f"Bearer {environment(self.server.url)['TOGETHER_API_KEY']}"},
            verify=False,
        )
        return {volume["volume_id"]: volume["volume_name"] for volume in answer.json()["volumes"]}

    def export_state(self, cli: Cli) -> dict[str, Any]:
        return json.loads(self.run_successfully(cli, "stack", "export").stdout)["deployment"]

    def expect_consistent(self) -> None:
        """Assert that the stack has each object once, and that no plan changes anything."""
        entries = self.export_state(self.gpuform).get("resources", [])
        mine = [entry["id"] for entry in entries if "SharedVolume" in entry["type"]]
        assert sorted(mine) == sorted(self.list_volumes())
        assert len({*self.list_volumes().values()}) == len(mine)
        assert mask(self.export_state(pulumi).get("resources", [])) == mask(entries)
        for path in (self.folder / "state").rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                assert b"hush" not in data


@pytest.fixture(params=["plain", "gzip"])
def stack(request: pytest.FixtureRequest, tmp_path: Path, gpuform: Cli) -> Iterator[Stack]:
    for name in ("project", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "project/Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "project/Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
    environ = {"PULUMI_DIY_BACKEND_GZIP": "1"} if request.param == "gzip" else {}
    with serve(seed="overtaken") as server:
        made = Stack(tmp_path, gpuform, server, environ)
        made.run_successfully(gpuform, "stack", "init", "dev")
        made.run_successfully(gpuform, "config", "set", "--secret", "token", "hush-hush")
        yield made


YES = ("--yes", "--skip-preview")


@pytest.mark.parametrize(
    ("moment", "then"),
    [
        (4, "destroy"),
        (7, "another program"),
        (10, "up"),
        (13, "refresh"),
        (16, "destroy"),
        (19, "another program"),
        (22, "cancel alone"),
        (25, "up"),
        (28, "another program"),
        (31, "destroy"),
    ],
)
def test_gpuform_is_killed_and_pulumi_continues(stack: Stack, moment: int, then: str) -> None:
    stack.write_program("one")
    stack.run_successfully(stack.gpuform, "up", *YES)
    stack.write_program("one", "two", "three", "four", size=2)
    stack.run_killed_at(moment, "up", *YES)
    stack.run_successfully(pulumi, "cancel", "--yes")
    if then in ("up", "destroy", "refresh"):
        stack.run(pulumi, then, *YES)
    elif then == "another program":
        stack.write_program("five")
        stack.run(pulumi, "up", *YES)
    stack.export_state(stack.gpuform)
    stack.run_successfully(stack.gpuform, "state", "repair", "--yes")
    if then == "destroy":
        stack.recover_with_gpuform("destroy")
        assert stack.list_volumes() == {}
    stack.recover_with_gpuform("up")
    stack.expect_consistent()
    stack.run_successfully(stack.gpuform, "preview", "--expect-no-changes")
    stack.run_successfully(pulumi, "destroy", *YES)
    assert stack.list_volumes() == {}


@pytest.mark.parametrize("then", ["up", "destroy"])
def test_pulumi_is_killed_and_gpuform_continues(stack: Stack, then: str) -> None:
    """Kill the Pulumi CLI when the second volume exists."""
    stack.write_program("one")
    stack.run_successfully(pulumi, "up", *YES)
    stack.write_program("one", "two", "three")
    folder = stack.folder / "project"
    environ = build_pulumi_environment(stack.environment)
    with subprocess.Popen(
        build_pulumi_command(folder, "up", *YES, "--non-interactive", "--parallel", "1"),
        cwd=folder,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        while run.poll() is None and len(stack.list_volumes()) < 2:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    stack.run_successfully(stack.gpuform, "cancel", "--yes")
    stack.export_state(stack.gpuform)
    stack.recover_with_gpuform(then)
    if then == "destroy":
        assert stack.list_volumes() == {}
        stack.recover_with_gpuform("up")
    stack.expect_consistent()
    stack.run_successfully(pulumi, "preview", "--expect-no-changes")
