"""Programs that both engines play on equal starts: equal steps, calls and states."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from processes.commands import Cli, pulumi
from replaying import Replay

HERE = Path(__file__).parent
RECORDED = HERE.parent / "stacks/engine/recordings/scenarios.yaml"
PROGRAMS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (HERE / "programs.yaml").read_text()
) | yaml.safe_load(RECORDED.read_text())


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_do_the_same(name: str, tmp_path: Path, gpuform: Cli) -> None:
    theirs, ours = tmp_path / "pulumi", tmp_path / "gpuform"
    theirs.mkdir()
    ours.mkdir()
    expected, found = Replay.begin(theirs, pulumi), Replay.begin(ours, gpuform)
    for number, step in enumerate(PROGRAMS[name], 1):
        told, done = expected.step(**step), found.step(**step)
        for facet, value in told.items():
            assert (number, facet, done.get(facet)) == (number, facet, value)
        assert done.keys() == told.keys(), f"step {number}"
