"""One change at a time is made in the order of the topology, so that equal runs are equal."""

from pathlib import Path

import pytest
import yaml
from rehearsing.conftest import create_project_stack, list_variables

from gpuform.providers.emulator.server import serve
from gpuform.stacks.engine.planning import StepStarted
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.automation import up
from gpuform.stacks.operations.runs.callbacks import OperationEvent
from gpuform.stacks.operations.runs.options import RunOptions

NAMES = [f"data-{number}" for number in (5, 3, 4, 1, 2, 6)]


def test_independent_resources_are_created_in_the_order_of_the_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY", raising=False)
    volumes = {
        name: {
            "platform": "together",
            "volume_name": name,
            "region": "us-central-8",
            "size_tib": 1,
        }
        for name in NAMES
    }
    created: list[str] = []

    def note_create(event: OperationEvent) -> None:
        if isinstance(event, StepStarted) and name_of(event.step.urn) in NAMES:
            created.append(name_of(event.step.urn))

    with serve(seed="in order") as server:
        topology = yaml.safe_dump({"shared_volumes": volumes}, sort_keys=False)
        variables = list_variables(server.url, tmp_path)
        stack = create_project_stack(tmp_path, "ordered", topology, variables)

        result = up(stack, RunOptions(parallel=1, skip_preview=True), on_event=note_create)

    assert result.succeeded, result.diagnostics
    assert created == NAMES
