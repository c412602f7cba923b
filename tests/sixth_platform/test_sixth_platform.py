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
CONFORMANCE_MODULES = ("verbs", "stacks", "forms", "faults", "gone")

_FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_guide_files(folder: str) -> dict[str, str]:
    """Return the guide's files in a folder by path."""
    contents_by_file = dict(_FILE.findall(PAGE.read_text()))
    return {
        name.removeprefix(folder): content
        for name, content in contents_by_file.items()
        if name.startswith(folder)
    }


def read_guide_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of the guide in order, each with its lines of output."""
    for block in _CONSOLE.findall(PAGE.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output_lines = part.splitlines()
            yield command, [line for line in output_lines if line.strip()]


def build_environment(*paths: Path) -> dict[str, str]:
    """Return an environment with these folders on the search path."""
    inherited = {key: value for key, value in os.environ.items() if "NIMBUS" not in key}
    return {
        **inherited,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PULUMI_CONFIG_PASSPHRASE": "",
    }


def run_shell_command(
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


def run_python(code: str, *paths: Path, directory: Path) -> str:
    """Run a program with these folders on the path, and return the output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=build_environment(*paths),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guides_files_equal_those_of_the_package() -> None:
    written = {
        str(path.relative_to(HERE)): path.read_text()
        for path in [HERE / "pyproject.toml", *(HERE / "nimbus").glob("*.py")]
    }
    del written[GENERATED]
    assert read_guide_files("nimbus/") == {
        name.removeprefix("nimbus/"): content
        for name, content in written.items()
        if name.startswith("nimbus/")
    }
    assert read_guide_files("pyproject.toml") == {"": written["pyproject.toml"]}


def test_the_distribution_has_the_entry_points_of_its_project() -> None:
    announced = configparser.ConfigParser()
    announced.read(HERE / "nimbus_gpuform-0.1.dist-info" / "entry_points.txt")
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    assert {name: dict(of) for name, of in announced.items() if of} == project["entry-points"]


@pytest.mark.slow
def test_the_guides_commands_print_what_the_guide_shows(tmp_path: Path) -> None:
    """Run the commands on a copy of the package without generated files."""
    package, project = tmp_path / "package", tmp_path / "demo"
    shutil.copytree(HERE, package)
    (package / GENERATED).unlink()
    project.mkdir()
    for name, content in read_guide_files("demo/").items():
        (project / name).write_text(content)
    variables = build_environment(package)
    ran = []
    for command, expected_lines in read_guide_commands():
        directory = ROOT if command.startswith("pytest") else project
        done = run_shell_command(command, directory, variables)
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{output}"
        assert [line for line in expected_lines if line.strip() not in output] == [], (
            f"{command}\n{output}"
        )
        ran.append(command.split()[0])
    assert {"python", "gpuform", "pytest"} <= set(ran)
    assert (package / GENERATED).read_text() == (HERE / GENERATED).read_text()


@pytest.mark.slow
def test_the_platform_passes_the_slow_conformance_tests() -> None:
    """Run the slow tests of gpuform's own kinds, without the kills at every point."""
    modules = (f"tests/conformance/test_{module}.py" for module in CONFORMANCE_MODULES)
    command = f"pytest -q -m 'slow and not exhaustive' -k nimbus {' '.join(modules)}"
    done = run_shell_command(command, ROOT, build_environment(HERE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


PROGRAM = """
import pulumi
from nimbus import Cluster

train = Cluster("train", name="train", region="north", gpu_type="N100", gpu_count=8)
pulumi.export("status", train.status)
"""


@pytest.mark.slow
def test_a_python_program_creates_and_destroys_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend: {url: file://.}\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    for command in (
        "stack init dev",
        "up --emulate --yes",
        "preview --emulate --expect-no-changes",
    ):
        done = run_shell_command(f"gpuform {command}", tmp_path, build_environment(HERE))
        assert done.returncode == 0, done.stdout + done.stderr
    assert (
        run_shell_command("gpuform stack output status", tmp_path, build_environment(HERE)).stdout
        == "running\n"
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_plugins_package_has_the_platform(tmp_path: Path) -> None:
    code = (
        "import json; from gpuform.providers.plugin.package_schema import build_package_schema; "
        "print(json.dumps(build_package_schema()))"
    )
    schema = json.loads(run_python(code, HERE, directory=tmp_path))
    assert schema["resources"]["gpuform:nimbus:Cluster"]["requiredInputs"] == [
        *("name", "region", "gpu_type", "gpu_count"),
    ]
    assert schema["provider"]["inputProperties"]["nimbusApiKey"]["secret"] is True


@pytest.mark.slow
def test_the_linked_schema_has_the_platform(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    done = run_shell_command("gpuform schema --link", tmp_path, build_environment(HERE))
    assert done.returncode == 0, done.stderr
    schema = json.loads((tmp_path / ".gpuform" / "topology.schema.json").read_text())
    assert "nimbus" in schema["definitions"]["clusters"]["properties"]["platform"]["enum"]


def test_a_missing_kind_is_refused_with_the_platforms_that_have_it(tmp_path: Path) -> None:
    code = (
        "from gpuform.providers.catalog import load_lifecycle_class\n"
        "try: load_lifecycle_class('nimbus', 'Fabric')\n"
        "except Exception as error: print(error)"
    )
    output = run_python(code, HERE, directory=tmp_path)
    assert output == "nimbus has no Fabric: declare it on scp\n"


@pytest.mark.slow
def test_a_broken_platform_is_reported_only_where_it_is_named(tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(HERE, package)
    (package / "nimbus" / "platform.py").write_text("import no_such_module\n")
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(read_guide_files("demo/")["__main__.py"])
    names_it = read_guide_files("demo/")["topology.yaml"]
    others = (
        "shared_volumes:\n  data: {platform: together, volume_name: data, size_tib: 1, region: r}"
    )
    for topology, code in ((names_it, 1), (others, 0)):
        (tmp_path / "topology.yaml").write_text(topology)
        done = run_shell_command("gpuform validate", tmp_path, build_environment(package))
        output = done.stdout + done.stderr
        assert done.returncode == code, output
        assert ("the distribution nimbus-gpuform provides the platform" in output) == bool(code), (
            output
        )
        assert "Traceback" not in output


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_gpuforms_generated_files_omit_an_installed_platform() -> None:
    done = run_shell_command(
        "python -m tools.generate --check", HERE.parents[1], build_environment(HERE)
    )
    assert done.returncode == 2
    assert "uninstall nimbus first" in done.stderr
