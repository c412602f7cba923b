"""Test that a command restarts once in the project's virtualenv, or reports missing packages."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.engine.machine import get_pip_requirement

Run = Any

PROGRAM = """
import os, sys
import pulumi
import only_there
pulumi.export("prefix", os.path.realpath(sys.prefix))
pulumi.export("active", os.environ["VIRTUAL_ENV"] == sys.prefix)
pulumi.export("first", os.environ["PATH"].split(os.pathsep)[0])
pulumi.export("marked", "GPUFORM_MOVED" in os.environ)
pulumi.export("argv", sys.argv)
"""


def write_options(project: Path, **options: str) -> None:
    lines = "".join(f"    {name}: {value}\n" for name, value in options.items())
    (project / "Pulumi.yaml").write_text(
        f"name: demo\nruntime:\n  name: python\n  options:\n{lines}backend:\n  url: file://.\n"
    )


@pytest.fixture(scope="module")
def virtualenv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a virtualenv with a module of its own and the packages of the tests."""
    folder = tmp_path_factory.mktemp("project-env") / "env"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "only_there.py").write_text("")
    # As that environment finds its packages: by site, which runs the hooks of editable installs.
    matching_paths = [path for path in sys.path if path.endswith("site-packages")]
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in matching_paths)
    (packages / "known.pth").write_text(lines)
    return folder


@pytest.fixture
def executed_commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], str]]:
    """Return the commands, with folders, that replace `gpuform -C . preview --json`."""
    commands: list[tuple[str, list[str], str]] = []

    def execve(python: Path, command: list[str], variables: dict[str, str]) -> None:
        assert variables["GPUFORM_MOVED"] == "1"
        assert "PYTHONHOME" not in variables
        commands.append((str(python), command, str(Path.cwd())))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(sys, "argv", ["gpuform", "-C", ".", "preview", "--json"])
    monkeypatch.setenv("PYTHONHOME", sys.base_prefix)
    return commands


def run_gpuform(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuform.stacks.cli", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_program_runs_in_the_project_s_virtualenv(
    dev: Run, project: Path, virtualenv: Path
) -> None:
    write_options(project, virtualenv="../there")
    (project.parent / "there").symlink_to(virtualenv)
    (project / "__main__.py").write_text(PROGRAM)
    # From another folder, relative: the arguments must mean the same again.
    done = run_gpuform("--cwd", project.name, "up", "--yes", cwd=project.parent)
    assert done.returncode == 0, done.stderr + done.stdout
    assert dev("stack", "output", "--json").json == {
        "prefix": os.path.realpath(virtualenv),
        "active": True,
        "first": str(project.parent / "there/bin"),
        "marked": False,
        "argv": ["."],
    }


@pytest.mark.slow
def test_the_exit_code_is_the_other_process_s(dev: Run, project: Path, virtualenv: Path) -> None:
    write_options(project, virtualenv=str(virtualenv))
    (project / "__main__.py").write_text("import only_there\nraise ValueError('stop here')\n")
    done = run_gpuform("preview", cwd=project)
    assert done.returncode == 1
    assert '__main__.py", line 2' in done.stdout + done.stderr
    assert "ValueError: stop here" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "beside"),
    [
        ({"virtualenv": "env"}, "env"),
        ({"toolchain": "pip", "virtualenv": "env"}, "env"),
        ({"toolchain": "uv"}, ".venv"),
        ({"toolchain": "uv", "virtualenv": "env"}, "env"),
    ],
)
def test_the_virtualenv_is_found_by_the_runtime_options(
    dev: Run,
    project: Path,
    virtualenv: Path,
    executed_commands: list[Any],
    options: dict[str, str],
    beside: str,
) -> None:
    write_options(project, **options)
    (project / beside).symlink_to(virtualenv)
    assert dev("-C", ".", "preview", "--json").out == ""
    python = str(project / beside / "bin/python")
    command = [python, "-P", "-m", "gpuform.stacks.cli", "-C", ".", "preview", "--json"]
    assert executed_commands == [(python, command, str(project))]


@pytest.mark.parametrize("marks", [["uv.lock"], ["pyproject.toml"], ["uv.lock", "pyproject.toml"]])
def test_the_virtualenv_of_uv_is_beside_its_lock_file(
    dev: Run, project: Path, virtualenv: Path, executed_commands: list[Any], marks: list[str]
) -> None:
    write_options(project, toolchain="uv")
    (project.parent / marks[0]).write_text("")
    if len(marks) > 1:  # the lock decides
        (project / marks[1]).write_text("")
    (project.parent / ".venv").symlink_to(virtualenv)
    dev("up", "--yes")
    assert [python for python, _, _ in executed_commands] == [
        str(project.parent / ".venv/bin/python")
    ]


def test_poetry_reports_the_virtualenv(
    dev: Run,
    project: Path,
    virtualenv: Path,
    executed_commands: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_options(project, toolchain="poetry")
    monkeypatch.delenv("PYTHONHOME")
    tools = project.parent / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "Pulumi.yaml:5:16: the toolchain is poetry" in dev("preview").err
    monkeypatch.setattr("shutil.which", lambda name: str(tools / name))
    poetry = tools / "poetry"
    poetry.write_text(
        f'#!/bin/sh\n[ "$*" = "env info --path" ] && pwd > asked && echo {virtualenv}\n'
    )
    poetry.chmod(0o755)
    assert dev("preview").code == 0
    assert (project / "asked").read_text().strip() == str(project)
    assert [python for python, _, _ in executed_commands] == [str(virtualenv / "bin/python")]
    poetry.write_text("#!/bin/sh\nexit 1\n")
    ran = dev("preview")
    assert "Poetry has no virtualenv" in ran.err
    assert "poetry install" in ran.err


def test_the_windows_layout_of_a_virtualenv_is_found(
    dev: Run, project: Path, executed_commands: list[Any], virtualenv: Path
) -> None:
    write_options(project, virtualenv="env")
    (project / "env/Scripts").mkdir(parents=True)
    (project / "env/Scripts/python.exe").symlink_to(virtualenv / "bin/python")
    ran = dev("preview")
    # The interpreter is found; the packages of this one are elsewhere.
    assert f"{project}/env has no gpuform" in ran.err


def test_the_running_virtualenv_starts_no_other_process(
    dev: Run, project: Path, executed_commands: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "linked").symlink_to(sys.prefix)
    write_options(project, virtualenv="linked")
    assert dev("preview", "--emulate").code == 0
    assert executed_commands == []


def test_a_command_restarts_in_the_virtualenv_only_once(
    dev: Run,
    project: Path,
    virtualenv: Path,
    executed_commands: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_options(project, virtualenv=str(virtualenv))
    monkeypatch.setenv("GPUFORM_MOVED", "1")
    assert dev("preview", "--emulate").code == 0
    assert executed_commands == []
    assert "GPUFORM_MOVED" not in os.environ


@pytest.mark.parametrize("command", ["preview", "up", "refresh", "destroy"])
def test_every_command_that_loads_the_projects_code_restarts(
    dev: Run, project: Path, virtualenv: Path, executed_commands: list[Any], command: str
) -> None:
    write_options(project, virtualenv=str(virtualenv))
    ran = dev(command, *([] if command == "preview" else ["--yes"]))
    assert (ran.code, ran.out, ran.err, len(executed_commands)) == (0, "", "", 1)


def test_commands_that_run_no_program_do_not_restart(
    dev: Run, project: Path, virtualenv: Path, executed_commands: list[Any]
) -> None:
    write_options(project, virtualenv=str(virtualenv))
    assert dev("stack", "ls").code == 0
    assert dev("config").code == 0
    assert executed_commands == []


def test_a_missing_virtualenv_is_reported_with_its_line(dev: Run, project: Path) -> None:
    write_options(project, virtualenv="nowhere")
    ran = dev("preview")
    assert ran.code == 1
    assert ran.err.startswith(f"error: {project}/Pulumi.yaml:5:17: no virtualenv in ")
    assert f"python3 -m venv {project}/nowhere" in ran.err
    assert "remove the option `virtualenv`" in ran.err
    write_options(project, toolchain="uv")
    ran = dev("up", "--yes")
    assert f"{project}/Pulumi.yaml:5:16: no virtualenv in {project}/.venv" in ran.err
    assert "uv sync" in ran.err


def test_a_virtualenv_without_gpuform_says_how_to_install(
    dev: Run, project: Path, executed_commands: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(project / "empty", symlinks=True)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    write_options(project, virtualenv="empty")
    ran = dev("destroy", "--yes")
    assert ran.code == 1
    assert f"Pulumi.yaml:5:17: the project's virtualenv {project}/empty has no gpuform" in ran.err
    assert f"`{project}/empty/bin/pip install '{get_pip_requirement()}'`" in ran.err
    assert executed_commands == []


def test_an_interpreter_that_cannot_be_executed_is_reported(dev: Run, project: Path) -> None:
    (project / "broken/bin").mkdir(parents=True)
    (project / "broken/bin/python").write_text("")
    write_options(project, virtualenv="broken")
    assert "broken/bin/python cannot be run: Permission denied" in dev("preview").err


def test_an_unknown_toolchain_is_reported_with_the_choices(dev: Run, project: Path) -> None:
    write_options(project, toolchain="conda")
    assert "Pulumi.yaml:5:16: the toolchain must be one of pip, poetry and uv" in dev("preview").err
