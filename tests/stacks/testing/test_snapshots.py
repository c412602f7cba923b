"""Snapshots: written when asked, compared otherwise, without what differs from run to run."""

from pathlib import Path

import yaml

from .conftest import Played, told

CASES = """\
    cases:
      up: {expect: {snapshot: true}}
"""


def test_a_snapshot_is_written_and_then_held_to(played: Played, project: Path) -> None:
    (finding,) = told(played(CASES)["up"])
    assert finding == "2: there is no snapshot demo.up.yaml yet: `gpuform test --update` writes it"

    result = played(CASES, update=True)["up"]
    assert (told(result), result.is_updated) == ([], True)
    file = project / "tests" / "snapshots" / "demo.up.yaml"
    text = file.read_text()
    assert "planted-7d1f" not in text
    assert yaml.safe_load(text)["plan"] == {
        "clusters.train": "create",
        "shared_volumes.data": "create",
    }
    assert yaml.safe_load(text)["outputs"] == {"status": "Ready", "token": "[secret]"}

    again = played(CASES)["up"]
    assert (told(again), again.is_updated) == ([], False)

    topology = project / "topology.yaml"
    topology.write_text(topology.read_text().replace("size_tib: 5", "size_tib: 6"))
    (finding,) = told(played(CASES)["up"])
    assert "-    size_tib: 5" in finding
    assert "+    size_tib: 6" in finding


def test_no_two_runs_differ(played: Played, project: Path) -> None:
    """Not by ids, ports, times, or the order of what happens side by side."""
    file = project / "tests" / "snapshots" / "demo.up.yaml"
    texts = set()
    for _ in range(3):
        played(CASES, update=True)
        texts.add(file.read_text())
        file.unlink()
    assert len(texts) == 1
