"""Test that a program run by the Pulumi CLI warns if the plugin is missing."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pulumi
import pytest

from gpuform.providers.plugin.locations import (
    CLI_RUNNER,
    COMMAND,
    InstalledPlugin,
    get_plugins_folder,
    is_plugin_available,
    locate_version,
    warn_if_plugin_missing,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand for plugins")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PULUMI_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


@pytest.fixture
def installed_plugin(environ: dict[str, str]) -> InstalledPlugin:
    plugin = locate_version(get_plugins_folder(environ), "0.1.0")
    plugin.folder.mkdir(parents=True)
    return plugin


def test_only_a_complete_installation_is_available(
    environ: dict[str, str], installed_plugin: InstalledPlugin, tmp_path: Path
) -> None:
    assert is_plugin_available(environ, tmp_path)
    installed_plugin.partial.touch()
    assert not is_plugin_available(environ, tmp_path)


def test_a_plugin_on_the_path_is_available(environ: dict[str, str], tmp_path: Path) -> None:
    assert not is_plugin_available(environ, tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / COMMAND).touch(mode=0o755)
    assert is_plugin_available(environ, tmp_path)
    assert not is_plugin_available({**environ, "PULUMI_IGNORE_AMBIENT_PLUGINS": "true"}, tmp_path)


def test_a_plugin_of_the_project_is_available(environ: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "Pulumi.yaml"
    project.write_text("name: demo\n")
    program = tmp_path / "program"
    program.mkdir()
    assert not is_plugin_available(environ, program)
    project.write_text("plugins: {providers: [{name: gpuform, path: bin}]}\n")
    assert is_plugin_available(environ, program)
    project.write_text("plugins: [")
    assert is_plugin_available(environ, program)


def test_no_plugin_is_available_in_a_windows_path(tmp_path: Path) -> None:
    assert not is_plugin_available({"PULUMI_HOME": r"C:\Users\ada", "PATH": ""}, tmp_path)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> Iterator[list[str]]:
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", messages.append)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    warn_if_plugin_missing.cache_clear()
    yield messages
    warn_if_plugin_missing.cache_clear()


@pytest.mark.parametrize(("runner", "times"), [(CLI_RUNNER, 1), ("gpuform", 0)])
def test_a_missing_plugin_is_warned_about_once_and_only_under_the_cli(
    runner: str, times: int, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", f"/opt/{runner}", "--monitor"])
    warn_if_plugin_missing()
    warn_if_plugin_missing()
    assert len(warnings) == times
    assert all("run `gpuform plugin install`" in message for message in warnings)


def test_no_warning_if_the_plugin_is_installed(
    warnings: list[str], installed_plugin: InstalledPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", f"/opt/{CLI_RUNNER}", "--monitor"])
    warn_if_plugin_missing()
    assert warnings == []
