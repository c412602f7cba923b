"""Test which Pulumi CLI the tests build, and the messages when the build is impossible."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import pinned_pulumi

from gpuform.stacks.engine.machine import LAST_TRIED

SCRIPT = Path(pinned_pulumi.__file__)


def test_the_pinned_cli_is_the_one_that_doctor_knows() -> None:
    major, minor, _ = pinned_pulumi.read_pinned_version().split(".")
    assert (int(major), int(minor)) == LAST_TRIED


def test_the_reason_is_told_where_there_is_no_go(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "caches")}
    argv = [sys.executable, str(SCRIPT)]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    version = pinned_pulumi.read_pinned_version()
    assert done.stdout == f"Pulumi CLI {version}: not built: Go is not on PATH\n"


def test_the_cli_of_path_is_taken_before_the_pinned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert pinned_pulumi.find_pulumi() is None
    built = pinned_pulumi.get_pinned_folder() / "pulumi"
    for cli in (built, tmp_path / "bin" / "pulumi"):
        cli.parent.mkdir(parents=True)
        cli.write_text("#!/bin/sh\n")
        cli.chmod(0o755)
        assert pinned_pulumi.find_pulumi() == str(cli)
