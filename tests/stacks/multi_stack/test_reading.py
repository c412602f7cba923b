"""Test which stacks a workspace has: those of stacks.yaml, else those of every project."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stacks.project_folders import write_project, write_three_projects

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.multi_stack import (
    MultiStackError,
    MultiStackWorkspace,
    StackOrder,
    check_workspace,
    find_workspace,
    read_workspace,
    select_by_name,
)


def read_stacks(folder: Path) -> tuple[MultiStackWorkspace, list[str]]:
    """Return the workspace, and the first line of each problem."""
    problems = Diagnostics()
    workspace = find_workspace(folder, os.environ, problems)
    return workspace, [str(problem).splitlines()[0] for problem in problems]


def list_problems(root: Path, text: str) -> list[str]:
    (root / "stacks.yaml").write_text(text)
    return read_stacks(root)[1]


def test_the_file_upwards_names_them(root: Path) -> None:
    write_three_projects(root)
    workspace = read_workspace(root / "network", os.environ)
    assert list(workspace.stacks) == ["apps/prod", "clusters/prod", "network/prod"]
    assert (workspace.root, workspace.file) == (root, root / "stacks.yaml")
    position = workspace.stacks["clusters/prod"].position
    assert (position.file, position.line, position.column) == ("stacks.yaml", 3, 13)


def test_without_the_file_every_stack_with_settings_below(root: Path) -> None:
    write_project(root, "teams/one", stacks=("dev", "prod"))
    write_project(root, "teams/two", stacks=())
    for passed_over in (".hidden", "node_modules", "venv"):
        write_project(root, f"{passed_over}/three")
    workspace = read_workspace(root, os.environ)
    assert list(workspace.stacks) == ["one/dev", "one/prod"]
    assert workspace.stacks["one/dev"].position.file == "teams/one/Pulumi.dev.yaml"


def test_a_tree_may_have_projects_of_other_languages_beside(root: Path) -> None:
    write_three_projects(root)
    (root / "stacks.yaml").unlink(missing_ok=True)
    other = root / "website"
    other.mkdir()
    (other / "Pulumi.yaml").write_text("name: website\nruntime: nodejs\n")
    (other / "Pulumi.prod.yaml").write_text("")
    workspace, problems = read_stacks(root)
    assert problems == []
    assert "website/prod" not in workspace.stacks
    (named,) = list_problems(root, "stacks: [{folder: website, stack: prod}]\n")
    assert named.endswith("gpuform does not support the runtime 'nodejs'")


def test_no_stack_anywhere(root: Path) -> None:
    with pytest.raises(MultiStackError, match=r"no stacks.yaml, and no project"):
        read_workspace(root, os.environ)


def test_one_name_leaves_those_of_it(root: Path) -> None:
    write_project(root, "one", stacks=("dev", "prod"))
    write_project(root, "two", stacks=("prod",))
    workspace = read_workspace(root, os.environ)
    assert select_by_name(workspace, "prod") == ["one/prod", "two/prod"]
    assert select_by_name(workspace, "one/dev") == ["one/dev"]
    with pytest.raises(MultiStackError, match="no project has a stack named 'none'"):
        select_by_name(workspace, "none")


def test_the_files_own_folder_may_be_a_project(root: Path) -> None:
    write_project(root.parent, "root")
    write_project(root, "inner")
    for own in (".", "./"):
        (root / "stacks.yaml").write_text(f"stacks: [{{folder: {own}}}, {{folder: ./inner}}]")
        workspace, problems = read_stacks(root)
        assert (list(workspace.stacks), problems) == (["root/prod", "inner/prod"], [])


def test_stars_stand_for_any_text(root: Path) -> None:
    for name in ("west", "east", "north", ".hidden"):
        write_project(root, f"clusters/{name}")
    (root / "clusters/readme").mkdir()
    (root / "stacks.yaml").write_text("stacks: [{folder: clusters/*st, stack: prod}]")
    assert list(read_stacks(root)[0].stacks) == ["east/prod", "west/prod"]
    (root / "stacks.yaml").write_text("stacks: [{folder: '**'}]")
    assert sorted(read_stacks(root)[0].stacks) == ["east/prod", "north/prod", "west/prod"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("folder: none", "1:19: none does not exist"),
        ("folder: state", "1:19: state has no Pulumi.yaml"),
        ("folder: /etc", "1:19: /etc is not a folder below the file's folder"),
        (
            "folder: network/../../x",
            "1:19: network/../../x is not a folder below the file's folder",
        ),
        ("folder: a**", "1:19: 'a**' is not a valid pattern of folders: "),
        ('folder: "a\\0b"', "1:19: "),
        ("folder: bare", "1:19: bare has no stack"),
        ("folder: network, stack: a/b", "1:35: 'a/b' is not a valid stack name"),
        ("folder: network, stack: ../x", "1:35: '../x' is not a valid stack name"),
        ("folder: network, after: [none/prod]", "1:36: 'none/prod' in `after` is not one of the"),
        ("folder: network, after: [prod]", "1:36: 'prod' in `after` is not one of the stacks"),
        ("folder: ''", "1:19: stacks[0].folder: "),
        ("folders: network", "1:11: stacks[0].folders: is not known"),
        (
            "folder: network}, {folder: n*k",
            ("1:38: network/prod is listed twice: also at stacks.yaml"),
        ),
    ],
)
def test_what_is_wrong_with_an_entry(root: Path, entry: str, message: str) -> None:
    write_project(root, "network")
    write_project(root, "bare", stacks=())
    problems = list_problems(root, f"stacks: [{{{entry}}}]")
    assert any(problem.startswith(f"stacks.yaml:{message}") for problem in problems), problems


@pytest.mark.parametrize("text", ["", "[]", "stacks: []", "stacks: {}", "stacks: [", "\0", "- a\n"])
def test_what_is_no_file_of_stacks(root: Path, text: str) -> None:
    (root / "stacks.yaml").write_text(text)
    workspace, problems = read_stacks(root)
    assert not workspace.stacks
    assert problems
    assert problems[0].startswith("stacks.yaml:")
    with pytest.raises(MultiStackError, match="cannot load the stacks"):
        read_workspace(root, os.environ)


def test_projects_with_one_name(root: Path) -> None:
    write_project(root, "a/same")
    write_project(root, "b/same")
    (problem,) = read_stacks(root)[1]
    assert "two stacks have the name same/prod: of a/same/Pulumi.yaml and of b/same" in problem


def test_a_broken_project_is_one_problem_among_others(root: Path) -> None:
    write_three_projects(root)
    (root / "network/Pulumi.yaml").write_text("runtime: python\n")
    (root / "apps/Pulumi.yaml").write_text("name: apps\nruntime: nodejs\n")
    workspace, problems = read_stacks(root)
    assert problems == [
        "apps/Pulumi.yaml:2:10: gpuform does not support the runtime 'nodejs'",
        "network/Pulumi.yaml:1:1: name is missing",
    ]
    assert list(workspace.stacks) == ["clusters/prod"]
    assert not workspace.is_complete
    (root / "network/Pulumi.yaml").write_bytes(b"\xff")
    assert any("is not UTF-8 text" in problem for problem in read_stacks(root)[1])


def test_what_comes_after_a_broken_project_is_not_told_twice(root: Path) -> None:
    write_project(root, "one")
    write_project(root, "two")
    (root / "one/Pulumi.yaml").write_text("name: [")
    problems = list_problems(root, "stacks: [{folder: one}, {folder: two, after: [one/prod]}]")
    assert len(problems) == 1
    assert problems[0].startswith("one/Pulumi.yaml:1:")


@pytest.mark.parametrize(
    "gates",
    [
        "{busy: {not_busy: {above: 0.1}}}",
        "{Big: {protected: ['*']}}",
        "{two: {protected: ['*'], allowed_regions: [a]}}",
    ],
)
def test_gates_over_all_are_checked_with_the_file(root: Path, gates: str) -> None:
    write_project(root, "network")
    (problem,) = list_problems(root, f"stacks: [{{folder: network}}]\ngates: {gates}\n")
    assert problem.startswith("stacks.yaml:2:")


def test_one_folder_in_several_spellings_is_one_backend(root: Path) -> None:
    write_project(root, "one", backend="file://../state")
    write_project(root, "two", backend=f"file://{root}/state/")
    write_project(root, "three", backend="file://../other")
    (root / "link").symlink_to(root / "state")
    write_project(root, "four", backend="file://../link")
    workspace = read_workspace(root, os.environ)
    backend = workspace.stacks["one/prod"].backend
    for name in ("two", "four"):
        assert workspace.find(backend, f"organization/{name}/prod") is not None
    assert workspace.find(backend, "organization/three/prod") is None
    assert workspace.find(backend, "organization/none/prod") is None


texts = st.sampled_from(
    [
        "network",
        "*",
        "**",
        ".",
        "..",
        "/",
        "~",
        "",
        "net*",
        "prod",
        "network/prod",
        "[",
        "a\\b",
        "\n",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
entries = st.fixed_dictionaries(
    {"folder": texts | values},
    optional={"stack": texts | values, "after": st.lists(texts, max_size=2) | values},
)
documents = values | st.fixed_dictionaries(
    {"stacks": st.lists(entries, max_size=3) | values}, optional={"gates": values}
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents)
def test_whatever_the_file_says_it_is_stacks_or_problems(root: Path, document: object) -> None:
    write_project(root, "network")
    (root / "stacks.yaml").write_text(json.dumps(document))
    problems = Diagnostics()
    order = StackOrder.from_workspace(find_workspace(root, os.environ, problems), problems)
    check_workspace(order, list(order.dependencies), problems)
    assert order.dependencies or problems
    for problem in problems:
        assert problem.position.file.startswith(("stacks.yaml", "network/"))
