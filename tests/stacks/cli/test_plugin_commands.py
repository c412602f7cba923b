"""`gpuform plugin`: the plugin is installed, and whatever is wrong with it has its remedy."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.plugin.locations import COMMAND, build_launcher, get_plugin_version
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.doctor.plugin import PluginSearch, examine_plugin, read_plugin_version

OURS = get_plugin_version()
ANSWERING = """\
#!{python}
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc

class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version="{version}")

class Mute(provider_pb2_grpc.ResourceProviderServicer):
    pass

server = grpc.server(ThreadPoolExecutor(1))
provider_pb2_grpc.add_ResourceProviderServicer_to_server({servicer}(), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand for plugins")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PULUMI_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}


def install_program(
    environ: dict[str, str], content: str | bytes, name: str = COMMAND, version: str = OURS
) -> Path:
    """Write an executable into the plugin folder of `version`, and return its path."""
    program = Path(environ["PULUMI_HOME"]) / "plugins" / f"resource-gpuform-v{version}" / name
    program.parent.mkdir(parents=True)
    program.write_bytes(content.encode() if isinstance(content, str) else content)
    program.chmod(0o755)
    return program


def build_answering_program(version: str = OURS, servicer: str = "Servicer") -> str:
    return ANSWERING.format(python=sys.executable, version=version, servicer=servicer)


def return_version(version: str) -> Any:
    return lambda _program, _environ: version


def examine(environ: dict[str, str], **options: Any) -> list[Finding]:
    finding = examine_plugin(PluginSearch(environ, **options))
    assert all(item.remedy for item in finding if item.level in (Level.WARNING, Level.PROBLEM))
    return finding


def find_problem(environ: dict[str, str], **options: Any) -> Finding:
    (finding,) = [item for item in examine(environ, **options) if item.level is Level.PROBLEM]
    return finding


class TestStarted:
    """Answers of a plugin process that is really started."""

    def test_a_working_plugin_is_ok(self, environ: dict[str, str]) -> None:
        program = install_program(environ, build_answering_program())
        (finding,) = examine(environ)
        assert finding == Finding("plugin", Level.OK, f"{program} is gpuform {OURS}, and answers")

    def test_a_plugin_of_another_version_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, build_answering_program("0.0.7"))
        finding = find_problem(environ)
        assert f"is gpuform 0.0.7, but this is gpuform {OURS}" in finding.text
        assert finding.remedy == "run `gpuform plugin install`"

    def test_a_program_without_the_plugin_protocol_is_a_problem(
        self, environ: dict[str, str]
    ) -> None:
        install_program(environ, build_answering_program(servicer="Mute"))
        assert (
            "does not answer GetPluginInfo: Method not implemented!" in find_problem(environ).text
        )

    def test_a_port_without_a_server_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, "#!/bin/sh\necho 1\nexec sleep 60\n")
        finding = find_problem(
            environ,
            read_version=lambda program, environ: read_plugin_version(program, environ, 0.2),
        )
        assert "listens on port 1 but does not answer GetPluginInfo: " in finding.text

    def test_output_before_the_port_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, "#!/bin/sh\nprintf 'hello \\033[31mworld\\n'\necho 4242\n")
        finding = find_problem(environ)
        assert "prints before its port: 'hello " in finding.text
        assert "\033" not in finding.text
        assert "sitecustomize.py" in finding.remedy

    def test_a_program_that_ends_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(
            environ, "#!/bin/sh\necho first >&2\necho 'No module named gpuform' >&2\nexit 3\n"
        )
        problem = find_problem(environ).text
        assert problem.endswith("ended before it printed its port: No module named gpuform")

    def test_a_program_without_output_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, "#!/bin/sh\nexec sleep 60\n")
        finding = find_problem(
            environ,
            read_version=lambda program, environ: read_plugin_version(program, environ, 0.01),
        )
        assert "did not print its port within 0.01 s" in finding.text

    def test_a_file_that_cannot_be_executed_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, b"\x00\x01")
        assert "cannot be started: Exec format error" in find_problem(environ).text


class TestLookedAt:
    """Problems that are found before the plugin is started."""

    def test_a_missing_plugin_is_a_problem(self, environ: dict[str, str], tmp_path: Path) -> None:
        finding = find_problem(environ)
        assert (
            f"the plugin is not installed: {tmp_path / 'home' / 'plugins'} has none" in finding.text
        )
        assert finding.remedy == "run `gpuform plugin install`"

    @pytest.mark.parametrize(
        ("version", "is_reported"), [("v3.274.1", False), ("v3.275.0", True), ("v4.0.0", True)]
    )
    def test_an_untested_cli_is_a_warning(
        self, environ: dict[str, str], tmp_path: Path, version: str, is_reported: bool
    ) -> None:
        cli = tmp_path / "bin" / "pulumi"
        cli.parent.mkdir()
        cli.write_text(f"#!/bin/sh\necho {version}\n")
        cli.chmod(0o755)
        install_program(environ, build_launcher(Path(sys.executable), windows=False))
        environ["PATH"] = f"{cli.parent}:{environ['PATH']}"
        first, *others = examine(environ, read_version=return_version(OURS))
        assert ("is newer than 3.274" in first.text) == is_reported
        assert len(others) == is_reported

    def test_a_moved_virtualenv_is_a_problem(self, environ: dict[str, str], tmp_path: Path) -> None:
        python = tmp_path / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        install_program(environ, build_launcher(python, windows=False))
        assert examine(environ, read_version=return_version(OURS))[0].level is Level.OK
        (tmp_path / "venv").rename(tmp_path / "moved")
        finding = find_problem(environ)
        assert f"starts {python}, which does not exist" in finding.text
        assert "moved or deleted" in finding.text
        assert "run `gpuform plugin install`" in finding.remedy

    def test_a_pip_script_of_a_deleted_virtualenv_is_a_problem(
        self, environ: dict[str, str]
    ) -> None:
        install_program(environ, "#!/gone/bin/python\nimport sys\n")
        assert "starts /gone/bin/python, which does not exist" in find_problem(environ).text

    def test_an_interpreter_with_a_windows_path_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, r"#!C:\Users\ada\venv\Scripts\python.exe")
        assert r"venv\Scripts\python.exe, a Windows path" in find_problem(environ).text

    def test_a_home_of_windows(self) -> None:
        finding = find_problem({"PULUMI_HOME": r"C:\Users\ada\.pulumi"}, windows=False)
        assert r"PULUMI_HOME is C:\Users\ada\.pulumi, a Windows path" in finding.text
        assert "/mnt/c/" in finding.remedy

    def test_a_plugin_installed_for_windows_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, b"MZ", f"{COMMAND}.exe")
        assert "which is for Windows" in find_problem(environ).text

    def test_a_plugin_not_installed_for_windows_is_a_problem_there(
        self, environ: dict[str, str]
    ) -> None:
        install_program(environ, "#!/bin/sh\n")
        problem = find_problem(environ, windows=True).text
        assert f"Windows only starts {COMMAND}.exe or {COMMAND}.cmd" in problem

    def test_a_pip_program_of_a_deleted_virtualenv_is_a_problem_on_windows(
        self, environ: dict[str, str]
    ) -> None:
        program = install_program(environ, rf"MZ#!C:\gone\python.exe{chr(10)}PK", f"{COMMAND}.exe")
        assert (
            r"starts C:\gone\python.exe, which does not exist"
            in find_problem(environ, windows=True).text
        )
        program.write_bytes(f"MZ#!{sys.executable}\nPK".encode())
        (finding,) = examine(environ, windows=True, read_version=return_version(OURS))
        assert finding.level is Level.OK

    def test_an_empty_plugin_folder_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, "").unlink()
        assert f"has no {COMMAND}" in find_problem(environ).text

    def test_a_program_without_execute_permission_is_a_problem(
        self, environ: dict[str, str]
    ) -> None:
        program = install_program(environ, build_answering_program())
        program.chmod(0o644)
        finding = find_problem(environ)
        assert finding.text == f"{program} is not executable"
        assert finding.remedy.startswith(f"chmod u+x '{program}'")

    def test_an_interrupted_installation_is_a_problem(self, environ: dict[str, str]) -> None:
        folder = install_program(environ, build_answering_program()).parent
        folder.with_name(f"{folder.name}.partial").touch()
        texts = [item.text for item in examine(environ)]
        assert len(texts) == 2
        assert "is incomplete: an installation was interrupted" in texts[0]
        assert "is not installed" in texts[1]

    def test_a_newer_installed_plugin_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, build_answering_program())
        install_program(environ, build_answering_program("9.0.0"), version="9.0.0")
        note, wrong = examine(environ, read_version=return_version("9.0.0"))
        assert note.level is Level.NOTE
        assert f"v{OURS} also exists: Pulumi uses the newest version" in note.text
        assert "`gpuform plugin uninstall 9.0.0`" in wrong.remedy

    def test_a_folder_name_of_another_version_is_a_problem(self, environ: dict[str, str]) -> None:
        """The environment was upgraded later: the old folder starts the new version."""
        install_program(environ, build_answering_program(), version="0.0.1")
        finding = find_problem(environ, read_version=return_version(OURS))
        assert "its folder says 0.0.1" in finding.text
        assert "`gpuform plugin uninstall 0.0.1`" in finding.remedy

    def test_an_invalid_version_is_a_problem(self, environ: dict[str, str]) -> None:
        install_program(environ, build_answering_program())
        assert (
            "reports the invalid version 'none'"
            in find_problem(environ, read_version=return_version("none")).text
        )


class TestOnThePath:
    def test_a_plugin_on_the_path_is_used_with_a_warning(
        self, environ: dict[str, str], tmp_path: Path
    ) -> None:
        install_program(environ, build_answering_program())
        ambient = tmp_path / "bin" / COMMAND
        shutil.copytree(
            Path(environ["PULUMI_HOME"]) / "plugins" / f"resource-gpuform-v{OURS}", ambient.parent
        )
        environ["PATH"] = f"{ambient.parent}{os.pathsep}{environ['PATH']}"
        warning, works = examine(environ, read_version=return_version(OURS))
        assert warning.level is Level.WARNING
        assert f"Pulumi uses {ambient} from the PATH" in warning.text
        assert "PULUMI_IGNORE_AMBIENT_PLUGINS=true" in warning.remedy
        assert works.text == f"{ambient} is gpuform {OURS}, and answers"
        environ["PULUMI_IGNORE_AMBIENT_PLUGINS"] = "true"
        (works,) = examine(environ, read_version=return_version(OURS))
        assert str(tmp_path / "home") in works.text

    def test_a_plugin_on_the_path_of_another_version_is_a_problem(
        self, environ: dict[str, str], tmp_path: Path
    ) -> None:
        environ["PATH"] = str(install_program(environ, build_answering_program("0.0.7")).parent)
        finding = find_problem(environ, read_version=return_version("0.0.7"))
        assert finding.remedy == "use the plugin of this gpuform: activate its virtualenv, or none"


PROJECT = "name: demo\nruntime: python\nplugins:\n  providers: [{{name: gpuform, path: {path}}}]\n"


class TestNamedByTheProject:
    def test_a_plugin_named_by_the_project_is_used_before_all_others(
        self, environ: dict[str, str], tmp_path: Path
    ) -> None:
        program = install_program(environ, build_answering_program())
        project = tmp_path / "Pulumi.yaml"
        project.write_text(PROJECT.format(path=f"./{program.parent.relative_to(tmp_path)}"))
        environ["PULUMI_HOME"] = str(tmp_path / "empty")
        note, works = examine(environ, project=project, read_version=return_version(OURS))
        assert note.text.startswith(f"{project} names the plugin in ./home/plugins/")
        assert works.level is Level.OK

    def test_a_missing_plugin_named_by_the_project_is_a_problem(
        self, environ: dict[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "Pulumi.yaml").write_text(PROJECT.format(path="bin"))
        finding = find_problem(environ, project=tmp_path / "Pulumi.yaml")
        assert finding.text == f"{tmp_path / 'bin'} has no {COMMAND}"

    def test_a_windows_path_in_the_project_is_a_problem(
        self, environ: dict[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "Pulumi.yaml").write_text(PROJECT.format(path=r"C:\Users\ada\venv\Scripts"))
        finding = find_problem(environ, project=tmp_path / "Pulumi.yaml")
        assert r"names C:\Users\ada\venv\Scripts, a Windows path" in finding.text

    @pytest.mark.parametrize("text", ["", "name: a", "plugins: [1]", "plugins: {providers: 1}"])
    def test_a_project_without_a_plugin_name_uses_the_installed_plugin(
        self, environ: dict[str, str], tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "Pulumi.yaml").write_text(text)
        assert "not installed" in find_problem(environ, project=tmp_path / "Pulumi.yaml").text


class TestCommands:
    def test_install_and_uninstall_add_and_remove_the_plugin(
        self, run: Any, tmp_path: Path
    ) -> None:
        folder = tmp_path / "home" / "plugins" / f"resource-gpuform-v{OURS}"
        result = run("plugin", "install")
        assert (result.code, result.out) == (0, f"gpuform {OURS} is installed: {folder}\n")
        result = run("plugin", "install")
        assert (result.code, result.out) == (0, f"gpuform {OURS} is installed already: {folder}\n")
        assert run("plugin", "uninstall", "8.8.8").code == 1
        result = run("plugin", "uninstall")
        assert (result.code, result.out) == (0, f"removed {folder}\n")
        result = run("plugin", "uninstall")
        assert (result.code, result.err) == (1, "error: the plugin is not installed\n")

    @pytest.mark.slow
    def test_the_installed_plugin_works_without_a_virtualenv(
        self, run: Any, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The plugin also starts in a project whose modules have the names of installed ones."""
        assert run("plugin", "install").code == 0
        for name in ("queue.py", "grpc.py"):
            (project / name).write_text("raise SystemExit('taken from the project')\n")
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        result = run("plugin", "doctor")
        assert (result.code, result.out.splitlines()[-1]) == (0, "No problems found.")

    def test_install_reports_a_newer_plugin(self, run: Any, tmp_path: Path) -> None:
        for name in ("0.0.1", "99.0.0"):
            (tmp_path / "home" / "plugins" / f"resource-gpuform-v{name}").mkdir(parents=True)
        result = run("plugin", "install")
        assert result.code == 0
        assert "warning: Pulumi uses the newest version, " in result.err
        assert "gpuform plugin uninstall 99.0.0" in result.err
        assert "0.0.1" not in result.err

    def test_a_home_of_windows(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_HOME", r"C:\Users\ada\.pulumi")
        result = run("plugin", "install")
        assert result.code == 1
        assert "a Windows path" in result.err
        assert not list(Path().glob("C:*"))

    def test_doctor(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        result = run("plugin", "doctor")
        assert result.code == 1
        assert "problem  the plugin is not installed" in result.out
        assert "-> run `gpuform plugin install`" in result.out
        finding = run("plugin", "doctor", "--json")
        assert (finding.code, finding.json["ok"]) == (1, False)
        assert finding.json["findings"][0]["area"] == "plugin"
