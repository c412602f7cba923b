"""Programs that both engines play on equal starts: equal steps, calls and states."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes.commands import Cli, pulumi
from real_pulumi.side_by_side import sort_dependencies
from support.stacks.scenario_replay import Replay

HERE = Path(__file__).parent
RECORDED = HERE.parent / "stacks/engine/recordings/scenarios.yaml"
PROGRAMS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (HERE / "programs.yaml").read_text()
) | yaml.safe_load(RECORDED.read_text())

Facets = dict[str, Any]
READING = {"check", "diff", "read"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_do_the_same(name: str, tmp_path: Path, gpuform: Cli) -> None:
    theirs, ours = tmp_path / "pulumi", tmp_path / "gpuform"
    theirs.mkdir()
    ours.mkdir()
    expected, actual = Replay.create(theirs, pulumi), Replay.create(ours, gpuform)
    before: Facets = {}
    for number, (step, differing, is_refused) in enumerate(_list_steps(name), 1):
        expected_effects, actual_effects = (
            _play_step(replay, step) for replay in (expected, actual)
        )
        if is_refused:
            assert expected_effects["succeeded"], (
                f"step {number}: the Pulumi CLI refuses it as well"
            )
            asked = {json.loads(call)["call"] for call in actual_effects["calls"]}
            assert (actual_effects["succeeded"], asked - READING) == (False, set()), (
                f"step {number}"
            )
            assert _select_entries(actual_effects) == _select_entries(before), f"step {number}"
            return
        for facet, value in expected_effects.items():
            if facet not in differing:
                assert (number, facet, actual_effects.get(facet)) == (number, facet, value)
            else:
                assert actual_effects[facet] != value, f"step {number}: {facet} does not differ"
        assert actual_effects.keys() == expected_effects.keys(), f"step {number}"
        before = actual_effects


def _play_step(stack: Replay, step: dict[str, Any]) -> Facets:
    """Return the facets of a step, with the dependencies of entries sorted."""
    return {
        facet: sort_dependencies(facet, value) for facet, value in stack.play_step(**step).items()
    }


def _list_steps(name: str) -> Iterator[tuple[dict[str, Any], dict[str, str], bool]]:
    """Yield each step's arguments, the facets that differ, and whether gpuform refuses."""
    for step in PROGRAMS[name]:
        arguments = {key: value for key, value in step.items() if key not in ("differs", "refused")}
        yield arguments, step.get("differs", {}), "refused" in step


def _select_entries(facets: Facets) -> Facets:
    return {name: value for name, value in facets.items() if name.startswith("entry ")}
