"""Three stacks that are one: a volume, a cluster that trains on it, and what is told of both."""

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

NAMES = ("volumes/dev", "training/dev", "told/dev")
"""In their order."""

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
class Estate:
    """The folder of the stacks, and the variables of those who work on them."""

    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, folder: str = ".", **more: str) -> Result:
        """Run a command as people do."""
        return run_gpuform(self.root / folder, *arguments, **{**self.variables, **more})

    @contextmanager
    def started(
        self, *arguments: str, folder: str = ".", **more: str
    ) -> Iterator["subprocess.Popen[str]"]:
        """A command that is under way."""
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

    def ok(self, *arguments: str, folder: str = ".") -> str:
        """What a command prints that has to succeed."""
        done = self.run(*arguments, folder=folder)
        assert done.code == 0, done.stdout + done.stderr
        return done.stdout

    def export(self, name: str) -> Any:
        """The deployment of a stack."""
        folder, _, stack = name.partition("/")
        return json.loads(self.ok("stack", "export", "--stack", stack, folder=folder))["deployment"]

    def states(self) -> dict[str, Any]:
        """The states, but for times."""
        return {name: without_times(self.export(name)) for name in NAMES}

    def edit(self, file: str, old: str, new: str) -> None:
        """Changes a text in a file."""
        path = self.root / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def without_times(value: Any) -> Any:
    """A value without when it came to be; what each run draws anew is as good as equal.

    That is a secret under its key, and the id that a default provider is given.
    """
    if isinstance(value, dict):
        drawn = ("id",) if str(value.get("type")).startswith("pulumi:providers:") else ()
        kept = {key: item for key, item in value.items() if key not in (*_TIMES, *drawn)}
        return {key: without_times(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return _DRAWN.sub("", value) if isinstance(value, str) else value


_TIMES = ("time", "created", "modified", "ciphertext", "at", "created_at", "first_ready_at")
_DRAWN = re.compile(r"v1:[\w+/=]+:[\w+/=]+|(?<=::default::)[0-9a-f-]{36}")


def make_estate(
    root: Path, url: str, variables: Mapping[str, str], backends: Mapping[str, str]
) -> Estate:
    """The stacks in a folder, each initialised; `url` is the emulator's.

    `backends` are the URLs of their backends by project; the folder `state` where none is named.
    """
    from gpuform.providers.emulator.server import environment

    programs = {"volumes": VOLUMES, "training": TRAINING, "told": TOLD}
    for project, text in programs.items():
        folder = root / project
        folder.mkdir(parents=True)
        backend = backends.get(project, "file://../state")
        (folder / "Pulumi.yaml").write_text(
            f"name: {project}\nruntime: python\nbackend: {{url: '{backend}'}}\n"
        )
        name = "__main__.py" if project == "told" else "topology.yaml"
        (folder / name).write_text(text)
        (folder / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
    (root / "state").mkdir()
    (root / "stacks.yaml").write_text(STACKS)
    made = Estate(
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
        made.ok("stack", "init", "dev", folder=project)
    return made
