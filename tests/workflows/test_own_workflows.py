"""The project's own workflows: its checks, and the release."""

import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from gpuform.stacks.projects import write_wheel

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
each_file = pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())


@pytest.mark.slow
@each_file
def test_it_is_valid_and_pinned_and_may_only_read(file: Path) -> None:
    schema = ["--builtin-schema", "vendor.github-workflows"]
    checked = CliRunner().invoke(check_jsonschema, [*schema, str(file)])
    assert checked.exit_code == 0, checked.output
    for used in re.findall(r"uses: (.*)", file.read_text()):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)
    assert loaded(file.stem)["permissions"] == {"contents": "read"}
    assert "secrets." not in file.read_text()


def test_the_release_publishes_what_was_checked_and_nothing_else() -> None:
    jobs = loaded("release")["jobs"]
    steps = [each.get("run") or each["uses"] for each in jobs["build"]["steps"]]
    checked = next(place for place, each in enumerate(steps) if "bash .ci/run" in each)
    built = next(place for place, each in enumerate(steps) if "-m build" in each)
    assert checked < built
    assert any(each.startswith("actions/attest-build-provenance@") for each in steps[built:])
    publish = jobs["publish"]
    assert (publish["needs"], publish["environment"]) == ("build", "pypi")
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("run" in each for each in publish["steps"])


def test_the_wheel_that_gpuform_writes_has_all_that_setuptools_packs(tmp_path: Path) -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {each: ROOT.joinpath(*each.split(".")[1:]) for each in tools["packages"]}
    files = [file for folder in folders.values() for file in folder.glob("*.py")]
    for package, patterns in tools["package-data"].items():
        found = [file for pattern in patterns for file in folders[package].glob(pattern)]
        assert found, package
        files += found
    with zipfile.ZipFile(write_wheel(tmp_path)) as packed:
        names = {each for each in packed.namelist() if ".dist-info/" not in each}
    assert names == {f"gpuform/{each.relative_to(ROOT).as_posix()}" for each in files}


def test_every_python_that_is_promised_is_tried() -> None:
    matrix = loaded("ci")["jobs"]["pythons"]["strategy"]["matrix"]["python"]
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert set(promised) <= set(matrix)
    in_script = re.search(r"for version in (.*); do", (ROOT / ".ci/wheels").read_text())
    assert in_script is not None
    assert in_script[1].split()[::-1] == matrix
