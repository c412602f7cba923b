"""Test `--filter`: by name, by folder, and by the changes of a git diff."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.stacks.project_folders import build_topology, write_project, write_three_projects

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.multi_stack import MultiStackError, StackOrder, find_workspace, select_stacks

ALL = {"network/prod", "clusters/prod", "apps/prod"}


def select_names(*filters: str) -> set[str]:
    order = StackOrder.from_workspace(
        find_workspace(Path.cwd(), os.environ, Diagnostics()), Diagnostics()
    )
    return select_stacks(order, filters)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ALL),
        (["network/prod"], {"network/prod"}),
        (["network"], {"network/prod"}),
        (["prod"], ALL),
        (["c*"], {"clusters/prod"}),
        (["*/prod"], ALL),
        (["network", "apps"], {"network/prod", "apps/prod"}),
        (["...clusters"], {"clusters/prod", "apps/prod"}),
        (["...network/prod", "apps"], ALL),
        (["./network"], {"network/prod"}),
        (["./network/"], {"network/prod"}),
        (["."], ALL),
        (["./*s"], {"clusters/prod", "apps/prod"}),
        (["../*/network"], {"network/prod"}),
        (["./apps/../network"], {"network/prod"}),
        ([".../clusters/"], None),
        (["..../clusters"], {"clusters/prod", "apps/prod"}),
        (["none"], None),
        ([""], None),
        (["..."], None),
        (["./none"], None),
        (["./net"], None),
        (["[main"], None),
        (["[main] "], None),
        (["network", "none"], None),
    ],
)
def test_names_and_folders(root: Path, filters: list[str], expected: set[str] | None) -> None:
    write_three_projects(root)
    if expected is None:
        with pytest.raises(
            MultiStackError, match=r"matches none of the stacks|is not a valid filter"
        ):
            select_names(*filters)
    else:
        assert select_names(*filters) == expected


def test_a_folder_whose_name_has_signs_of_patterns(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = root / "a[b]c"
    odd.mkdir()
    write_three_projects(odd)
    monkeypatch.chdir(odd)
    assert select_names("./net*") == {"network/prod"}
    assert select_names("./network") == {"network/prod"}


def test_a_folder_by_another_way(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_three_projects(root)
    (root.parent / "link").symlink_to(root)
    monkeypatch.chdir(root.parent / "link")
    assert select_names(str(root / "network")) == {"network/prod"}
    assert select_names(f"{root}/net*") == {"network/prod"}


Git = Callable[..., str]


@pytest.fixture
def git(root: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Return a function that runs git in a repository of three stacks, on branch `change`."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def run(*arguments: str) -> str:
        named = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]
        done = subprocess.run(
            ["git", *named, *arguments], cwd=root, check=True, capture_output=True, text=True
        )
        return done.stdout

    write_three_projects(root)
    run("init", "--quiet", "--initial-branch", "main")
    run("add", "--all")
    run("commit", "--quiet", "--message", "all")
    run("checkout", "--quiet", "-b", "change")
    return run


def change(git: Git, path: Path, text: str = "changed: true\n") -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    git("add", "--all")
    git("commit", "--quiet", "--message", "change")


def test_nothing_changed(git: Git) -> None:
    assert select_names("[main]") == set()
    assert select_names("...[main]", "[HEAD]") == set()
    assert select_names("[main...change]") == set()


def test_what_a_branch_changed(git: Git, root: Path) -> None:
    change(git, root / "clusters/deep/notes.txt")
    assert select_names("[main]") == {"clusters/prod"}
    assert select_names("...[main]") == {"clusters/prod", "apps/prod"}
    assert select_names("[main...change]") == select_names("[main...]") == {"clusters/prod"}
    assert select_names("[HEAD]") == set()
    assert select_names("[HEAD~1]", "network") == {"clusters/prod", "network/prod"}


def test_no_tag_hides_a_change(git: Git, root: Path) -> None:
    change(git, root / "clusters/notes.txt")
    git("tag", "main")
    assert select_names("[main]") == select_names("[main...change]") == {"clusters/prod"}


def test_what_the_base_got_meanwhile_is_not_of_the_branch(git: Git, root: Path) -> None:
    change(git, root / "clusters/notes.txt")
    git("checkout", "--quiet", "main")
    change(git, root / "network/notes.txt")
    git("checkout", "--quiet", "change")
    assert select_names("[main]") == select_names("[main...change]") == {"clusters/prod"}


def test_what_is_not_committed_counts(git: Git, root: Path) -> None:
    (root / "network/topology.yaml").write_text(build_topology("other"))
    (root / "apps/new file \N{SNOWMAN}.txt").write_text("")
    assert select_names("[main]") == {"network/prod", "apps/prod"}
    assert select_names("[main...change]") == set(), "two commits are compared"
    (root / ".gitignore").write_text("*.txt\n")
    assert select_names("[main]") == {"network/prod"}


def test_what_goes_counts(git: Git, root: Path) -> None:
    (root / "clusters/old.txt").write_text("")
    git("add", "--all")
    git("commit", "--quiet", "--message", "old")
    git("branch", "--force", "main")
    (root / "clusters/old.txt").unlink()
    assert select_names("[main]") == {"clusters/prod"}


def test_the_settings_of_one_stack_touch_no_other(git: Git, root: Path) -> None:
    write_project(root, "network", stacks=("dev", "prod"))
    stacks_yaml = (root / "stacks.yaml").read_text()
    git("add", "--all")
    git("commit", "--quiet", "--message", "dev")
    git("branch", "--force", "main")
    assert stacks_yaml == (root / "stacks.yaml").read_text()
    change(git, root / "network/Pulumi.dev.yaml", "config: {network:a: b}\n")
    assert select_names("[main]") == {"network/dev"}
    change(git, root / "network/Pulumi.yaml", (root / "network/Pulumi.yaml").read_text() + "#\n")
    assert select_names("[main]") == {"network/dev", "network/prod"}


def test_the_settings_in_a_folder_elsewhere(git: Git, root: Path) -> None:
    project = root / "network/Pulumi.yaml"
    project.write_text(project.read_text() + "stackConfigDir: ../settings\n")
    (root / "settings").mkdir()
    (root / "settings/Pulumi.prod.yaml").write_text("config: {}\n")
    git("add", "--all")
    git("commit", "--quiet", "--message", "settings")
    git("branch", "--force", "main")
    change(git, root / "settings/Pulumi.prod.yaml", "config: {network:a: b}\n")
    assert select_names("[main]") == {"network/prod"}


def test_what_topologies_include_touches_them(git: Git, root: Path) -> None:
    part = build_topology("shared")
    (root / "parts").mkdir()
    (root / "parts/inner.yaml").write_text(part)
    (root / "parts/outer.yaml").write_text("include: [inner.yaml]\n")
    (root / "network/common.yaml").write_text(build_topology("common"))
    (root / "network/topology.yaml").write_text("include: [../parts/outer.yaml]\noutputs: {a: 1}\n")
    (root / "clusters/topology.yaml").write_text("include: [../network/common.yaml]\n")
    git("add", "--all")
    git("commit", "--quiet", "--message", "parts")
    git("branch", "--force", "main")
    change(git, root / "parts/inner.yaml", part + "# changed\n")
    assert select_names("[main]") == {"network/prod"}, "though only its part names the file"
    git("branch", "--force", "main")
    change(git, root / "network/common.yaml", build_topology("common") + "# changed\n")
    assert select_names("[main]") == {"network/prod", "clusters/prod"}


def test_what_modules_are_of_touches_who_includes_them(git: Git, root: Path) -> None:
    include = "include:\n  - {module: ../modules/site.yaml, name: west}\n"
    (root / "modules").mkdir()
    (root / "modules/site.yaml").write_text("inputs: {}\n" + build_topology("inside"))
    (root / "network/topology.yaml").write_text(include)
    git("add", "--all")
    git("commit", "--quiet", "--message", "module")
    git("branch", "--force", "main")
    change(git, root / "modules/site.yaml", "inputs: {}\n" + build_topology("other"))
    assert select_names("[main]") == {"network/prod"}


def test_what_programs_import_touches_them(git: Git, root: Path) -> None:
    (root / "apps/__main__.py").write_text("import sites\n")
    change(git, root / "sites.py", "")
    git("branch", "--force", "main")
    change(git, root / "sites.py", "changed = True\n")
    assert select_names("[main]") == {"apps/prod"}
    git("branch", "--force", "main")
    change(git, root / "sites/__init__.py", "changed = True\n")
    assert select_names("[main]") == {"apps/prod"}


def test_a_change_elsewhere_touches_none_and_of_the_file_all(git: Git, root: Path) -> None:
    change(git, root / "README.md", "read me\n")
    assert select_names("[main]") == set()
    change(git, root / "stacks.yaml", (root / "stacks.yaml").read_text() + "# more\n")
    assert select_names("[main]") == ALL


def test_a_project_around_others(git: Git, root: Path) -> None:
    (root / "Pulumi.yaml").write_text("name: around\nruntime: python\n")
    (root / "Pulumi.prod.yaml").write_text("config: {}\n")
    (root / "stacks.yaml").write_text("stacks: [{folder: .}, {folder: '*'}]\n")
    git("add", "--all")
    git("commit", "--quiet", "--message", "around")
    git("branch", "--force", "main")
    change(git, root / "network/notes.txt")
    assert select_names("[main]") == {"network/prod"}
    change(git, root / "notes.txt")
    assert select_names("[main]") == {"network/prod", "around/prod"}


def test_a_repository_above(git: Git, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = root / "below"
    below.mkdir()
    write_three_projects(below)
    git("add", "--all")
    git("commit", "--quiet", "--message", "below")
    git("branch", "--force", "main")
    monkeypatch.chdir(below)
    (below / "network/new.txt").write_text("")
    change(git, root / "apps/notes.txt")
    assert select_names("[main]") == {"network/prod"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[none]", "git cannot list the changed files: .*none"),
        ("[--output=x]", "is not a revision of git"),
        ("[-p]", "is not a revision of git"),
        ("[]", "'' is not a revision of git"),
        ("[...main]", "'' is not a revision of git"),
        ("[a b]", "'a b' is not a revision of git"),
        ("[main...--x]", "'--x' is not a revision of git"),
        ("[main...none]", "git cannot list the changed"),
        ("[main..change]", "git cannot list the changed"),
    ],
)
def test_what_is_no_diff(git: Git, root: Path, text: str, message: str) -> None:
    with pytest.raises(MultiStackError, match=message):
        select_names(text)
    assert not (root / "x").exists()


def test_a_branch_of_any_name(git: Git, root: Path) -> None:
    git("branch", "feature/\N{SNOWMAN}#1")
    change(git, root / "apps/notes.txt")
    assert select_names("[feature/\N{SNOWMAN}#1]") == {"apps/prod"}


def test_no_repository_and_no_git(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_three_projects(root)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    with pytest.raises(MultiStackError, match="git cannot list the changed"):
        select_names("[main]")
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(MultiStackError, match="cannot run git"):
        select_names("[main]")
