"""Provide a stack on an emulator with planted secrets, and sessions of an agent."""

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
class ServedFolder:
    """The served folder with a deployed project, its emulator and its environment."""

    root: Path
    server: Server
    environ: dict[str, str]
    received: list[str] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.root / "training"

    def gpuform(self, *arguments: str) -> Result:
        return run_gpuform(self.project, *arguments, **self.environ)

    def call_tools(
        self, *calls: tuple[str, dict[str, Any]], flags: tuple[str, ...] = ()
    ) -> list[Any]:
        """Return the structured answers to calls of tools, in one session of the SDK's client."""
        return asyncio.run(self._call_tools(calls, flags))

    async def _call_tools(self, calls: Any, flags: tuple[str, ...]) -> list[Any]:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-P", "-m", "gpuform.stacks.cli", "mcp", "--cwd", str(self.root), *flags],
            env={**os.environ, **self.environ},
        )
        answers = []
        async with Client(parameters) as client:
            self.received.append(str(client.instructions))
            self.received.append((await client.list_tools()).model_dump_json())
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                self.received.append(result.model_dump_json())
                assert not result.is_error, result
                answers.append(result.structured_content)
        return answers

    @property
    def writes(self) -> list[str]:
        """Return the requests to platforms, except for reads."""
        log = (json.loads(entry) for entry in self.server.store.list_log())
        return [
            f"{item['method']} {item['path']}"
            for item in log
            if item["method"] != "GET" and item["path"] != "/clusters/query"
        ]

    @property
    def digests(self) -> Mapping[str, str]:
        """Return a digest of each file below the root, by path."""
        return {
            str(path.relative_to(self.root)): sha256(path.read_bytes()).hexdigest()
            for path in self.root.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFolder]:
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
        served_folder = ServedFolder(root, server, environ)
        for command in (
            "stack init prod",
            f"config set --secret other {PLANTED['config']}",
            "up --yes",
        ):
            result = served_folder.gpuform(*command.split())
            assert result.code == 0, result.stdout + result.stderr
        server.store.clear_log()
        yield served_folder


@pytest.fixture
def call_tool(served: ServedFolder) -> Callable[..., Any]:
    """Return a function that calls one tool."""

    def call_one(tool: str, **arguments: Any) -> Any:
        (answer,) = served.call_tools((tool, arguments))
        return answer

    return call_one
