"""Gates of a git revision: no move, renaming or removal of files by a change hides them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.ci_job import read_commit
from gpuform.stacks.engine.project import find_project
from gpuform.stacks.gates import base_branch
from gpuform.stacks.gates.base_branch import open_project_gates, open_stacks_gates


def write_project(root: Path, folder: str, name: str, gate: str = "") -> Path:
    project = root / folder
    project.mkdir(parents=True, exist_ok=True)
    (project / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
    if gate:
        (project / "gates.yaml").write_text(f"gates: {{{gate}: {{protected: [a]}}}}\n")
    return project


def write_stacks(root: Path, *gates: str, level: str = "mandatory") -> Path:
    lines = [f"  {gate}: {{max_destroyed_gpus: 0, level: {level}}}\n" for gate in gates]
    text = "stacks: [{folder: network, stack: dev}]\n" + "".join(
        ["gates:\n", *lines] if gates else []
    )
    (root / "stacks.yaml").write_text(text)
    return root / "stacks.yaml"


def commit(root: Path) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


def test_a_moved_project_is_judged_by_the_gates_of_its_former_folder(tmp_path: Path) -> None:
    former = write_project(tmp_path, "network", "network", "careful")
    write_project(tmp_path, "other", "other")
    commit(tmp_path)
    (former / "gates.yaml").unlink()
    (former / "Pulumi.yaml").unlink()
    moved = write_project(tmp_path, "other/deeper", "network")

    with open_project_gates(find_project(moved), "HEAD") as base:
        assert [gate.name for gate in base.gates] == ["careful"]
        assert base.weakened == ("gate careful: is removed",)


def test_two_projects_that_change_places_keep_their_gates(tmp_path: Path) -> None:
    write_project(tmp_path, "a", "strict", "careful")
    write_project(tmp_path, "b", "free")
    commit(tmp_path)
    write_project(tmp_path, "a", "free")
    swapped = write_project(tmp_path, "b", "strict")

    with open_project_gates(find_project(swapped), "HEAD") as base:
        assert [gate.name for gate in base.gates] == ["careful"]


def test_a_renamed_project_is_judged_by_the_gates_of_its_folder(tmp_path: Path) -> None:
    write_project(tmp_path, "network", "network", "careful")
    commit(tmp_path)
    renamed = write_project(tmp_path, "network", "net")

    with open_project_gates(find_project(renamed), "HEAD") as base:
        assert [gate.name for gate in base.gates] == ["careful"]


def test_gates_over_all_stacks_that_a_change_removes_or_weakens_are_named(tmp_path: Path) -> None:
    write_stacks(tmp_path, "few", "none")
    commit(tmp_path)
    file = write_stacks(tmp_path, "few", level="advisory")

    with open_stacks_gates(tmp_path, file, "HEAD") as base:
        assert [gate.name for gate in base.gates] == ["few", "none"]
        assert base.weakened == (
            "gate few: is advisory instead of mandatory",
            "gate none: is removed",
        )


def test_a_stack_that_gates_no_longer_count_is_named(tmp_path: Path) -> None:
    file = write_stacks(tmp_path, "few")
    gates = file.read_text().partition("\n")[2]
    file.write_text("stacks: [{folder: network, stack: dev}, {folder: apps}]\n" + gates)
    commit(tmp_path)
    file.write_text("stacks: [{folder: network, stack: prod}, {folder: apps}]\n" + gates)

    with open_stacks_gates(tmp_path, file, "HEAD") as base:
        assert base.weakened == (
            "the gates no longer count the entry of folder network, stack dev: it is removed",
        )


def test_a_change_without_its_stacks_file_is_judged_by_the_gates_of_the_base(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "infra"
    (folder / "network").mkdir(parents=True)
    write_stacks(folder, "few").chmod(0o644)
    commit(tmp_path)
    (folder / "stacks.yaml").unlink()
    # A file above the folder of the job would be the nearest one now.
    above = write_stacks(tmp_path)

    for start in (folder, folder / "network"):
        with open_stacks_gates(start, above, "HEAD") as base:
            assert base.weakened == ("gate few: is removed",)


def test_changed_code_of_a_gate_over_all_stacks_is_named_and_that_of_the_base_is_read(
    tmp_path: Path,
) -> None:
    file = write_stacks(tmp_path)
    file.write_text(file.read_text() + "gates: {own: {python: 'policies:none'}}\n")
    (tmp_path / "policies.py").write_text("def none(plan):\n    yield 'never'\n")
    commit(tmp_path)
    (tmp_path / "policies.py").write_text("def none(plan):\n    return []\n")

    with open_stacks_gates(tmp_path, file, "HEAD") as base:
        assert base.weakened == ("gate own: its rule in policies.py is changed",)
        assert "never" in (base.program / "policies.py").read_text()


def test_changed_code_that_a_gate_imports_is_named(tmp_path: Path) -> None:
    project = write_project(tmp_path, ".", "network")
    (project / "gates.yaml").write_text("gates: {own: {python: 'policies:none'}}\n")
    (project / "policies.py").write_text("from rules.names import is_ours\nimport json\n")
    (project / "rules").mkdir()
    (project / "rules/names.py").write_text("from .words import WORDS\n")
    (project / "rules/__init__.py").touch()
    (project / "rules/words.py").write_text("WORDS = ['prod']\n")
    (project / "__main__.py").write_text("import pulumi\n")
    commit(tmp_path)
    (project / "__main__.py").write_text("import pulumi  # changed\n")
    with open_project_gates(find_project(project), "HEAD") as base:
        assert base.weakened == ()
    (project / "rules/words.py").write_text("WORDS = []\n")

    with open_project_gates(find_project(project), "HEAD") as base:
        assert base.weakened == ("gate own: its rule in rules/words.py is changed",)


def test_no_tag_or_replaced_object_stands_for_the_base_branch(tmp_path: Path) -> None:
    project = write_project(tmp_path, ".", "network", "careful")
    commit(tmp_path)

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("update-ref", "refs/remotes/origin/main", "HEAD")
    (project / "gates.yaml").write_text("gates: {}\n")
    git("-c", "commit.gpgsign=false", "commit", "-qam", "Remove the gate")
    git("tag", "origin/main", "HEAD")
    git("branch", "origin/main", "HEAD")
    for revision in ("origin/main", "origin/main~0", "origin/main^{commit}"):
        with open_project_gates(find_project(project), revision) as base:
            assert base.weakened == ("gate careful: is removed",)

    base_commit = git("rev-parse", "refs/remotes/origin/main")
    git("update-ref", f"refs/heads/{base_commit}", "HEAD")
    with open_project_gates(find_project(project), base_commit) as base:
        assert base.weakened == ("gate careful: is removed",)

    git("replace", base_commit, "HEAD")
    with open_project_gates(find_project(project), "origin/main") as base:
        assert base.weakened == ("gate careful: is removed",)


@pytest.mark.parametrize("is_old_git", [False, True])
def test_a_repository_among_the_files_of_a_change_does_not_stand_for_that_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_old_git: bool
) -> None:
    """git finds a bare repository, which a branch can hold, before the one around it."""
    repository = tmp_path / "repository"
    project = write_project(repository, "network", "network", "careful")
    commit(repository)
    hostile = tmp_path / "hostile"
    write_project(hostile, ".", "network")
    commit(hostile)
    for name in ("HEAD", "objects", "refs"):
        source = hostile / ".git" / name
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, project / name)
    settings = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\n"
    (project / "config").write_text(settings)

    if is_old_git:
        monkeypatch.setattr(base_branch, "GIT", ("git",))
    with pytest.raises(EngineError, match=r"cannot use bare|files of a bare repository"):  # noqa: SIM117
        with open_project_gates(find_project(project), "HEAD"):
            pass
    assert not read_commit(project)
    (project / "HEAD").unlink()
    with open_project_gates(find_project(project), "HEAD") as base:
        assert [gate.name for gate in base.gates] == ["careful"]


def test_without_a_revision_the_gates_are_those_of_the_file(tmp_path: Path) -> None:
    file = write_stacks(tmp_path, "few")
    with open_stacks_gates(tmp_path, file) as own:
        assert ([gate.name for gate in own.gates], own.weakened) == (["few"], ())
    with open_stacks_gates(tmp_path, None) as nothing:
        assert nothing.gates == ()
