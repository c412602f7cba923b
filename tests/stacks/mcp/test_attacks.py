"""Test proposals that try to find secrets by their plans, or to reach other machines."""

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
from processes.limits import LAST_RESORT

from .conftest import TOPOLOGY, ServedFolder

pytestmark = [pytest.mark.slow, pytest.mark.sampled(1)]

CallTool = Callable[..., Any]
STACK = {"folder": "training", "stack": "prod"}


def build_plan_call(topology: str, **files: str) -> tuple[str, dict[str, Any]]:
    proposed = {"topology.yaml": topology, **files}
    return "save_plan", {**STACK, "save_to": "plan.json", "files": proposed}


@pytest.fixture(autouse=True)
def remove_plan(served: ServedFolder) -> Iterator[None]:
    yield
    (served.project / "plan.json").unlink(missing_ok=True)


def test_a_proposal_cannot_test_a_secret(served: ServedFolder) -> None:
    """A plan that depends on a letter of a secret would reveal the secret letter by letter."""
    condition = "cluster_name: \"{{ 'a' if config.other[0] == '%s' else 'b' }}\""
    right, wrong = served.call_tools(
        *(
            build_plan_call(TOPOLOGY.replace("cluster_name: training", condition % sign))
            for sign in "pq"
        )
    )
    assert "cannot use a secret" in str(right["data"])
    assert right == wrong


@contextmanager
def run_foreign_server() -> Iterator[tuple[str, list[str]]]:
    """Run a server of somebody else, and yield the address and the received requests."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.path} {self.headers.get('Authorization')}")
            self.send_error(404)

        def log_message(self, *arguments: object) -> None:
            del arguments

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
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


def test_a_proposal_cannot_send_a_local_file_to_another_server(
    served: ServedFolder, tmp_path: Path
) -> None:
    """A kubeconfig may name a file whose content is sent as a token."""
    (tmp_path / "of-this-machine").write_text("planted-file-9c3e")
    with run_foreign_server() as (address, requests):
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": address}}],
            "users": [{"name": "x", "user": {"tokenFile": str(tmp_path / "of-this-machine")}}],
        }
        topology = TOPOLOGY + CERTIFIED.replace("KUBECONFIG", "theirs.yaml")
        files = {"topology.yaml": topology, "theirs.yaml": json.dumps(kubeconfig)}
        arguments = {**STACK, "files": files}
        saved, simulated = served.call_tools(
            ("save_plan", {**arguments, "save_to": "plan.json"}),
            ("simulate", {**arguments, "allow": ["real-schedulers"]}),
        )
    assert requests == []
    assert "planted-file" not in json.dumps([saved, simulated])


def test_masks_in_an_agents_own_text_confirm_no_guess(served: ServedFolder) -> None:
    """With a known beginning, one try for each letter would reveal the next letter."""
    known_prefix = served.environ["SOME_API_KEY"][:7]
    tried = {f"{known_prefix}{sign}": 1 for sign in "abcdefghijklmnopqrstuvwxyz-0123456789"}
    files = {"topology.yaml": json.dumps(tried)}
    (answer,) = served.call_tools(("validate", {"folder": "training", "files": files}))
    assert len(answer["data"]) == len(tried)
    assert all(known_prefix in item["message"] for item in answer["data"])
    name = served.environ["SOME_API_KEY"]
    (answer,) = served.call_tools(("read_resource", {**STACK, "name": name}))
    assert answer["data"]["problem"] == "the stack has no resource with this name"


UNSAFE_PATHS = [
    *("$(touch x).json", "a; touch x.json", "`x`.json", "-rf.json", "a\nb.json", "a b.json"),
    *("a\x1b[2J.json", "\u202egnp.json", f"{'a' * 300}.json", "a\x00.json", "'.json"),
]


def test_plans_with_unsafe_file_names_are_refused(served: ServedFolder) -> None:
    answers = served.call_tools(
        *(("save_plan", {**STACK, "save_to": path}) for path in UNSAFE_PATHS)
    )
    assert not any(item["ok"] for item in answers)
    assert sorted(served.project.glob("*.json")) == []


def test_invalid_paths_get_an_answer(served: ServedFolder) -> None:
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
    assert not any(item["ok"] for item in served.call_tools(*calls))


def test_no_code_of_a_project_runs(served: ServedFolder) -> None:
    """Cover gates that are code, and an interpreter that Pulumi.yaml names."""
    settings, proof = served.project / "Pulumi.yaml", served.root / "it-ran"
    before = settings.read_text()
    python = served.project / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {proof}\n")
    python.chmod(0o755)
    (served.project / "policies.py").write_text(f"open({str(proof)!r}, 'w').close()\n")
    gates = (served.project / "gates.yaml").read_text()
    call = ("save_plan", {**STACK, "save_to": "plan.json"})
    try:
        options = "runtime: {name: python, options: {virtualenv: venv}}"
        settings.write_text(before.replace("runtime: python", options))
        (saved,) = served.call_tools(call)
        settings.write_text(before)
        (served.project / "gates.yaml").write_text("gates: {own: {python: 'policies:rule'}}\n")
        gated = served.call_tools(call, ("simulate", STACK), ("validate", {"folder": "training"}))
    finally:
        settings.write_text(before)
        (served.project / "gates.yaml").write_text(gates)
        shutil.rmtree(served.project / "venv")
        (served.project / "policies.py").unlink()
    assert saved["ok"], saved
    assert [item["ok"] for item in gated] == [False, False, True]
    assert "written in Python" in str(gated[0]["data"])
    assert not proof.exists()


def test_a_server_that_is_ended_leaves_nothing(served: ServedFolder, tmp_path: Path) -> None:
    """The server also ends while its client still holds the pipe."""
    environ = {**os.environ, **served.environ, "TMPDIR": str(tmp_path)}
    command = (sys.executable, "-P", "-m", "gpuform.stacks.cli", "mcp", "--cwd", str(served.root))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        version = "2025-06-18"
        about = {"name": "x", "version": "1"}
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": about}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        assert b"gpuform" in server.stdout.readline()
        assert list(tmp_path.iterdir())
        server.terminate()
        assert server.wait(LAST_RESORT) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
