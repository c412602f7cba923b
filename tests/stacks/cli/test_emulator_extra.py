"""Test that `--emulate` names the extra when the emulator's packages are missing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.emulator.server import environment, serve

Run = Any
PACKAGES = ("flask", "werkzeug", "wsproto")
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({PACKAGES!r}))
from gpuform.stacks.cli import main
main()
"""
"""The command line where nothing of the extra can be imported."""


@pytest.mark.parametrize(
    "command",
    [
        ("up", "--emulate", "--yes"),
        ("preview", "--emulate"),
        ("destroy", "--emulate", "--yes"),
        ("doctor", "--emulate"),
        ("orphans", "--emulate"),
        ("emulator",),
        ("emulator", "env"),
        ("emulator", "share", "."),
    ],
    ids=" ".join,
)
def test_emulate_without_its_packages_says_what_to_install(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    for package in PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    ran = dev(*command)
    assert ran.code == 1
    assert (
        "the emulator requires packages that are not installed: flask, werkzeug, wsproto"
    ) in ran.err
    assert "pip install '" in ran.err
    assert "[emulator]'" in ran.err
    assert not (project / ".gpuform").exists()


def test_emulate_names_only_the_missing_packages(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wsproto", None)
    assert "that are not installed: wsproto\n" in dev("preview", "--emulate").err


@pytest.mark.slow
def test_real_platforms_work_without_the_emulators_packages(dev: Run, project: Path) -> None:
    with serve(seed="extra") as server:
        variables = {**os.environ, **environment(server.url)}
        for command, code, message in (
            (["up", "--yes", "--stack", "dev"], 0, "created"),
            (["destroy", "--yes", "--stack", "dev"], 0, "deleted"),
            (["up", "--emulate", "--yes", "--stack", "dev"], 1, "[emulator]"),
        ):
            ran = subprocess.run(
                [sys.executable, "-c", WITHOUT, *command],
                cwd=project,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == code, ran.stderr
            assert message in ran.stdout + ran.stderr
