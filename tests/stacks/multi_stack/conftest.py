"""Folders with projects, and nothing of the user's environment."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter an empty folder, and return its path."""
    for name in [name for name in os.environ if name.startswith("PULUMI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
