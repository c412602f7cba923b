"""A program that the Pulumi CLI runs says that the plugin is missing."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pulumi
import pytest

from gpuform.providers.plugin.locations import (
    COMMAND,
    InstalledPlugin,
    get_plugins_folder,
    locate_version,
)
from gpuform.providers.plugin.program_warnings import (
    CLI_RUNNER,
    is_plugin_available,
    warn_if_missing,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand for plugins")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PULUMI_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


@pytest.fixture
def version(environ: dict[str, str]) -> InstalledPlugin:
    made = locate_version(get_plugins_folder(environ), "0.1.0")
    made.folder.mkdir(parents=True)
    return made


def test_what_is_installed(
    environ: dict[str, str], version: InstalledPlugin, tmp_path: Path
) -> None:
    assert is_plugin_available(environ, tmp_path)
    version.partial.touch()
    assert not is_plugin_available(environ, tmp_path)


def test_what_is_on_the_path(environ: dict[str, str], tmp_path: Path) -> None:
    assert not is_plugin_available(environ, tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / COMMAND).touch(mode=0o755)
    assert is_plugin_available(environ, tmp_path)
    assert not is_plugin_available({**environ, "PULUMI_IGNORE_AMBIENT_PLUGINS": "true"}, tmp_path)


def test_what_the_project_names(environ: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "Pulumi.yaml"
    project.write_text("name: demo\n")
    program = tmp_path / "program"
    program.mkdir()
    assert not is_plugin_available(environ, program)
    project.write_text("plugins: {providers: [{name: gpuform, path: bin}]}\n")
    assert is_plugin_available(environ, program)
    project.write_text("plugins: [")
    assert is_plugin_available(environ, program)


def test_a_home_of_windows(tmp_path: Path) -> None:
    assert not is_plugin_available({"PULUMI_HOME": r"C:\Users\ada", "PATH": ""}, tmp_path)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> Iterator[list[str]]:
    told: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", told.append)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    warn_if_missing.cache_clear()
    yield told
    warn_if_missing.cache_clear()


@pytest.mark.parametrize(("runner", "times"), [(CLI_RUNNER, 1), ("gpuform", 0)])
def test_it_is_said_once_and_to_the_cli_alone(
    runner: str, times: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", f"/opt/{runner}", "--monitor"])
    warn_if_missing()
    warn_if_missing()
    assert len(said) == times
    assert all("run `gpuform plugin install`" in each for each in said)


def test_it_is_not_said_where_there_is_one(
    said: list[str], version: InstalledPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", f"/opt/{CLI_RUNNER}", "--monitor"])
    warn_if_missing()
    assert said == []
