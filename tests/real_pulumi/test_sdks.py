"""SDKs that the CLI generates from the plugin's schema: each builds and makes a cluster."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conformance.emulated import Platform, emulated
from conformance.kinds import CLUSTER
from processes.commands import PASSPHRASE, SALT, environment_of_pulumi

from gpuform.providers.emulator.server import environment

PYTHON = """
import pulumi
from pulumi_gpuform import together

made = together.Cluster("train", {inputs})
pulumi.export("status", made.status)
"""
TYPESCRIPT = """
import {{ together }} from "gpuform-pulumi";

export const status = new together.Cluster("train", {{ {inputs} }}).status;
"""


@dataclass(frozen=True)
class Work:
    """A folder with the SDK of one language, and a project that uses it."""

    folder: Path
    platform: Platform

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def run(self, argv: Sequence[str], folder: Path, **variables: str) -> str:
        environ = {
            **environment(self.platform.server.url),
            "PULUMI_BACKEND_URL": f"file://{self.folder}/state",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            **variables,
        }
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment_of_pulumi(environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def generate(self, language: str) -> Path:
        (self.folder / "state").mkdir()
        self.project.mkdir()
        plugin = Path(sys.executable).with_name("pulumi-resource-gpuform")
        command = ["pulumi", "package", "gen-sdk", str(plugin), "--language", language, "--local"]
        self.run([*command, "--out", str(self.folder / "sdk")], self.folder)
        return self.folder / "sdk" / language

    def make_a_cluster(self, runtime: str, file: str, program: str, **variables: str) -> None:
        (self.project / file).write_text(program)
        (self.project / "Pulumi.yaml").write_text(f"name: sdks\nruntime: {runtime}\n")
        (self.project / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
        for arguments in (
            ("stack", "init", "dev"),
            ("up", "--yes", "--skip-preview"),
            ("preview", "--expect-no-changes"),
        ):
            self.run(["pulumi", *arguments, "--non-interactive"], self.project, **variables)
        outputs = json.loads(self.run(["pulumi", "stack", "output", "--json"], self.project))
        assert outputs == {"status": "Ready"}
        assert len(self.platform.ids(CLUSTER)) == 1


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with emulated(seed="sdks") as platform:
        yield Work(tmp_path, platform)


def needing(*programs: str) -> None:
    missing = [each for each in programs if not shutil.which(each)]
    if missing:
        pytest.skip(f"not on PATH: {', '.join(missing)}")


def inputs(form: str) -> str:
    """The declaration in a language; `form` has `name` and `value`."""
    return ", ".join(
        form.format(name=name, value=json.dumps(value)) for name, value in CLUSTER.good.items()
    )


def test_python(work: Work) -> None:
    sdk = work.generate("python")
    site = work.folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    work.run([*pip, "parver", "arpeggio", str(sdk)], work.folder)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    program = PYTHON.format(inputs=inputs("{name}={value}"))
    work.make_a_cluster("python", "__main__.py", program, PYTHONPATH=path)


def test_typescript(work: Work) -> None:
    needing("pulumi-language-nodejs", "node", "npm")
    sdk = work.generate("nodejs")
    (work.project / "package.json").write_text('{"name": "sdks", "main": "index.ts"}')
    quiet = ["--no-audit", "--no-fund", "--silent"]
    work.run(["npm", "install", "--install-links", *quiet, str(sdk)], work.project)
    program = TYPESCRIPT.format(inputs=inputs("{name}: {value}"))
    work.make_a_cluster("nodejs", "index.ts", program)
