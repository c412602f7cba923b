"""`gpuform graph` as a person runs it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.readers.graph_text import read_dot, read_mermaid
from support.stacks.planned_project import PlannedProject

Run = Callable[..., Any]


def test_graph_of_the_state_needs_no_passphrase(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    ran = applied_project.run("graph", "--stack", "dev")
    assert (ran.code, ran.err) == (0, "")
    labels = read_dot(ran.out).labels
    assert any(
        label.startswith("train\ntogether:Cluster\nus-central-8") for label in labels.values()
    )
    mermaid = applied_project.run("graph", "--format", "mermaid").out
    assert read_mermaid(mermaid).labels == labels
    page = applied_project.run("graph", "--format", "html", "--output", "stack.html")
    assert (page.code, page.out) == (0, "")
    assert Path("stack.html").read_text().startswith("<!doctype html>")
    assert "hunter2" not in Path("stack.html").read_text()


def test_graph_shows_numbers_of_gpus_without_fractions(applied_project: PlannedProject) -> None:
    drawn = applied_project.run("graph").out
    assert "us-central-8 \N{MIDDLE DOT} H100_SXM \N{MIDDLE DOT} 16 GPUs\\nReady" in drawn


@pytest.mark.slow
def test_graph_of_a_saved_plan_includes_unchanged_resources(
    applied_project: PlannedProject, tmp_path: Path
) -> None:
    applied_project.run("config", "set", "gpus", "24")
    assert applied_project.run("preview", "--save-plan", "plan.json").code == 0
    ran = applied_project.run("graph", "--plan", "plan.json")
    graph = read_dot(ran.out)
    assert any(label.startswith("~ train\n") for label in graph.labels.values())
    assert len(graph.arrows) == 1
    alone = applied_project.run("graph", "--plan", "plan.json", "--cwd", str(tmp_path))
    assert alone.code == 1, "the file is named from there"
    (tmp_path / "plan.json").write_bytes(Path("plan.json").read_bytes())
    alone = applied_project.run("graph", "--plan", "plan.json", "--cwd", str(tmp_path))
    assert len(read_dot(alone.out).arrows) == 1, "a plan knows what needs what, in no project"
    preview = applied_project.run("preview", "--json").out
    piped = applied_project.run("graph", "--plan", "-", answers=preview)
    assert len(read_dot(piped.out).arrows) == 1


def test_graph_of_an_empty_stack_is_empty_and_invalid_plans_are_refused(
    dev: Run, project: Path
) -> None:
    empty = dev("graph")
    assert empty.code == 0
    assert read_dot(empty.out).labels == {}
    (project / "no.json").write_text("[]")
    refused = dev("graph", "--plan", "no.json")
    assert (refused.code, refused.out) == (1, "")
    assert "error: no.json is not a plan" in refused.err
    urn = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
    error = {"severity": "error", "message": "error: no luck"}
    failed = {"steps": [{"op": "same", "urn": urn}], "diagnostics": [error]}
    (project / "failed.json").write_text(json.dumps(failed))
    refused = dev("graph", "--plan", "failed.json")
    assert (refused.code, refused.out) == (1, "")
    assert "its preview failed: no luck" in refused.err
    assert dev("graph", "--plan", "none.json").code == 1
    assert dev("graph", "--stack", "none").code == 6
    assert dev("graph", "--output", "no/such/file").code == 1
    assert dev("graph", "--format", "png").code == 2


def test_graph_json_has_every_node_with_its_dependencies(applied_project: PlannedProject) -> None:
    ran = applied_project.run("graph", "--json")
    assert ran.code == 0
    assert ran.json["stacks"] == []
    nodes = {node["name"]: node for node in ran.json["nodes"]}
    assert nodes["train"]["type"] == "together:Cluster"
    assert nodes["train"]["gpus"] == 16
    assert nodes["train"]["dependencies"] == [nodes["data"]["key"]]
    assert nodes["train"]["action"] is None
    assert "hunter2" not in ran.out


def test_graph_json_of_a_plan_has_the_actions(applied_project: PlannedProject) -> None:
    assert applied_project.run("config", "set", "gpus", "24").code == 0
    assert applied_project.run("preview", "--save-plan", "plan.json").code == 0
    nodes = applied_project.run("graph", "--plan", "plan.json", "--json").json["nodes"]
    assert {node["name"]: node["action"] for node in nodes}["train"] == "update"
