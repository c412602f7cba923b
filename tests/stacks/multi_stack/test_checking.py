"""Test the problems of several stacks that their files alone show."""

import os
from pathlib import Path

import pytest
from support.stacks.project_folders import (
    CLUSTERS,
    NETWORK,
    build_topology,
    write_project,
    write_three_projects,
)

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.multi_stack import StackOrder, check_workspace, find_workspace


def list_problems(names: list[str] | None = None) -> list[str]:
    diagnostics = Diagnostics()
    order = StackOrder.from_workspace(
        find_workspace(Path.cwd(), os.environ, diagnostics), Diagnostics()
    )
    check_workspace(order, list(order.dependencies) if names is None else names, diagnostics)
    return [str(problem).replace("\n ", ":") for problem in diagnostics]


def test_nothing(root: Path) -> None:
    write_three_projects(root)
    assert list_problems() == []


def test_an_output_that_the_other_topology_has_not(root: Path) -> None:
    write_three_projects(root)
    (root / "network/topology.yaml").write_text(build_topology(outputs={"volumes": "1"}))
    assert list_problems() == [
        (
            "clusters/topology.yaml:10:13: the stack of stack_references.network has no output "
            "volume: did you mean volumes?"
        )
    ]


def test_an_output_that_a_program_reads_and_the_other_has_not(root: Path) -> None:
    write_three_projects(root)
    (root / "clusters/topology.yaml").write_text(CLUSTERS.replace("  base:", "  bases:"))
    assert list_problems() == [
        (
            "apps/__main__.py:4:23: the stack organization/clusters/prod has no output base: "
            "did you mean bases?"
        )
    ]
    (root / "clusters/topology.yaml").write_text(CLUSTERS.replace("  base:", "  xyz:"))
    assert list_problems()[0].endswith(": its outputs are xyz")
    (root / "clusters/topology.yaml").write_text(build_topology("scratch"))
    assert list_problems()[0].endswith(": it has no outputs")


def test_an_output_that_a_program_has_not(root: Path) -> None:
    write_three_projects(root)
    (root / "network/topology.yaml").unlink()
    (root / "network/__main__.py").write_text("import pulumi\npulumi.export('volumes', 1)\n")
    assert len(list_problems()) == 1
    (root / "network/__main__.py").write_text("import company\ncompany.exports()\n")
    assert list_problems() == [], "nobody knows"


def test_what_is_broken_is_told_once_and_no_output_is_missed(root: Path) -> None:
    write_three_projects(root)
    (root / "network/topology.yaml").write_text("shared_volumes: [\n")
    (problem,) = list_problems()
    assert problem.startswith("network/topology.yaml:2:1: ")
    (root / "network/topology.yaml").write_text(NETWORK + "clutsers: {}\n")
    (problem,) = list_problems()
    assert "clutsers is not known" in problem


def test_every_stack_is_checked_with_its_own_settings(root: Path) -> None:
    file_text = build_topology() + "config: {gpus: {type: integer}}\n"
    write_project(root, "one", {"topology.yaml": file_text}, stacks=("dev", "prod"))
    (root / "one/Pulumi.prod.yaml").write_text("config:\n  one:gpus: many\n")
    (problem,) = list_problems()
    assert "gpus" in problem
    assert list_problems(["one/dev"]) == []


@pytest.mark.parametrize("text", ["config: [", "config: 5", "- 1"])
def test_settings_that_cannot_be_used(root: Path, text: str) -> None:
    write_three_projects(root)
    (root / "clusters/Pulumi.prod.yaml").write_text(text)
    (problem,) = list_problems()
    assert problem.startswith("clusters/Pulumi.prod.yaml:1:")


def test_a_project_without_a_program(root: Path) -> None:
    path = write_project(root, "one") / "Pulumi.yaml"
    expected_problem = (
        "one/Pulumi.yaml:1:1: no program: one has neither topology.yaml nor __main__.py"
    )
    assert [problem.rpartition(": ")[0] for problem in list_problems()] == [expected_problem]
    path.write_text(path.read_text() + "main: src\n")
    assert "no program: one/src does not exist" in list_problems()[0]


def test_the_program_is_what_a_run_takes_for_it(root: Path) -> None:
    write_three_projects(root)
    broken = "clutsers: {}\n"
    (root / "apps/topology.yaml").write_text(broken)
    assert list_problems() == [], "the Python program is run, and this file is not"
    (root / "apps/__main__.py").write_text("from gpuform.stacks import run\nrun()\n")
    assert list_problems()[0].startswith("apps/topology.yaml:1:1: clutsers is not known")
    (root / "apps/other.yaml").write_text(build_topology(outputs={"a": "1"}))
    (root / "apps/__main__.py").write_text("from gpuform.stacks import run\nrun('other.yaml')\n")
    assert list_problems() == []


def test_the_outputs_of_a_program_with_a_topology_inside_are_not_known(root: Path) -> None:
    write_three_projects(root)
    file_text = "import os\nfrom gpuform.stacks import run\nos.getcwd()\nrun('topology.yaml')\n"
    (root / "network/__main__.py").write_text(file_text)
    assert list_problems() == []


def test_a_name_beside_those_with_settings_is_probably_misspelt(root: Path) -> None:
    write_project(root, "one", {"topology.yaml": NETWORK})
    (root / "stacks.yaml").write_text("stacks: [{folder: one, stack: prd}]")
    assert list_problems() == [
        (
            "stacks.yaml:1:19: stack one/prd has no settings file Pulumi.prd.yaml: did you "
            "mean prod?; to create it, run `gpuform stack init --all`"
        )
    ]
    (root / "stacks.yaml").write_text("stacks: [{folder: one, stack: west}]")
    assert ": the settings files are prod; " in list_problems()[0]


def test_where_no_stack_has_settings_none_is_made_yet(root: Path) -> None:
    write_project(root, "one", {"topology.yaml": NETWORK}, stacks=())
    (root / "stacks.yaml").write_text("stacks: [{folder: one, stack: prod}]")
    assert list_problems() == []


def test_the_gates_and_prices_of_each_project_and_of_all(root: Path) -> None:
    write_three_projects(root)
    (root / "network/gates.yaml").write_text("gates: {Big: {protected: ['*']}}\n")
    (root / "network/prices.yaml").write_text("currency: 5\n")
    (root / "clusters/gates.yaml").write_text("gates: []\n")
    limits = "gates:\n" + "".join(
        f"  {c.lower()}: {{max_hourly_cost: {{amount: 1, currency: {c}}}}}\n"
        for c in ("USD", "EUR")
    )
    with (root / "stacks.yaml").open("a") as file:
        file.write(limits)
    positions = [problem.split(": ")[0] for problem in list_problems()]
    assert positions == [
        "clusters/gates.yaml:1:8",
        "network/gates.yaml:1:9",
        "network/prices.yaml:1:11",
        "stacks.yaml:7:48",
    ]
    assert [problem.split(":")[0] for problem in list_problems(["clusters/prod"])] == [
        "clusters/gates.yaml",
        "stacks.yaml",
    ], "what is over all, always"


def test_what_is_chosen_alone_is_checked(root: Path) -> None:
    write_three_projects(root)
    (root / "network/topology.yaml").write_text(build_topology("data") + "clutsers: {}\n")
    (root / "apps/__main__.py").write_text("import pulumi\npulumi.StackReference('none')\n")
    assert list_problems(["clusters/prod"]) == [], "what a broken topology gives out, nobody knows"
    assert len(list_problems(["network/prod"])) == 1
    assert len(list_problems(["apps/prod"])) == 1
    assert len(list_problems()) == 2
