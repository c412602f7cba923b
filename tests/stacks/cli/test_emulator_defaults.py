"""Defaults that are meant for the emulator: a real platform never sees one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers.ports import reserve_port

from gpuform.providers.emulator.server import environment, serve

Run = Any
ADDRESS = "TENSORONE_BASE_URL"
VALUE = "no-key-for-the-emulator"


@pytest.fixture
def unused_port() -> Iterator[int]:
    """Return a port of a platform that does not answer."""
    with reserve_port() as port:
        yield port


@pytest.fixture(params=["topology", "program"])
def template_project(
    request: pytest.FixtureRequest,
    dev: Run,
    project: Path,
    unused_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Create a project of the template tensorone-dev, with an unreachable platform."""
    program = ["--python"] if request.param == "program" else []
    made = dev("new", "tensorone-dev", "--name", "demo", "--force", "--dir", str(project), *program)
    assert made.code == 0, made.err
    monkeypatch.setenv("TENSORONE_API_KEY", "a-real-key")
    monkeypatch.setenv(ADDRESS, f"http://127.0.0.1:{unused_port}/v1")
    return dev


@pytest.fixture
def emulator_variables(monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="defaults") as server:
        yield environment(server.url)


def test_an_emulator_default_is_no_value_for_a_real_platform(
    template_project: Run, project: Path
) -> None:
    for command in (["preview"], ["up", "--yes"]):
        ran = template_project(*command)
        assert ran.code == 1
        output = ran.out + ran.err
        assert "config set" in output
        assert "wandb_key" in output
        assert VALUE not in output
    if (project / "topology.yaml").exists():
        assert (
            "topology.yaml:7:3: config.wandb_key has no value here: its emulator_default" in output
        )


@pytest.mark.slow
def test_an_emulator_default_is_the_value_on_an_emulator(
    template_project: Run,
    emulator_variables: dict[str, str],
    unused_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert template_project("preview", "--emulate").code == 0
    for name, value in emulator_variables.items():
        monkeypatch.setenv(name, value)
    assert template_project("preview").code == 0
    # The clock of an emulator is no promise that this platform is one.
    monkeypatch.setenv(ADDRESS, f"http://127.0.0.1:{unused_port}/v1")
    assert template_project("preview").code == 1


def test_a_configured_value_replaces_the_emulator_default(template_project: Run) -> None:
    assert template_project("config", "set", "--secret", "wandb_key", "hunter2-hunter2").code == 0
    preview = template_project("preview")
    assert "has no value" not in preview.out + preview.err
    assert "Missing required configuration" not in preview.out + preview.err


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("emulator_default: a, default: b", "config.x.emulator_default: conflicts with default"),
        ("type: integer, emulator_default: a", 'config.x: "a" is not a whole number'),
    ],
)
def test_validate_refuses_a_wrong_emulator_default(
    dev: Run, project: Path, message: str, problem: str
) -> None:
    (project / "topology.yaml").write_text(f"config:\n  x: {{{message}}}\n")
    ran = dev("validate", "topology.yaml")
    assert ran.code == 1
    assert problem in ran.out


def test_an_input_of_a_module_cannot_have_an_emulator_default(dev: Run, project: Path) -> None:
    (project / "pool.yaml").write_text("inputs:\n  x: {emulator_default: a}\n")
    ran = dev("validate", "pool.yaml")
    assert ran.code == 1
    assert (
        "pool.yaml:2:25: inputs.x: only entries of config can have an emulator_default"
    ) in ran.out


def test_a_platform_that_only_a_module_uses_counts_as_used(
    dev: Run,
    project: Path,
    emulator_variables: dict[str, str],
    unused_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (project / "__main__.py").unlink()
    (project / "pool.yaml").write_text(
        "shared_volumes:\n  data: {platform: together, volume_name: data, region: us-central-8, "
        "size_tib: 5}\n"
    )
    (project / "topology.yaml").write_text(
        "include:\n  - {file: pool.yaml, name: pool}\n"
        "config:\n  key: {secret: true, emulator_default: a}\n"
        'outputs:\n  key: "{{ config.key }}"\n'
    )
    for name, value in emulator_variables.items():
        monkeypatch.setenv(name, value)
    assert dev("preview").code == 0
    monkeypatch.setenv("TOGETHER_BASE_URL", f"http://127.0.0.1:{unused_port}/v1")
    assert "config.key has no value here" in dev("preview").out


def test_convert_keeps_the_emulator_default_in_a_program(dev: Run, project: Path) -> None:
    assert dev("new", "scp-pool", "--name", "demo", "--force", "--dir", str(project)).code == 0
    ran = dev("convert", "--from", "topology", "--out", "made.py")
    assert ran.code == 0, ran.err
    content = (project / "made.py").read_text()
    assert "from gpuform.stacks import is_emulated" in content
    assert 'if is_emulated() else config.require_secret("password")' in content
