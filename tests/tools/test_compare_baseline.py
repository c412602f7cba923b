"""The comparison of two baselines reports every difference, and none between two equal ones."""

from pathlib import Path

import pytest

from tools.compare_baseline import main


def save(folder: Path) -> Path:
    assert main(["save", str(folder), "--only", "frozen"]) == 0
    return folder


def test_two_baselines_of_the_same_code_are_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = save(tmp_path / "old"), save(tmp_path / "new")
    assert main(["compare", str(old), str(new)]) == 0
    assert capsys.readouterr().out == "no differences\n"


def test_a_moved_lifecycle_class_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = save(tmp_path / "old"), save(tmp_path / "new")
    kinds = new / "frozen" / "kinds.txt"
    path = "gpuform.providers.aios.cluster:ClusterLifecycle"
    assert path in kinds.read_text()
    kinds.write_text(kinds.read_text().replace(path, "gpuform.providers.aios.other:Lifecycle"))
    assert main(["compare", str(old), str(new)]) == 1
    printed = capsys.readouterr().out
    assert f"-dynamic/gpuform.aios:Cluster {path}" in printed.replace("pulumi-python:", "")
    assert "gpuform.providers.aios.other:Lifecycle" in printed


def test_a_file_of_only_one_baseline_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = save(tmp_path / "old"), tmp_path / "new"
    assert main(["compare", str(old), str(new)]) == 1
    assert capsys.readouterr().out == f"{new / 'frozen' / 'kinds.txt'} is missing\n"
