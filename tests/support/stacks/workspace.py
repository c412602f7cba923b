"""A workspace of three stacks: a volume, a cluster that mounts it, a program that reads both."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes.commands import PASSPHRASE, SALT, Result, run_gpuform

STACK_NAMES = ("volumes/dev", "training/dev", "told/dev")
"""The stacks in the order of their dependencies."""

SECRET = "planted-3f9a1c"

STACKS = """
stacks:
  - {folder: "*", stack: dev}
"""

VOLUMES = """
config:
  size: {type: integer, default: 5}
shared_volumes:
  data:
    platform: together
    volume_name: training-data
    region: us-central-8
    size_tib: "{{ config.size }}"
outputs:
  volume_id: "{{ shared_volumes.data.id }}"
  region: us-central-8
  size: "{{ shared_volumes.data.size_tib }}"
"""

TRAINING = """
config:
  gpus: {type: integer, default: 16}
stack_references:
  store: organization/volumes/{{ pulumi.stack }}
clusters:
  train:
    platform: together
    cluster_name: training
    region: "{{ stack_references.store.region }}"
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ stack_references.store.volume_id }}"
outputs:
  cluster_id: "{{ clusters.train.id }}"
  kubeconfig: "{{ clusters.train.kube_config }}"
  region: "{{ stack_references.store.region }}"
"""

TOLD = f"""
import pulumi

training = pulumi.StackReference("organization/training/" + pulumi.get_stack())
pulumi.export("cluster", training.require_output("cluster_id"))
pulumi.export("place", training.require_output("region").apply(lambda region: f"in {{region}}"))
pulumi.export("kubeconfig", training.get_output("kubeconfig"))
pulumi.export("token", pulumi.Output.secret("{SECRET}"))
"""


@dataclass(frozen=True)
class Workspace:
    """The folder of the stacks, and the variables of the commands that run there."""

    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, folder: str = ".", **more: str) -> Result:
        """Run a gpuform command in a folder of the workspace."""
        return run_gpuform(self.root / folder, *arguments, **{**self.variables, **more})

    @contextmanager
    def start(
        self, *arguments: str, folder: str = ".", **more: str
    ) -> Iterator["subprocess.Popen[str]"]:
        """Start a gpuform command, yield the process, and kill the process at the end."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuform.stacks.cli", *arguments],
            cwd=self.root / folder,
            env={**os.environ, **self.variables, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def run_successfully(self, *arguments: str, folder: str = ".") -> str:
        """Run a command, check the exit code, and return stdout."""
        result = self.run(*arguments, folder=folder)
        assert result.code == 0, result.stdout + result.stderr
        return result.stdout

    def export(self, name: str) -> Any:
        """Return a stack's deployment in the form of `stack export`."""
        folder, _, stack = name.partition("/")
        return json.loads(
            self.run_successfully("stack", "export", "--stack", stack, folder=folder)
        )["deployment"]

    def export_all(self) -> dict[str, Any]:
        """Return the deployments of all stacks by name, without times and random values."""
        return {name: remove_varying_values(self.export(name)) for name in STACK_NAMES}

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text in a file of the workspace."""
        path = self.root / file
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new))


def remove_varying_values(value: Any) -> Any:
    """Return a value without times and random parts.

    Random are ciphertexts and the ids of default providers.
    """
    if isinstance(value, dict):
        random_keys = ("id",) if str(value.get("type")).startswith("pulumi:providers:") else ()
        constant_items = {
            key: item for key, item in value.items() if key not in (*_TIME_KEYS, *random_keys)
        }
        return {key: remove_varying_values(item) for key, item in constant_items.items()}
    if isinstance(value, list):
        return [remove_varying_values(item) for item in value]
    return _RANDOM_TEXTS.sub("", value) if isinstance(value, str) else value


_TIME_KEYS = ("time", "created", "modified", "ciphertext", "at", "created_at", "first_ready_at")
_RANDOM_TEXTS = re.compile(r"v1:[\w+/=]+:[\w+/=]+|(?<=::default::)[0-9a-f-]{36}")


def create_workspace(
    root: Path, url: str, variables: Mapping[str, str], backends: Mapping[str, str]
) -> Workspace:
    """Write the three projects into `root` and create a stack of each.

    `backends` maps projects to the URLs of their backends; the others use the folder `state`.
    """
    from gpuform.providers.emulator.server import environment

    programs = {"volumes": VOLUMES, "training": TRAINING, "told": TOLD}
    for project, program in programs.items():
        folder = root / project
        folder.mkdir(parents=True)
        backend = backends.get(project, "file://../state")
        (folder / "Pulumi.yaml").write_text(
            f"name: {project}\nruntime: python\nbackend: {{url: '{backend}'}}\n"
        )
        name = "__main__.py" if project == "told" else "topology.yaml"
        (folder / name).write_text(program)
        (folder / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
    (root / "state").mkdir()
    (root / "stacks.yaml").write_text(STACKS)
    workspace = Workspace(
        root,
        {
            **{name: "" for name in os.environ if name.startswith(("PULUMI_", "GPUFORM_"))},
            "PULUMI_HOME": str(root / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "PULUMI_BACKEND_URL": "",
            **environment(url),
            **variables,
        },
    )
    for project in programs:
        workspace.run_successfully("stack", "init", "dev", folder=project)
    return workspace
