"""The embedded engine does what the Pulumi CLI was recorded doing."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes.commands import Cli, run_gpuform, run_new_process
from support.servers.bucket_server import BucketServer, build_bucket_url
from support.stacks.scenario_replay import Replay, group_by_urn, list_entries, to_sorted_json

HERE = Path(__file__).parent
SCENARIOS: dict[str, list[dict[str, Any]]] = yaml.safe_load((HERE / "scenarios.yaml").read_text())


def read_recording(step: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "succeeded", step["exit"] == 0
    yield "operations", group_by_urn(step["operations"])
    yield "calls", Counter(map(to_sorted_json, step["calls"]))
    yield "pending operations", step["pending_operations"]
    yield from list_entries(step["resources"])
    if "planned" in step:
        yield "planned", Counter(" ".join(planned) for planned in step["planned"])
        yield "changes", step["changes"]


def assert_as_recorded(scenario: str, folder: Path, cli: Cli, url: str = "") -> None:
    replay = Replay.create(folder, cli, url)
    recording = json.loads((HERE / "recorded" / f"{scenario}.json").read_text())
    for number, (step, expected) in enumerate(zip(SCENARIOS[scenario], recording, strict=True), 1):
        effects = replay.play_step(**step)
        for facet, value in read_recording(expected):
            assert (number, facet, effects.get(facet)) == (number, facet, value)
        assert effects.keys() == dict(read_recording(expected)).keys(), f"step {number}"


def test_every_recording_belongs_to_a_scenario():
    assert {path.stem for path in (HERE / "recorded").iterdir()} == set(SCENARIOS)


ALWAYS = ("update_fails", "secret_outputs")
"""Those that the fast suite replays."""


@pytest.mark.parametrize(
    "scenario",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS],
)
def test_the_engine_replays_a_recording_with_the_same_effects(scenario, tmp_path):
    assert_as_recorded(scenario, tmp_path, run_gpuform)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_engine_replays_a_recording_on_a_bucket(
    scenario, tmp_path, bucket_server: BucketServer
):
    bucket = build_bucket_url(bucket_server.create_bucket(), bucket_server.port)
    assert_as_recorded(scenario, tmp_path, run_gpuform, bucket)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", ["replace_delete_first", "stack_outputs_and_secrets", "target"]
)
def test_the_engine_replays_a_recording_in_new_processes(scenario, tmp_path):
    assert_as_recorded(scenario, tmp_path, run_new_process)
