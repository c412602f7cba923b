"""Proposals that would get at secrets by what a plan turns out to be, or reach other machines."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from .conftest import TOPOLOGY, World

pytestmark = [pytest.mark.slow, pytest.mark.sampled(1)]

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
    assert "cannot use a secret" in str(right["data"])
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


def test_what_is_masked_in_its_own_text_tells_an_agent_nothing(world: World) -> None:
    """With a known beginning, one try for each letter would tell the next one."""
    known = world.environ["SOME_API_KEY"][:7]
    tried = {f"{known}{sign}": 1 for sign in "abcdefghijklmnopqrstuvwxyz-0123456789"}
    files = {"topology.yaml": json.dumps(tried)}
    (answer,) = world.ask(("validate", {"folder": "training", "files": files}))
    assert len(answer["data"]) == len(tried)
    assert all(known in each["message"] for each in answer["data"])
    name = world.environ["SOME_API_KEY"]
    (answer,) = world.ask(("read_resource", {**STACK, "name": name}))
    assert answer["data"]["problem"] == "the stack has no resource of that name"


NO_PLACES = [
    *("$(touch x).json", "a; touch x.json", "`x`.json", "-rf.json", "a\nb.json", "a b.json"),
    *("a\x1b[2J.json", "\u202egnp.json", f"{'a' * 300}.json", "a\x00.json", "'.json"),
]


def test_a_person_can_paste_the_command_of_a_plan(world: World) -> None:
    answers = world.ask(*(("save_plan", {**STACK, "save_to": place}) for place in NO_PLACES))
    assert not any(each["ok"] for each in answers)
    assert sorted(world.project.glob("*.json")) == []


def test_no_path_ends_a_call_without_an_answer(world: World) -> None:
    calls = [
        ("read_file", {"folder": "training", "path": "a\x00.yaml"}),
        ("read_file", {"folder": "a\x00", "path": "a.yaml"}),
        ("read_file", {"folder": "training", "path": f"{'a' * 300}.yaml"}),
        ("validate", {"folder": "training", "files": {"a\x00.yaml": ""}}),
        ("validate", {"folder": "training", "files": {f"{'a' * 300}.yaml": ""}}),
        (
            "validate",
            {"folder": "training", "files": {"topology.yaml": "include: [Pulumi.prod.yaml]"}},
        ),
        ("read_file", {"folder": "training", "path": "pulumi.prod.yaml"}),
    ]
    assert not any(each["ok"] for each in world.ask(*calls))


def test_nothing_of_a_project_is_run(world: World) -> None:
    """Neither a gate that is code, nor an interpreter that Pulumi.yaml names."""
    settings, proof = world.project / "Pulumi.yaml", world.root / "it-ran"
    before = settings.read_text()
    python = world.project / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {proof}\n")
    python.chmod(0o755)
    (world.project / "policies.py").write_text(f"open({str(proof)!r}, 'w').close()\n")
    gates = (world.project / "gates.yaml").read_text()
    call = ("save_plan", {**STACK, "save_to": "plan.json"})
    try:
        options = "runtime: {name: python, options: {virtualenv: venv}}"
        settings.write_text(before.replace("runtime: python", options))
        (saved,) = world.ask(call)
        settings.write_text(before)
        (world.project / "gates.yaml").write_text("gates: {own: {python: 'policies:rule'}}\n")
        gated = world.ask(call, ("simulate", STACK), ("validate", {"folder": "training"}))
    finally:
        settings.write_text(before)
        (world.project / "gates.yaml").write_text(gates)
        shutil.rmtree(world.project / "venv")
        (world.project / "policies.py").unlink()
    assert saved["ok"], saved
    assert [each["ok"] for each in gated] == [False, False, True]
    assert "written in Python" in str(gated[0]["data"])
    assert not proof.exists()


def test_a_server_that_is_ended_leaves_nothing(world: World, tmp_path: Path) -> None:
    """Also while its client still holds the pipe."""
    environ = {**os.environ, **world.environ, "TMPDIR": str(tmp_path)}
    command = (sys.executable, "-P", "-m", "gpuform.stacks.cli", "mcp", "--cwd", str(world.root))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        version = "2025-06-18"
        about = {"name": "x", "version": "1"}
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": about}
        said = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        server.stdin.write(json.dumps(said).encode() + b"\n")
        server.stdin.flush()
        assert b"gpuform" in server.stdout.readline()
        assert list(tmp_path.iterdir())
        server.terminate()
        assert server.wait(30) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
