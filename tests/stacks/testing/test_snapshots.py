"""Snapshots: written with `--update`, and compared without values that no two runs share."""

from pathlib import Path

import pytest
import yaml
from processes.commands import run_gpuform

from gpuform.stacks.testing.runner import CaseStatus

from .conftest import RunCases, WriteCases, format_findings

CASES = """\
    cases:
      up: {expect: {snapshot: true}}
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_snapshot_is_written_and_later_runs_are_compared_with_it(
    run_cases: RunCases, project: Path
) -> None:
    (finding,) = format_findings(run_cases(CASES)["up"])
    assert (
        finding == "2: snapshot demo.up.yaml does not exist yet: `gpuform test --update` writes it"
    )

    result = run_cases(CASES, update=True)["up"]
    assert (format_findings(result), result.is_updated) == ([], True)
    file = project / "tests" / "snapshots" / "demo.up.yaml"
    content = file.read_text()
    assert "planted-7d1f" not in content
    assert yaml.safe_load(content)["plan"] == {
        "clusters.train": "create",
        "shared_volumes.data": "create",
    }
    assert yaml.safe_load(content)["outputs"] == {"status": "Ready", "token": "[secret]"}

    again = run_cases(CASES)["up"]
    assert (format_findings(again), again.is_updated) == ([], False)

    topology = project / "topology.yaml"
    topology.write_text(topology.read_text().replace("size_tib: 5", "size_tib: 6"))
    (finding,) = format_findings(run_cases(CASES)["up"])
    assert "-    size_tib: 5" in finding
    assert "+    size_tib: 6" in finding


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_snapshots_of_equal_runs_are_equal(run_cases: RunCases, project: Path) -> None:
    """Ids, ports, times and the order of parallel operations are not in a snapshot."""
    file = project / "tests" / "snapshots" / "demo.up.yaml"
    texts = set()
    for _ in range(3):
        run_cases(CASES, update=True)
        texts.add(file.read_text())
        file.unlink()
    assert len(texts) == 1


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_comments_and_layout_of_a_snapshot_stay_while_values_are_equal(
    run_cases: RunCases, project: Path
) -> None:
    run_cases(CASES, update=True)
    file = project / "tests" / "snapshots" / "demo.up.yaml"
    content = yaml.safe_load(file.read_text())
    commented = "# Why: the volume is shared.\n" + yaml.safe_dump(content, default_flow_style=True)
    file.write_text(commented)
    assert format_findings(run_cases(CASES)["up"]) == []
    assert not run_cases(CASES, update=True)["up"].is_updated
    assert file.read_text() == commented


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_snapshot_that_is_not_yaml_is_reported_with_its_position(
    run_cases: RunCases, project: Path
) -> None:
    run_cases(CASES, update=True)
    file = project / "tests" / "snapshots" / "demo.up.yaml"
    written = file.read_text()
    file.write_text("result: succeeded\nplan: [\n")
    (finding,) = run_cases(CASES)["up"].findings
    assert str(finding).startswith(f"{file}:3:1: the snapshot is not valid YAML: ")
    file.write_text("\0")
    (finding,) = run_cases(CASES)["up"].findings
    assert str(finding).startswith(f"{file}:1:1: the snapshot is not valid YAML: ")
    run_cases(CASES, update=True)
    assert file.read_text() == written


def test_a_case_that_fails_writes_no_snapshot(run_cases: RunCases, project: Path) -> None:
    result = run_cases("cases: {up: {expect: {result: failed, snapshot: true}}}", update=True)["up"]
    assert (result.status, result.is_updated) == (CaseStatus.FAILED, False)
    assert not (project / "tests" / "snapshots").exists()


@pytest.mark.slow
def test_an_unused_snapshot_is_reported_and_update_removes_it(
    write_cases: WriteCases, project: Path
) -> None:
    write_cases("cases: {one: {run: preview, expect: {snapshot: true}}}")
    (project / "tests" / "other.yaml").write_text(
        "cases: {one: {run: preview, expect: {snapshot: true}}}"
    )
    assert run_gpuform(project, "test", "--update").code == 0
    folder = project / "tests" / "snapshots"
    (folder / "demo.mine.yaml").write_text("of: a person\n")
    write_cases("cases: {two: {run: preview, expect: {snapshot: true}}, three: {run: preview}}")

    unused = "no case uses the snapshot tests/snapshots/demo.one.yaml any longer: "
    only_one = run_gpuform(project, "test", "-k", "three")
    assert unused not in only_one.stdout
    done = run_gpuform(project, "test", "tests/demo.yaml")
    assert f"{unused}`gpuform test --update` removes it\n" in done.stdout
    assert "other" not in done.stdout
    done = run_gpuform(project, "test", "--update")
    assert (done.code, f"{unused}removed\n" in done.stdout) == (0, True)
    assert sorted(file.name for file in folder.iterdir()) == [
        "demo.mine.yaml",
        "demo.two.yaml",
        "other.one.yaml",
    ]
