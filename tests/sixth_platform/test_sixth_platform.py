"""A platform of another distribution: found by its entry point, and then like gpuform's own.

`docs/guides/add-a-platform.md` is the walkthrough: its files are those of this folder, and its
commands are run here.
"""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "guides" / "add-a-platform.md"
GENERATED = "nimbus/resources.py"
ROOMS = ("verbs", "stacks", "forms", "faults", "gone")

_FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_files(folder: str) -> dict[str, str]:
    """The files on the page that are in a folder, by their paths there."""
    found = dict(_FILE.findall(PAGE.read_text()))
    return {
        name.removeprefix(folder): text for name, text in found.items() if name.startswith(folder)
    }


def commands() -> Iterator[tuple[str, list[str]]]:
    """The commands of the page in order, each with the lines of output that it shows."""
    for block in _CONSOLE.findall(PAGE.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, [line for line in shown if line.strip()]


def environment(*paths: Path) -> dict[str, str]:
    """With these folders on the path, where distributions are looked for as well."""
    inherited = {key: value for key, value in os.environ.items() if "NIMBUS" not in key}
    return {
        **inherited,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PULUMI_CONFIG_PASSPHRASE": "",
    }


def run(
    command: str, directory: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=dict(variables),
        capture_output=True,
        text=True,
        check=False,
    )


def python(code: str, *paths: Path, directory: Path) -> str:
    """What a program prints, with these folders on the path."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=environment(*paths),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pages_files_are_those_of_the_package() -> None:
    written = {
        str(path.relative_to(HERE)): path.read_text()
        for path in [HERE / "pyproject.toml", *(HERE / "nimbus").glob("*.py")]
    }
    del written[GENERATED]
    assert page_files("nimbus/") == {
        name.removeprefix("nimbus/"): text
        for name, text in written.items()
        if name.startswith("nimbus/")
    }
    assert page_files("pyproject.toml") == {"": written["pyproject.toml"]}


def test_the_distribution_announces_what_its_project_says() -> None:
    announced = configparser.ConfigParser()
    announced.read(HERE / "nimbus_gpuform-0.1.dist-info" / "entry_points.txt")
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    assert {name: dict(of) for name, of in announced.items() if of} == project["entry-points"]


@pytest.mark.slow
def test_the_pages_commands(tmp_path: Path) -> None:
    """On a copy of the package, without what the first of them generates."""
    package, project = tmp_path / "package", tmp_path / "demo"
    shutil.copytree(HERE, package)
    (package / GENERATED).unlink()
    project.mkdir()
    for name, text in page_files("demo/").items():
        (project / name).write_text(text)
    variables = environment(package)
    ran = []
    for command, shown in commands():
        directory = ROOT if command.startswith("pytest") else project
        done = run(command, directory, variables)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{said}"
        assert [line for line in shown if line.strip() not in said] == [], f"{command}\n{said}"
        ran.append(command.split()[0])
    assert {"python", "gpuform", "pytest"} <= set(ran)
    assert (package / GENERATED).read_text() == (HERE / GENERATED).read_text()


@pytest.mark.slow
def test_the_slow_part_of_the_conformance_suite() -> None:
    """As far as CI plays it of gpuform's own kinds, without the deaths at every point."""
    rooms = (f"tests/conformance/test_{each}.py" for each in ROOMS)
    command = f"pytest -q -m 'slow and not exhaustive' -k nimbus {' '.join(rooms)}"
    done = run(command, ROOT, environment(HERE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


PROGRAM = """
import pulumi
from nimbus import Cluster

train = Cluster("train", name="train", region="north", gpu_type="N100", gpu_count=8)
pulumi.export("status", train.status)
"""


@pytest.mark.slow
def test_a_program_in_python(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend: {url: file://.}\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    for command in (
        "stack init dev",
        "up --emulate --yes",
        "preview --emulate --expect-no-changes",
    ):
        done = run(f"gpuform {command}", tmp_path, environment(HERE))
        assert done.returncode == 0, done.stdout + done.stderr
    assert run("gpuform stack output status", tmp_path, environment(HERE)).stdout == "running\n"


@pytest.mark.slow
def test_the_plugins_package_has_it(tmp_path: Path) -> None:
    code = (
        "import json; from gpuform.providers.plugin.package_schema import build_package_schema; "
        "print(json.dumps(build_package_schema()))"
    )
    schema = json.loads(python(code, HERE, directory=tmp_path))
    assert schema["resources"]["gpuform:nimbus:Cluster"]["requiredInputs"] == [
        *("name", "region", "gpu_type", "gpu_count"),
    ]
    assert schema["provider"]["inputProperties"]["nimbusApiKey"]["secret"] is True


@pytest.mark.slow
def test_editors_find_it_in_the_schema_that_is_linked(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    done = run("gpuform schema --link", tmp_path, environment(HERE))
    assert done.returncode == 0, done.stderr
    schema = json.loads((tmp_path / ".gpuform" / "topology.schema.json").read_text())
    assert "nimbus" in schema["definitions"]["clusters"]["properties"]["platform"]["enum"]


def test_what_it_lacks_is_refused_with_the_platforms_that_have_it(tmp_path: Path) -> None:
    code = (
        "from gpuform.providers.catalog import load_lifecycle_class\n"
        "try: load_lifecycle_class('nimbus', 'Fabric')\n"
        "except Exception as error: print(error)"
    )
    said = python(code, HERE, directory=tmp_path)
    assert said == "nimbus has no Fabric: declare it on scp\n"


@pytest.mark.slow
def test_a_broken_one_is_told_to_who_names_it_and_to_nobody_else(tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(HERE, package)
    (package / "nimbus" / "platform.py").write_text("import no_such_module\n")
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(page_files("demo/")["__main__.py"])
    names_it = page_files("demo/")["topology.yaml"]
    others = (
        "shared_volumes:\n  data: {platform: together, volume_name: data, size_tib: 1, region: r}"
    )
    for text, code in ((names_it, 1), (others, 0)):
        (tmp_path / "topology.yaml").write_text(text)
        done = run("gpuform validate", tmp_path, environment(package))
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert ("the distribution nimbus-gpuform announces it" in said) == bool(code), said
        assert "Traceback" not in said


@pytest.mark.slow
def test_gpuforms_own_files_are_not_written_where_it_is_installed() -> None:
    done = run("python -m tools.generate --check", HERE.parents[1], environment(HERE))
    assert done.returncode == 2
    assert "uninstall nimbus first" in done.stderr
