"""`gpuform plugin`: the plugin is installed, and whatever is wrong with it has its remedy."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.plugin.launchers import build_launcher
from gpuform.providers.plugin.locations import COMMAND, get_plugin_version
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.doctor.plugin import Surroundings, examine_plugin, version_of

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


def put(environ: dict[str, str], text: str | bytes, name: str = COMMAND, of: str = OURS) -> Path:
    """A constructed installation."""
    program = Path(environ["PULUMI_HOME"]) / "plugins" / f"resource-gpuform-v{of}" / name
    program.parent.mkdir(parents=True)
    program.write_bytes(text.encode() if isinstance(text, str) else text)
    program.chmod(0o755)
    return program


def answering(version: str = OURS, servicer: str = "Servicer") -> str:
    return ANSWERING.format(python=sys.executable, version=version, servicer=servicer)


def answers(version: str) -> Any:
    return lambda _program, _environ: version


def examine(environ: dict[str, str], **around: Any) -> list[Finding]:
    found = examine_plugin(Surroundings(environ, **around))
    assert all(each.remedy for each in found if each.level in (Level.WARNING, Level.PROBLEM))
    return found


def problem(environ: dict[str, str], **around: Any) -> Finding:
    (found,) = [each for each in examine(environ, **around) if each.level is Level.PROBLEM]
    return found


class TestStarted:
    """What a plugin that is really started answers."""

    def test_one_that_works(self, environ: dict[str, str]) -> None:
        program = put(environ, answering())
        (found,) = examine(environ)
        assert found == Finding("plugin", Level.OK, f"{program} is gpuform {OURS}, and answers")

    def test_another_version_than_the_package(self, environ: dict[str, str]) -> None:
        put(environ, answering("0.0.7"))
        found = problem(environ)
        assert f"is gpuform 0.0.7, and this is gpuform {OURS}" in found.text
        assert found.remedy == "run `gpuform plugin install`"

    def test_one_that_does_not_know_the_question(self, environ: dict[str, str]) -> None:
        put(environ, answering(servicer="Mute"))
        assert "does not answer GetPluginInfo: Method not implemented!" in problem(environ).text

    def test_a_port_where_nobody_listens(self, environ: dict[str, str]) -> None:
        put(environ, "#!/bin/sh\necho 1\nexec sleep 60\n")
        found = problem(environ, ask=lambda program, environ: version_of(program, environ, 0.2))
        assert "listens on port 1 and does not answer GetPluginInfo: " in found.text

    def test_something_printed_before_the_port(self, environ: dict[str, str]) -> None:
        put(environ, "#!/bin/sh\nprintf 'hello \\033[31mworld\\n'\necho 4242\n")
        found = problem(environ)
        assert "prints before its port: 'hello " in found.text
        assert "\033" not in found.text
        assert "sitecustomize.py" in found.remedy

    def test_one_that_ends(self, environ: dict[str, str]) -> None:
        put(environ, "#!/bin/sh\necho first >&2\necho 'No module named gpuform' >&2\nexit 3\n")
        text = problem(environ).text
        assert text.endswith("ended before it told its port: No module named gpuform")

    def test_one_that_says_nothing(self, environ: dict[str, str]) -> None:
        put(environ, "#!/bin/sh\nexec sleep 60\n")
        found = problem(environ, ask=lambda program, environ: version_of(program, environ, 0.01))
        assert "has not told its port after 0.01 s" in found.text

    def test_no_program_at_all(self, environ: dict[str, str]) -> None:
        put(environ, b"\x00\x01")
        assert "cannot be started: Exec format error" in problem(environ).text


class TestLookedAt:
    """What is wrong before anything is started."""

    def test_a_missing_plugin(self, environ: dict[str, str], tmp_path: Path) -> None:
        found = problem(environ)
        assert (
            f"the plugin is not installed: {tmp_path / 'home' / 'plugins'} has none" in found.text
        )
        assert found.remedy == "run `gpuform plugin install`"

    @pytest.mark.parametrize(
        ("version", "is_told"), [("v3.274.1", False), ("v3.275.0", True), ("v4.0.0", True)]
    )
    def test_a_cli_that_may_look_elsewhere(
        self, environ: dict[str, str], tmp_path: Path, version: str, is_told: bool
    ) -> None:
        cli = tmp_path / "bin" / "pulumi"
        cli.parent.mkdir()
        cli.write_text(f"#!/bin/sh\necho {version}\n")
        cli.chmod(0o755)
        put(environ, build_launcher(Path(sys.executable), windows=False))
        environ["PATH"] = f"{cli.parent}:{environ['PATH']}"
        first, *others = examine(environ, ask=answers(OURS))
        assert ("is newer than 3.274" in first.text) == is_told
        assert len(others) == is_told

    def test_a_virtualenv_that_was_moved(self, environ: dict[str, str], tmp_path: Path) -> None:
        python = tmp_path / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        put(environ, build_launcher(python, windows=False))
        assert examine(environ, ask=answers(OURS))[0].level is Level.OK
        (tmp_path / "venv").rename(tmp_path / "moved")
        found = problem(environ)
        assert f"starts {python}, which is not there" in found.text
        assert "moved or deleted" in found.text
        assert "run `gpuform plugin install`" in found.remedy

    def test_pips_script_of_a_virtualenv_that_is_gone(self, environ: dict[str, str]) -> None:
        put(environ, "#!/gone/bin/python\nimport sys\n")
        assert "starts /gone/bin/python, which is not there" in problem(environ).text

    def test_an_interpreter_of_windows(self, environ: dict[str, str]) -> None:
        put(environ, r"#!C:\Users\ada\venv\Scripts\python.exe")
        assert r"venv\Scripts\python.exe, a path of Windows" in problem(environ).text

    def test_a_home_of_windows(self) -> None:
        found = problem({"PULUMI_HOME": r"C:\Users\ada\.pulumi"}, windows=False)
        assert r"PULUMI_HOME is C:\Users\ada\.pulumi, a Windows path" in found.text
        assert "/mnt/c/" in found.remedy

    def test_what_was_installed_for_windows(self, environ: dict[str, str]) -> None:
        put(environ, b"MZ", f"{COMMAND}.exe")
        assert "which is made for Windows" in problem(environ).text

    def test_on_windows_what_was_not(self, environ: dict[str, str]) -> None:
        put(environ, "#!/bin/sh\n")
        text = problem(environ, windows=True).text
        assert f"Windows starts {COMMAND}.exe or {COMMAND}.cmd alone" in text

    def test_on_windows_pips_program(self, environ: dict[str, str]) -> None:
        program = put(environ, rf"MZ#!C:\gone\python.exe{chr(10)}PK", f"{COMMAND}.exe")
        assert (
            r"starts C:\gone\python.exe, which is not there" in problem(environ, windows=True).text
        )
        program.write_bytes(f"MZ#!{sys.executable}\nPK".encode())
        (found,) = examine(environ, windows=True, ask=answers(OURS))
        assert found.level is Level.OK

    def test_an_empty_folder(self, environ: dict[str, str]) -> None:
        put(environ, "").unlink()
        assert f"has no {COMMAND}" in problem(environ).text

    def test_no_permission(self, environ: dict[str, str]) -> None:
        program = put(environ, answering())
        program.chmod(0o644)
        found = problem(environ)
        assert found.text == f"{program} may not be executed"
        assert found.remedy.startswith(f"chmod u+x '{program}'")

    def test_an_installation_that_was_interrupted(self, environ: dict[str, str]) -> None:
        folder = put(environ, answering()).parent
        folder.with_name(f"{folder.name}.partial").touch()
        texts = [each.text for each in examine(environ)]
        assert len(texts) == 2
        assert "is not finished: an installation was interrupted" in texts[0]
        assert "is not installed" in texts[1]

    def test_a_newer_one_that_pulumi_takes(self, environ: dict[str, str]) -> None:
        put(environ, answering())
        put(environ, answering("9.0.0"), of="9.0.0")
        note, wrong = examine(environ, ask=answers("9.0.0"))
        assert note.level is Level.NOTE
        assert f"v{OURS} is there, too: Pulumi takes the newest" in note.text
        assert "`gpuform plugin uninstall 9.0.0`" in wrong.remedy

    def test_a_folder_of_another_version(self, environ: dict[str, str]) -> None:
        """The environment was upgraded since: the old folder starts what is new."""
        put(environ, answering(), of="0.0.1")
        found = problem(environ, ask=answers(OURS))
        assert "its folder says 0.0.1" in found.text
        assert "`gpuform plugin uninstall 0.0.1`" in found.remedy

    def test_no_version(self, environ: dict[str, str]) -> None:
        put(environ, answering())
        assert "says that its version is 'none'" in problem(environ, ask=answers("none")).text


class TestOnThePath:
    def test_it_is_taken_with_a_warning(self, environ: dict[str, str], tmp_path: Path) -> None:
        put(environ, answering())
        ambient = tmp_path / "bin" / COMMAND
        shutil.copytree(
            Path(environ["PULUMI_HOME"]) / "plugins" / f"resource-gpuform-v{OURS}", ambient.parent
        )
        environ["PATH"] = f"{ambient.parent}{os.pathsep}{environ['PATH']}"
        warning, works = examine(environ, ask=answers(OURS))
        assert warning.level is Level.WARNING
        assert f"Pulumi takes {ambient}, which is on the PATH" in warning.text
        assert "PULUMI_IGNORE_AMBIENT_PLUGINS=true" in warning.remedy
        assert works.text == f"{ambient} is gpuform {OURS}, and answers"
        environ["PULUMI_IGNORE_AMBIENT_PLUGINS"] = "true"
        (works,) = examine(environ, ask=answers(OURS))
        assert str(tmp_path / "home") in works.text

    def test_of_another_version(self, environ: dict[str, str], tmp_path: Path) -> None:
        environ["PATH"] = str(put(environ, answering("0.0.7")).parent)
        found = problem(environ, ask=answers("0.0.7"))
        assert found.remedy == "take the plugin of this gpuform: activate its virtualenv, or none"


PROJECT = "name: demo\nruntime: python\nplugins:\n  providers: [{{name: gpuform, path: {path}}}]\n"


class TestNamedByTheProject:
    def test_it_is_taken_before_all_others(self, environ: dict[str, str], tmp_path: Path) -> None:
        program = put(environ, answering())
        project = tmp_path / "Pulumi.yaml"
        project.write_text(PROJECT.format(path=f"./{program.parent.relative_to(tmp_path)}"))
        environ["PULUMI_HOME"] = str(tmp_path / "empty")
        note, works = examine(environ, project=project, ask=answers(OURS))
        assert note.text.startswith(f"{project} names the plugin in ./home/plugins/")
        assert works.level is Level.OK

    def test_it_is_not_there(self, environ: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / "Pulumi.yaml").write_text(PROJECT.format(path="bin"))
        found = problem(environ, project=tmp_path / "Pulumi.yaml")
        assert found.text == f"{tmp_path / 'bin'} has no {COMMAND}"

    def test_a_path_of_windows(self, environ: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / "Pulumi.yaml").write_text(PROJECT.format(path=r"C:\Users\ada\venv\Scripts"))
        found = problem(environ, project=tmp_path / "Pulumi.yaml")
        assert r"names C:\Users\ada\venv\Scripts, a path of Windows" in found.text

    @pytest.mark.parametrize("text", ["", "name: a", "plugins: [1]", "plugins: {providers: 1}"])
    def test_a_project_that_names_none(
        self, environ: dict[str, str], tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "Pulumi.yaml").write_text(text)
        assert "not installed" in problem(environ, project=tmp_path / "Pulumi.yaml").text


class TestCommands:
    def test_install_and_uninstall(self, run: Any, tmp_path: Path) -> None:
        folder = tmp_path / "home" / "plugins" / f"resource-gpuform-v{OURS}"
        told = run("plugin", "install")
        assert (told.code, told.out) == (0, f"gpuform {OURS} is installed: {folder}\n")
        told = run("plugin", "install")
        assert (told.code, told.out) == (0, f"gpuform {OURS} is installed already: {folder}\n")
        assert run("plugin", "uninstall", "8.8.8").code == 1
        told = run("plugin", "uninstall")
        assert (told.code, told.out) == (0, f"removed {folder}\n")
        told = run("plugin", "uninstall")
        assert (told.code, told.err) == (1, "error: the plugin is not installed\n")

    @pytest.mark.slow
    def test_what_is_installed_works_without_a_virtualenv(
        self, run: Any, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also in a project whose own modules have the names of others."""
        assert run("plugin", "install").code == 0
        for name in ("queue.py", "grpc.py"):
            (project / name).write_text("raise SystemExit('taken from the project')\n")
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        told = run("plugin", "doctor")
        assert (told.code, told.out.splitlines()[-1]) == (0, "All is well.")

    def test_a_newer_one_is_told(self, run: Any, tmp_path: Path) -> None:
        for name in ("0.0.1", "99.0.0"):
            (tmp_path / "home" / "plugins" / f"resource-gpuform-v{name}").mkdir(parents=True)
        told = run("plugin", "install")
        assert told.code == 0
        assert "warning: Pulumi uses the newest version, " in told.err
        assert "gpuform plugin uninstall 99.0.0" in told.err
        assert "0.0.1" not in told.err

    def test_a_home_of_windows(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_HOME", r"C:\Users\ada\.pulumi")
        told = run("plugin", "install")
        assert told.code == 1
        assert "a Windows path" in told.err
        assert not list(Path().glob("C:*"))

    def test_doctor(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        told = run("plugin", "doctor")
        assert told.code == 1
        assert "problem  the plugin is not installed" in told.out
        assert "-> run `gpuform plugin install`" in told.out
        found = run("plugin", "doctor", "--json")
        assert (found.code, found.json["ok"]) == (1, False)
        assert found.json["findings"][0]["area"] == "plugin"
