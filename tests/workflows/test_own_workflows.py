"""The project's own workflows: the checks, and the release."""

import re
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from gpuform.stacks.ci_requirements import write_wheel

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
for_each_file = pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)


def load_workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())


@pytest.mark.slow
@for_each_file
def test_a_workflow_is_valid_and_pins_actions_and_has_read_permission(file: Path) -> None:
    schema = ["--builtin-schema", "vendor.github-workflows"]
    checked = CliRunner().invoke(check_jsonschema, [*schema, str(file)])
    assert checked.exit_code == 0, checked.output
    for used in re.findall(r"^ +(?:- )?uses: (.*)", file.read_text(), re.MULTILINE):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)
    assert load_workflow(file.stem)["permissions"] == {"contents": "read"}
    # The reusable workflow gets those of its caller, by name.
    assert ("secrets." in file.read_text()) is (file.stem == "plan")


@pytest.mark.slow
def test_linters_find_nothing_in_the_projects_own_files(
    lint: Callable[[Sequence[Path]], str], tmp_path: Path
) -> None:
    assert lint([*FILES, ROOT / "action.yml"]) == ""
    broken = tmp_path / ".github/workflows/broken.yml"
    broken.parent.mkdir(parents=True)
    broken.write_text("on: pull_request_target\njobs: {a: {runs-on: x, steps: [{uses: a/b@v1}]}}\n")
    assert lint([broken])


def test_the_release_publishes_only_the_checked_build() -> None:
    jobs = load_workflow("release")["jobs"]
    steps = [step.get("run") or step["uses"] for step in jobs["build"]["steps"]]
    checked = next(index for index, step in enumerate(steps) if "bash .ci/run" in step)
    built = next(index for index, step in enumerate(steps) if "-m build" in step)
    assert checked < built
    assert any(step.startswith("actions/attest-build-provenance@") for step in steps[built:])
    publish = jobs["publish"]
    assert (publish["needs"], publish["environment"]) == ("build", "pypi")
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("run" in step for step in publish["steps"])


def test_the_wheel_that_gpuform_writes_has_all_that_setuptools_packs(tmp_path: Path) -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {entry: ROOT.joinpath(*entry.split(".")[1:]) for entry in tools["packages"]}
    files = [file for folder in folders.values() for file in folder.glob("*.py")]
    for package, patterns in tools["package-data"].items():
        data_files = [file for pattern in patterns for file in folders[package].glob(pattern)]
        assert data_files, package
        files += data_files
    with zipfile.ZipFile(write_wheel(tmp_path)) as packed:
        names = {entry for entry in packed.namelist() if ".dist-info/" not in entry}
    assert names == {f"gpuform/{entry.relative_to(ROOT).as_posix()}" for entry in files}


def test_ci_tests_every_promised_python() -> None:
    matrix = load_workflow("ci")["jobs"]["pythons"]["strategy"]["matrix"]["python"]
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert set(promised) <= set(matrix)
    in_script = re.search(r"for version in (.*); do", (ROOT / ".ci/wheels").read_text())
    assert in_script is not None
    assert in_script[1].split()[::-1] == matrix
