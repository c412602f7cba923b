"""Comparison of gates: a weaker gate is named, a stricter or an equal one is not."""

import subprocess
from pathlib import Path

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import find_project
from gpuform.stacks.gates.base_branch import find_weakened_gates, open_project_gates
from gpuform.stacks.gates.file import read_gates

WAIVER = "waive: [{gate: it, until: 2099-01-02, reason: r, by: eve}]"


def list_weakenings(folder: Path, base: str, changed: str) -> list[str]:
    gates = []
    for text in (base, changed):
        (folder / "gates.yaml").write_text(f"gates:\n  it: {text}\n")
        gates.append(read_gates(folder / "gates.yaml", "gates.yaml"))
    return list(find_weakened_gates(*gates))


@pytest.mark.parametrize(
    ("base", "changed", "weakening"),
    [
        ("{max_destroyed_gpus: 8}", "{max_destroyed_gpus: 9}", "max_destroyed_gpus is 9 instead"),
        ("{max_cost_increase: 10%}", "{max_cost_increase: 9.5%}", ""),
        ("{max_cost_increase: 9.5%}", "{max_cost_increase: 10%}", "max_cost_increase is 10%"),
        (
            "{max_hourly_cost: {amount: 5, currency: USD}}",
            "{max_hourly_cost: {amount: 5, currency: EUR}}",
            "max_hourly_cost is {amount: 5, currency: EUR} instead of",
        ),
        ("{allowed_regions: [a]}", "{allowed_regions: [a, b]}", "is [a, b] instead of [a]"),
        ("{allowed_regions: [a, b]}", "{allowed_regions: [a]}", ""),
        ("{protected: [a, b]}", "{protected: [a]}", "protected is [a] instead of [a, b]"),
        ("{protected: [a]}", "{protected: [a, b]}", ""),
        ("{no_open_ports: {}}", "{no_open_ports: {allowed: [22]}}", "no_open_ports is"),
        ("{rehearsal: {jobs_ended: 0}}", "{rehearsal: {max_lost_gpus: 0}}", "rehearsal is"),
        ("{python: 'a:b'}", "{python: 'a:c'}", "python is a:c instead of a:b"),
        ("{protected: [a]}", "{expiry_required: true}", "checks expiry_required instead"),
        ("{protected: [a]}", "{protected: [a], level: advisory}", "is advisory instead"),
        ("{protected: [a]}", "{protected: [a], resources: [b]}", "checks only the resources b"),
        ("{protected: [a], resources: [b]}", "{protected: [a]}", ""),
        ("{protected: [a]}", f"{{protected: [a]}}\n{WAIVER}", "waived until 2099-01-02, by eve: r"),
        ("{protected: [a]}", "{protected: [a]}\n  more: {protected: [b]}", ""),
    ],
)  # fmt: skip
def test_a_weaker_gate_is_named(tmp_path: Path, base: str, changed: str, weakening: str) -> None:
    found = list_weakenings(tmp_path, base, changed)
    assert len(found) == bool(weakening)
    assert weakening in "".join(found)


def commit_project(root: Path, *, attributes: str = "") -> Path:
    project = root / "infra"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (project / "gates.yaml").write_text("gates: {it: {protected: [a]}}\n")
    (project / ".gitattributes").write_text(attributes)
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)
    return project


def test_an_invalid_file_and_attributes_of_the_change_hide_no_gate(tmp_path: Path) -> None:
    folder = commit_project(tmp_path)
    (folder / "gates.yaml").write_text("gates: [\n")
    (folder / ".gitattributes").write_text("gates.yaml export-ignore\n")
    with open_project_gates(find_project(folder), "HEAD") as base:
        assert [gate.name for gate in base.gates] == ["it"]
        assert base.weakened == ("gate it: is removed",)


def test_a_project_that_is_new_since_the_base_has_no_gates_there(tmp_path: Path) -> None:
    commit_project(tmp_path)
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
    with open_project_gates(find_project(folder), "HEAD") as base:
        assert (base.gates, base.weakened) == ((), ())


@pytest.mark.parametrize("revision", ["nowhere", "--output=x", "0" * 40, "HEAD:infra"])
def test_a_revision_that_is_no_commit_is_refused(tmp_path: Path, revision: str) -> None:
    project = find_project(commit_project(tmp_path))
    with (
        pytest.raises(EngineError, match="cannot be read"),
        open_project_gates(project, revision),
    ):
        pass
    assert not (tmp_path / "x").exists()


def test_gates_that_the_archive_leaves_out_are_an_error(tmp_path: Path) -> None:
    folder = commit_project(tmp_path, attributes="gates.yaml export-ignore\n")
    with (
        pytest.raises(EngineError, match=r"gates\.yaml of HEAD cannot be read from git"),
        open_project_gates(find_project(folder), "HEAD"),
    ):
        pass
