"""A stack on an emulator, secrets planted wherever they can be, and an agent's session."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from processes.commands import Result, run_gpuform

from gpuform.providers.emulator.server import Server, environment, serve

PLANTED = {
    "passphrase": "planted-passphrase-51ad",
    "config": "planted-config-77c1",
    "default": "planted-default-90fe",
    "variable": "planted-variable-3b2d",
}
TOPOLOGY = """\
config:
  gpus: {type: integer, default: 16, multiple_of: 8}
  token: {type: string, secret: true, default: planted-default-90fe}
  other: {type: string, secret: true}
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
outputs:
  token: "{{ config.token }}-{{ config.other }}"
  kubeconfig: "{{ clusters.train.kube_config }}"
  status: "{{ clusters.train.status }}"
"""
LARGER = TOPOLOGY.replace("default: 16", "default: 24")
GATES = "gates:\n  few: {max_destroyed_gpus: 8}\n"


@dataclass
class World:
    """The folder that is served, with a project that came up; the emulator, its environment."""

    root: Path
    server: Server
    environ: dict[str, str]
    sent: list[str] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.root / "training"

    def gpuform(self, *arguments: str) -> Result:
        return run_gpuform(self.project, *arguments, **self.environ)

    def ask(self, *calls: tuple[str, dict[str, Any]], flags: tuple[str, ...] = ()) -> list[Any]:
        """The structured answers to calls of tools, in one session of the SDK's own client."""
        return asyncio.run(self._asked(calls, flags))

    async def _asked(self, calls: Any, flags: tuple[str, ...]) -> list[Any]:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-P", "-m", "gpuform.stacks.cli", "mcp", "--cwd", str(self.root), *flags],
            env={**os.environ, **self.environ},
        )
        answers = []
        async with Client(parameters) as client:
            self.sent.append(str(client.instructions))
            self.sent.append((await client.list_tools()).model_dump_json())
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                self.sent.append(result.model_dump_json())
                assert not result.is_error, result
                answers.append(result.structured_content)
        return answers

    @property
    def writes(self) -> list[str]:
        """The requests to platforms that are no reads."""
        log = (json.loads(entry) for entry in self.server.store.list_log())
        return [
            f"{each['method']} {each['path']}"
            for each in log
            if each["method"] != "GET" and each["path"] != "/clusters/query"
        ]

    @property
    def digests(self) -> Mapping[str, str]:
        """All files below the root, by their content."""
        return {
            str(path.relative_to(self.root)): sha256(path.read_bytes()).hexdigest()
            for path in self.root.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("served").resolve()
    project = root / "training"
    project.mkdir()
    (project / "Pulumi.yaml").write_text(
        "name: demo\nruntime: python\nbackend: {url: 'file://.'}\n"
    )
    (project / "topology.yaml").write_text(TOPOLOGY)
    (project / "gates.yaml").write_text(GATES)
    with serve(seed="agents", start=1_770_000_000.0) as server:
        environ = {
            **environment(server.url),
            "PULUMI_HOME": str(tmp_path_factory.mktemp("home")),
            "PULUMI_CONFIG_PASSPHRASE": PLANTED["passphrase"],
            "SOME_API_KEY": PLANTED["variable"],
        }
        made = World(root, server, environ)
        for command in (
            "stack init prod",
            f"config set --secret other {PLANTED['config']}",
            "up --yes",
        ):
            done = made.gpuform(*command.split())
            assert done.code == 0, done.stdout + done.stderr
        server.store.clear_log()
        yield made


@pytest.fixture
def asked(world: World) -> Callable[..., Any]:
    """The answer to one call."""

    def ask(tool: str, **arguments: Any) -> Any:
        (answer,) = world.ask((tool, arguments))
        return answer

    return ask
