"""The README says what is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuform.stacks.cli.app import _COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_it_leads_to_the_reference():
    assert "(docs/reference/topology.md)" in README
    assert (ROOT / "docs" / "reference" / "topology.md").exists()


def test_it_has_every_command():
    for name in _COMMANDS:
        assert f"| `gpuform {name}` |" in README


def test_an_up_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block as it stands, in a project that `gpuform new` makes."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    (block,) = re.findall(
        r"```python\n(from gpuform\.stacks\.operations .*?)```", README, re.DOTALL
    )
    assert len(block.splitlines()) <= 10
    new = [sys.executable, "-m", "gpuform.stacks.cli", "new", "together-training", "--dir", "made"]
    subprocess.run(new, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path / "made", check=True, capture_output=True
    )
    assert done.stdout == b"{'create': 3} Ready\n"
    assert done.stderr == b""
