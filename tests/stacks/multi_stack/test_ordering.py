"""Test the order of stacks."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stacks.project_folders import build_topology, write_project, write_three_projects

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.multi_stack import (
    StackOrder,
    find_cycles,
    find_dependants,
    read_workspace,
    sort_stacks,
)

Needs = dict[str, list[str]]


@st.composite
def draw_dependencies(draw: st.DrawFn) -> Needs:
    names = [str(number) for number in range(draw(st.integers(0, 7)))]
    others = st.lists(st.sampled_from([*names, "outside"]), max_size=4, unique=True)
    return {name: draw(others) for name in names}


@st.composite
def draw_acyclic_dependencies(draw: st.DrawFn) -> Needs:
    names = draw(st.permutations([str(number) for number in range(draw(st.integers(1, 9)))]))
    dependencies = {
        name: draw(st.lists(st.sampled_from(names[:at]), unique=True)) if at else []
        for at, name in enumerate(names)
    }
    return {name: dependencies[name] for name in draw(st.permutations(names))}


def is_reached(needs: Needs, first: str, last: str) -> bool:
    """Return whether `first` needs `last`, directly or indirectly, by an exhaustive search."""
    reached: set[str] = set()
    rest = list(needs[first])
    while rest:
        name = rest.pop()
        if name not in reached:
            reached.add(name)
            rest += needs.get(name, [])
    return last in reached


@given(draw_acyclic_dependencies())
def test_everything_comes_after_its_needs(needs: Needs) -> None:
    sorted_names = sort_stacks(needs)
    assert sorted(sorted_names) == sorted(needs)
    assert find_cycles(needs) == []
    for at, name in enumerate(sorted_names):
        assert set(needs[name]) <= set(sorted_names[:at])


@given(draw_dependencies())
def test_there_is_a_circle_exactly_where_one_is_found(needs: Needs) -> None:
    cycles = find_cycles(needs)
    assert bool(cycles) == any(is_reached(needs, name, name) for name in needs)
    members = [name for cycle in cycles for name in cycle[:-1]]
    assert len(members) == len(set(members)), "no member in two"
    for cycle in cycles:
        assert cycle[0] == cycle[-1]
        for dependant, other in itertools.pairwise(cycle):
            assert other in needs[dependant]


@given(draw_dependencies())
def test_an_order_has_each_once_whatever_circles_there_are(needs: Needs) -> None:
    assert sorted(sort_stacks(needs)) == sorted(needs)


@given(draw_dependencies(), st.data())
def test_dependants_are_all_that_need_one(needs: Needs, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(list(needs)))) if needs else set()
    expected = {n for n in needs if n in chosen or any(is_reached(needs, n, c) for c in chosen)}
    assert find_dependants(set(chosen), needs) == expected


def test_a_long_chain() -> None:
    needs = {str(at): [str(at + 1)] for at in range(5000)}
    assert sort_stacks(needs)[0] == "4999"
    needs["5000"] = ["0"]
    assert len(find_cycles(needs)) == 1


def read_order(root: Path) -> tuple[StackOrder, list[str]]:
    problems = Diagnostics()
    order = StackOrder.from_workspace(read_workspace(root, os.environ), problems)
    return order, [str(problem).splitlines()[0] for problem in problems]


def test_references_make_the_order(root: Path) -> None:
    write_three_projects(root)
    order, problems = read_order(root)
    assert problems == []
    assert sort_stacks(order.dependencies) == [
        "network/prod",
        "clusters/prod",
        "apps/prod",
    ]
    assert str(order.dependencies["clusters/prod"]["network/prod"]) == "clusters/topology.yaml:2:12"
    assert str(order.dependencies["apps/prod"]["clusters/prod"]) == "apps/__main__.py:3:12"
    assert order.list_dependants(["clusters/prod"]) == {"clusters/prod", "apps/prod"}


def test_after_makes_the_order_too(root: Path) -> None:
    for name in ("one", "two"):
        write_project(root, name)
    file_text = "stacks: [{folder: one, after: [two/prod, one/prod]}, {folder: two}]"
    (root / "stacks.yaml").write_text(file_text)
    order, problems = read_order(root)
    assert problems == []
    assert {name: list(needs) for name, needs in order.dependencies.items()} == {
        "one/prod": ["two/prod"],
        "two/prod": [],
    }


@pytest.mark.parametrize("way", ["topology", "after"])
def test_a_circle_is_told_where_it_is_written(root: Path, way: str) -> None:
    write_three_projects(root)
    if way == "topology":
        reads = {"apps": "organization/apps/prod"}
        (root / "network/topology.yaml").write_text(build_topology(reads=reads))
    else:
        file_text = (root / "stacks.yaml").read_text() + "    after: [apps/prod]\n"
        (root / "stacks.yaml").write_text(file_text)
    (problem,) = read_order(root)[1]
    assert problem == (
        "apps/__main__.py:3:12: these stacks depend on each other in a cycle: apps/prod -> "
        "clusters/prod -> network/prod -> apps/prod"
    )


def test_a_stack_may_read_itself(root: Path) -> None:
    reads = {"own": "prod", "same": "organization/one/prod"}
    write_project(root, "one", {"topology.yaml": build_topology(reads=reads)})
    order, problems = read_order(root)
    assert (problems, order.dependencies) == ([], {"one/prod": {}})


def test_a_stack_that_is_nowhere(root: Path) -> None:
    reads = {"a": "organization/none/prod", "b": "dev", "c": "acme/one/prod", "d": "a/b/c/d"}
    write_project(root, "one", {"topology.yaml": build_topology(reads=reads)})
    assert read_order(root)[1] == [
        "one/topology.yaml:2:6: one/prod reads none/prod, which does not exist",
        "one/topology.yaml:3:6: one/prod reads one/dev, which does not exist",
        "one/topology.yaml:4:6: 'acme/one/prod' is not the name of a stack in this backend",
        "one/topology.yaml:5:6: 'a/b/c/d' is not the name of a stack in this backend",
    ]


def test_a_stack_of_the_backend_that_is_not_among_them(root: Path) -> None:
    reads = {"a": "organization/elsewhere/prod"}
    write_project(root, "one", {"topology.yaml": build_topology(reads=reads)})
    path = root / "state/.pulumi/stacks/elsewhere/prod.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    (root / "state/.pulumi/meta.yaml").write_text("version: 1\n")
    order, problems = read_order(root)
    assert (problems, order.dependencies) == ([], {"one/prod": {}})


def test_a_reference_into_another_backend(root: Path) -> None:
    write_three_projects(root)
    write_project(root, "network", backend="s3://states?awssdk=v2&key=secret")
    problems = read_order(root)[1]
    assert problems == [
        (
            "clusters/topology.yaml:2:12: clusters/prod reads network/prod, which is in "
            f"another backend: s3://states, not file://{root}/state"
        )
    ]


def test_a_bucket_is_not_asked(root: Path) -> None:
    reads = {"a": "organization/elsewhere/prod"}
    files = {"topology.yaml": build_topology(reads=reads)}
    write_project(root, "one", files, backend="s3://no-such-bucket")
    assert read_order(root)[1] == []


def test_a_backend_without_its_folder(root: Path) -> None:
    reads = {"a": "organization/elsewhere/prod"}
    write_project(
        root, "one", {"topology.yaml": build_topology(reads=reads)}, backend="file://./none"
    )
    (problem,) = read_order(root)[1]
    assert problem.startswith("one/topology.yaml:2:6: the folder /")
    assert "/one/none of the backend file:///" in problem
    assert problem.endswith("/one/none does not exist")


def test_a_name_from_the_configuration(root: Path) -> None:
    file_text = build_topology(reads={"net": '"{{ config.net }}"'}) + "config: {net: {}}\n"
    write_project(root, "one", {"topology.yaml": file_text})
    write_project(root, "net")
    order, problems = read_order(root)
    assert (problems, order.dependencies["one/prod"]) == ([], {}), "nobody knows it yet"
    settings = "config:\n  one:net: organization/net/prod\n"
    (root / "one/Pulumi.prod.yaml").write_text(settings)
    assert list(read_order(root)[0].dependencies["one/prod"]) == ["net/prod"]


def test_a_name_from_the_stack_itself(root: Path) -> None:
    file_text = build_topology(reads={"net": '"organization/net/{{ pulumi.stack }}"'})
    write_project(root, "one", {"topology.yaml": file_text}, stacks=("dev", "prod"))
    write_project(root, "net", stacks=("dev", "prod"))
    order, problems = read_order(root)
    assert problems == []
    assert list(order.dependencies["one/dev"]) == ["net/dev"]
    assert list(order.dependencies["one/prod"]) == ["net/prod"]


def test_a_topology_outside_of_its_project(root: Path) -> None:
    file_text = build_topology(reads={"net": '"{{ config.net }}"'}) + "config: {net: {}}\n"
    write_project(root, "one")
    write_project(root, "net")
    project = root / "one/Pulumi.yaml"
    project.write_text(project.read_text() + "main: ../programs\n")
    (root / "one/Pulumi.prod.yaml").write_text("config:\n  one:net: organization/net/prod\n")
    (root / "programs").mkdir()
    (root / "programs/topology.yaml").write_text(file_text)
    order, problems = read_order(root)
    assert (problems, list(order.dependencies["one/prod"])) == ([], ["net/prod"])


def test_a_program_in_a_file_of_its_own(root: Path) -> None:
    file_text = "import pulumi\npulumi.StackReference('organization/net/prod')\n"
    write_project(root, "one", {"infra/run.py": file_text})
    write_project(root, "net")
    project = root / "one/Pulumi.yaml"
    project.write_text(project.read_text() + "main: infra/run.py\n")
    assert list(read_order(root)[0].dependencies["one/prod"]) == ["net/prod"]
    project.write_text(project.read_text().replace("infra/run.py", "none"))
    assert read_order(root)[0].dependencies["one/prod"] == {}


def test_the_order_does_not_depend_on_the_order_of_the_dependencies() -> None:
    dependencies = {
        "apps": ["volumes", "network", "gates"],
        "network": [],
        "gates": [],
        "volumes": [],
    }
    reversed_dependencies = {name: [*reversed(needs)] for name, needs in dependencies.items()}
    expected = ["gates", "network", "volumes", "apps"]
    assert sort_stacks(dependencies) == expected
    assert sort_stacks(reversed_dependencies) == expected
