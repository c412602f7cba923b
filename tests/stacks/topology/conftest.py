"""A folder for topologies, where they are planned."""

from pathlib import Path

import pytest
from topologies import Topologies


@pytest.fixture
def topologies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topologies:
    monkeypatch.chdir(tmp_path)
    return Topologies(tmp_path)
