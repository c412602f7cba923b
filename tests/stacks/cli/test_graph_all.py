"""`gpuform graph --all` as a person runs it."""

from pathlib import Path
from typing import Any

import pytest
from support.readers.graph_text import read_dot, read_mermaid
from support.stacks.project_folders import write_three_projects

from gpuform.providers.emulator.server import environment, serve


@pytest.fixture
def applied_projects(
    run: Any, project: Path, tmp_path: Path, salt: str, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write three projects, create the stacks of two, and remove the passphrase."""
    root = tmp_path / "three"
    root.mkdir()
    monkeypatch.chdir(root)
    write_three_projects(root, salt)
    with serve(seed="graph") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        for folder in ("network", "clusters"):
            assert run("--cwd", folder, "stack", "init", "prod").code == 0
            ran = run("--cwd", folder, "up", "--yes", "--skip-preview", "--stack", "prod")
            assert ran.code == 0, ran.err
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    return root


def test_graph_all_draws_each_stack_as_a_box(run: Any, applied_projects: Path) -> None:
    ran = run("graph", "--all")
    assert (ran.code, ran.err) == (0, "")
    graph = read_dot(ran.out)
    by_name = {label.split("\n")[0]: key for key, label in graph.labels.items()}
    assert graph.arrows == {
        (by_name["clusters/prod"], by_name["network/prod"]),
        (by_name["apps/prod"], by_name["clusters/prod"]),
    }
    assert graph.labels[by_name["apps/prod"]] == "apps/prod\nnot created yet"
    assert graph.inside[graph.inside[by_name["data"]]] == by_name["network/prod"]
    assert graph.inside[graph.inside[by_name["scratch"]]] == by_name["clusters/prod"]
    mermaid = read_mermaid(run("graph", "--all", "--format", "mermaid").out)
    assert (mermaid.labels, mermaid.arrows) == (graph.labels, graph.arrows)
    stacks = {stack["name"]: stack for stack in run("graph", "--all", "--json").json["stacks"]}
    assert stacks["clusters/prod"]["dependencies"] == ["network/prod"]
    assert stacks["apps/prod"]["note"] == "not created yet"
    ran = run("graph", "--all", "--format", "html", "--output", "all.html")
    assert (ran.code, ran.out) == (0, "")
    assert "2 resources in 3 stacks" in (applied_projects / "all.html").read_text()


def test_graph_all_filter_draws_the_selected_stacks(run: Any, applied_projects: Path) -> None:
    graph = read_dot(run("graph", "--all", "--filter", "...clusters").out)
    names = [label.split("\n")[0] for label in graph.labels.values()]
    assert "network/prod" not in names
    assert len(graph.arrows) == 1
    assert run("graph", "--all", "--most", "1").out.count("subgraph") == 4


def test_graph_all_draws_the_others_if_a_state_is_unreadable(
    run: Any, applied_projects: Path
) -> None:
    (applied_projects / "state/.pulumi/stacks/network/prod.json").write_text("{")
    ran = run("graph", "--all")
    assert ran.code == 1
    assert ran.err.startswith("error: network/prod: ")
    labels = read_dot(ran.out).labels.values()
    assert "network/prod\ncould not be read" in labels
    assert any(label.startswith("scratch\n") for label in labels)


def test_graph_all_draws_the_others_if_a_project_is_invalid(
    run: Any, applied_projects: Path
) -> None:
    (applied_projects / "apps/Pulumi.yaml").write_text("name: apps\nruntime: go\n")
    ran = run("graph", "--all")
    assert ran.code == 1
    assert ran.err.startswith("error: apps/Pulumi.yaml:2:10: ")
    assert len(read_dot(ran.out).arrows) == 1


def test_graph_all_draws_a_dependency_cycle(run: Any, applied_projects: Path) -> None:
    with (applied_projects / "stacks.yaml").open("a") as file:
        file.write("    after: [apps/prod]\n")
    for form in ("dot", "mermaid", "html"):
        assert run("graph", "--all", "--format", form).code == 0
    assert len(read_dot(run("graph", "--all").out).arrows) == 3


def test_graph_refuses_contradicting_flags(run: Any, applied_projects: Path) -> None:
    for flags in (["--all", "--plan", "plan.json"], ["--filter", "network"]):
        ran = run("graph", *flags)
        assert (ran.code, ran.out) == (2, "")
    ran = run("graph", "--all", "--filter", "none")
    assert (ran.code, ran.out) == (1, "")
