"""Test an import, a plan without changes and a destroy for any object of every kind."""

import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import KINDS
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from processes.limits import LAST_RESORT

from gpuform.providers import permissions
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.cli.app import cli
from gpuform.stacks.declaration_writer.declarations import Declarations, ResourceEntry
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

PASSWORD = "Imported#1pass"


def run_gpuform(folder: Path, *arguments: str) -> tuple[int, str]:
    string_i_o = io.StringIO()
    with (
        contextlib.redirect_stdout(string_i_o),
        contextlib.redirect_stderr(string_i_o),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main(args=["--cwd", str(folder), *arguments], prog_name="gpuform")
    return int(ended.value.code or 0), string_i_o.getvalue()


@pytest.fixture
def new_project(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crypter: PassphraseCrypter
) -> Callable[[], Path]:
    """Return a function that creates projects, each with a stack and a backend."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "test only")
    monkeypatch.setenv(permissions.VARIABLE, ",".join(permissions.Permission))
    numbers = itertools.count()

    def make() -> Path:
        folder = tmp_path / f"p{next(numbers)}"
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(
            "name: demo\nruntime: python\nbackend: {url: 'file://.'}\n"
        )
        (folder / "Pulumi.dev.yaml").write_text(
            f"encryptionsalt: {crypter.salt_state}\nconfig: {{demo:os_user_password: {PASSWORD}}}\n"
        )
        assert run_gpuform(folder, "stack", "init", "dev")[0] == 0
        return folder

    return make


@pytest.fixture(autouse=True)
def leave_folder(platform: Platform, tmp_path: Path) -> Iterator[None]:
    """Use a `file://.` backend in the folder where the command works."""
    yield
    os.chdir(tmp_path)


def generate_declarations(description: KindDescription) -> st.SearchStrategy[dict[str, Any]]:
    """Generate valid inputs: the good ones, with examples of other fields added or replaced."""
    model = description.lifecycle.inputs
    fields = {
        name: [example for example in field.examples or () if "{{" not in json.dumps(example)]
        for name, field in model.model_fields.items()
        if name not in (description.name_field, *description.unique_fields)
        and not get_field_rules(model)[name].reference_kind
    }
    choices = [(name, example) for name, result in fields.items() for example in result]

    def is_valid(chosen: list[tuple[str, Any]]) -> dict[str, Any]:
        values = {**description.valid_inputs}
        for name, value in chosen:
            if not validate_inputs(model, {**values, name: value})[1]:
                values[name] = value
        return values

    some = st.lists(st.sampled_from(choices), max_size=6, unique_by=lambda pair: pair[0])
    return some.map(is_valid)


def find_id_in(folder: Path, description: KindDescription) -> str:
    state = json.loads((folder / ".pulumi/stacks/demo/dev.json").read_text())
    resources = state["checkpoint"]["latest"]["resources"]
    token = f"pulumi-python:dynamic/gpuform.{description.platform}:{description.kind}"
    return str(next(resource["id"] for resource in resources if resource["type"] == token))


def try_create(folder: Path, description: KindDescription, inputs: Mapping[str, Any]) -> bool:
    """Return True if the platform accepts the object, which then exists."""
    section = next(section for section, kind in SECTIONS.items() if kind == description.kind)
    entry = ResourceEntry(section, "made", description.platform, inputs)
    (folder / "topology.yaml").write_text(render_topology(Declarations([entry])), encoding="utf-8")
    return run_gpuform(folder, "up", "--yes", "--skip-preview")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_imported_object_has_no_changes_and_can_be_destroyed(
    kind: KindDescription, platform: Platform, new_project: Callable[[], Path]
) -> None:
    accepted = []

    @settings(
        max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.data())
    def check_import(data: st.DataObject) -> None:
        platform.reset()
        description = platform.prepare(kind)
        there = new_project()
        assume(try_create(there, description, data.draw(generate_declarations(description))))
        accepted.append(True)
        project = new_project()
        id_ = find_id_in(there, description) + description.import_suffix
        first = (f"{description.platform}:{description.kind}", "taken", id_)
        subject = ("--all", "--platform", "scp") if description.kind == "Fabric" else first
        for command in (
            ("import", "--yes", *subject),
            ("preview", "--expect-no-changes"),
            ("refresh", "--yes", "--skip-preview", "--expect-no-changes"),
            ("destroy", "--yes", "--skip-preview"),
        ):
            code, message = run_gpuform(project, *command)
            assert code == 0, f"{command}: {message}"
            content = (project / "topology.yaml").read_text()
            assert "import:" not in content
            assert not any(secret in content for secret in ("planted", PASSWORD)), content
        assert description.lifecycle.is_bound or not platform.list_existing_objects(description)

    check_import()
    assert len(accepted) > 1, "the platform refuses nearly all"


@pytest.mark.slow
@pytest.mark.exhaustive  # a minute and a half; `test_crashes` kills an import in .ci/run
@pytest.mark.parametrize("file", ["topology.yaml", "__main__.py"])
def test_an_import_killed_at_any_point_can_be_repeated(
    file: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "conformance.import_crashes", file, str(tmp_path / "loop")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        capture_output=True,
        text=True,
        timeout=LAST_RESORT,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    messages = "\n".join(
        f"killed at {failure['at']}\n{failure['why']}" for failure in result["failures"]
    )
    assert not result["failures"], messages
    assert result["points"] >= 10
    record_property("points", result["points"])
