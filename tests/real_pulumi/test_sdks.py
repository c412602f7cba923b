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
from conformance.emulated import Platform, start_emulated_platform
from conformance.together_kinds import CLUSTER
from processes.commands import PASSPHRASE, SALT, build_pulumi_environment
from processes.pinned_pulumi import search_path

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
GO = """
package main

import (
	"example.com/pulumi-gpuform/sdk/go/gpuform/together"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func main() {{
	pulumi.Run(func(ctx *pulumi.Context) error {{
		made, err := together.NewCluster(ctx, "train", &together.ClusterArgs{{ {inputs} }})
		if err != nil {{
			return err
		}}
		ctx.Export("status", made.Status)
		return nil
	}})
}}
"""
GO_PACKAGE = "example.com/pulumi-gpuform/sdk/go/gpuform"


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
        program, *arguments = argv
        done = subprocess.run(
            [shutil.which(program, path=search_path()) or program, *arguments],
            cwd=folder,
            env=build_pulumi_environment(environ),
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
        assert len(self.platform.list_ids(CLUSTER)) == 1


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with start_emulated_platform(seed="sdks") as platform:
        yield Work(tmp_path, platform)


def require_programs(*programs: str) -> None:
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"not on PATH: {', '.join(missing)}")


def format_inputs(form: str) -> str:
    """Return the declaration in a language; `form` has `name` and `value`."""
    return ", ".join(
        form.format(name=name, value=json.dumps(value))
        for name, value in CLUSTER.valid_inputs.items()
    )


def format_go_inputs() -> str:
    def typed(name: str, value: object) -> str:
        if name == "billing_type":
            return f"together.ClusterBillingType({json.dumps(value)})"
        return f"pulumi.{'Int' if isinstance(value, int) else 'String'}({json.dumps(value)})"

    named = (
        f"{name.capitalize()}: {typed(name, value)}" for name, value in CLUSTER.valid_inputs.items()
    )
    return ", ".join(named)


@pytest.mark.language_host("python")
def test_python(work: Work) -> None:
    sdk = work.generate("python")
    site = work.folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    work.run([*pip, "parver", "arpeggio", str(sdk)], work.folder)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    program = PYTHON.format(inputs=format_inputs("{name}={value}"))
    work.make_a_cluster("python", "__main__.py", program, PYTHONPATH=path)


def test_typescript(work: Work) -> None:
    require_programs("pulumi-language-nodejs", "node", "npm")
    sdk = work.generate("nodejs")
    (work.project / "package.json").write_text('{"name": "sdks", "main": "index.ts"}')
    quiet = ["--no-audit", "--no-fund", "--silent"]
    work.run(["npm", "install", "--install-links", *quiet, str(sdk)], work.project)
    program = TYPESCRIPT.format(inputs=format_inputs("{name}: {value}"))
    work.make_a_cluster("nodejs", "index.ts", program)


def test_go(work: Work) -> None:
    """The program uses the version of Pulumi's Go SDK that belongs to the CLI."""
    require_programs("pulumi-language-go", "go")
    sdk = work.generate("go") / "gpuform"
    version = work.run(["pulumi", "version"], work.folder).strip()
    pulumi = f"github.com/pulumi/pulumi/sdk/v3 {version}"
    (sdk / "go.mod").write_text(f"module {GO_PACKAGE}\n\nrequire {pulumi}\n")
    program = GO.format(inputs=format_go_inputs())
    (work.project / "main.go").write_text(program)
    (work.project / "go.mod").write_text(
        f"module sdks\n\nrequire {pulumi}\nrequire {GO_PACKAGE} v0.0.0\n\n"
        f"replace {GO_PACKAGE} => {sdk}\n"
    )
    work.run(["go", "mod", "tidy"], sdk)
    work.run(["go", "build", "./..."], sdk)
    work.run(["go", "mod", "tidy"], work.project)
    work.make_a_cluster("go", "main.go", program)
