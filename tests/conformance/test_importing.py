"""Import, then a plan without changes, then destroy: for any object of every kind."""

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
from conformance.described import Described
from conformance.emulated import Platform
from conformance.kinds import KINDS
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from processes.limits import LAST_RESORT

from gpuform.providers import permissions
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.authoring.declared import Declared, Entry
from gpuform.stacks.authoring.yaml_values import topology_text
from gpuform.stacks.cli.app import cli
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

PASSWORD = "Imported#1pass"


def gpuform(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a command, and all that it says."""
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main(args=["--cwd", str(folder), *arguments], prog_name="gpuform")
    return int(ended.value.code or 0), said.getvalue()


@pytest.fixture
def new_project(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crypter: PassphraseCrypter
) -> Callable[[], Path]:
    """Projects with a stack and a backend of their own."""
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
        assert gpuform(folder, "stack", "init", "dev")[0] == 0
        return folder

    return make


@pytest.fixture(autouse=True)
def own_folder(platform: Platform, tmp_path: Path) -> Iterator[None]:
    """A `file://.` backend is in the folder where the command works."""
    yield
    os.chdir(tmp_path)


def declarations(described: Described) -> st.SearchStrategy[dict[str, Any]]:
    """Valid inputs: the good ones, with examples of some other fields in their place or beside."""
    model = described.lifecycle.inputs
    fields = {
        name: [each for each in field.examples or () if "{{" not in json.dumps(each)]
        for name, field in model.model_fields.items()
        if name not in (described.name_field, *described.own_fields)
        and not get_field_rules(model)[name].reference_kind
    }
    choices = [(name, each) for name, found in fields.items() for each in found]

    def valid(chosen: list[tuple[str, Any]]) -> dict[str, Any]:
        values = {**described.good}
        for name, value in chosen:
            if not validate_inputs(model, {**values, name: value})[1]:
                values[name] = value
        return values

    some = st.lists(st.sampled_from(choices), max_size=6, unique_by=lambda pair: pair[0])
    return some.map(valid)


def id_in(folder: Path, described: Described) -> str:
    state = json.loads((folder / ".pulumi/stacks/demo/dev.json").read_text())
    resources = state["checkpoint"]["latest"]["resources"]
    token = f"pulumi-python:dynamic/gpuform.{described.platform}:{described.kind}"
    return str(next(each["id"] for each in resources if each["type"] == token))


def made(folder: Path, described: Described, inputs: Mapping[str, Any]) -> bool:
    """Whether the platform accepts the object; then it exists."""
    section = next(section for section, kind in SECTIONS.items() if kind == described.kind)
    entry = Entry(section, "made", described.platform, inputs)
    (folder / "topology.yaml").write_text(topology_text(Declared([entry])), encoding="utf-8")
    return gpuform(folder, "up", "--yes", "--skip-preview")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_imported_has_no_changes_and_can_be_destroyed(
    kind: Described, platform: Platform, new_project: Callable[[], Path]
) -> None:
    accepted = []

    @settings(
        max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.data())
    def imported(data: st.DataObject) -> None:
        platform.reset()
        described = platform.prepare(kind)
        there = new_project()
        assume(made(there, described, data.draw(declarations(described))))
        accepted.append(True)
        here = new_project()
        id_ = id_in(there, described) + described.untold
        one = (f"{described.platform}:{described.kind}", "taken", id_)
        what = ("--all", "--platform", "scp") if described.kind == "Fabric" else one
        for command in (
            ("import", "--yes", *what),
            ("preview", "--expect-no-changes"),
            ("refresh", "--yes", "--skip-preview", "--expect-no-changes"),
            ("destroy", "--yes", "--skip-preview"),
        ):
            code, said = gpuform(here, *command)
            assert code == 0, f"{command}: {said}"
            text = (here / "topology.yaml").read_text()
            assert "import:" not in text
            assert not any(secret in text for secret in ("planted", PASSWORD)), text
        assert described.lifecycle.is_bound or not platform.present(described)

    imported()
    assert len(accepted) > 1, "the platform refuses nearly all"


@pytest.mark.slow
@pytest.mark.parametrize("file", ["topology.yaml", "__main__.py"])
def test_an_import_that_is_killed_at_any_point_goes_on(
    file: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "conformance.import_crashes", file, str(tmp_path / "loop")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        capture_output=True,
        text=True,
        timeout=LAST_RESORT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    told = "\n".join(f"killed at {each['at']}\n{each['why']}" for each in found["failures"])
    assert not found["failures"], told
    assert found["points"] >= 10
    record_property("points", found["points"])
