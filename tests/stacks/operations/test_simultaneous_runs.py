"""Test that operations of one process run at the same time, each with its own run context."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT
from support.stacks.automated_stack import TOPOLOGY, AutomatedStack

from gpuform.providers.emulator.server import environment, serve
from gpuform.stacks.engine.planning import StepStarted
from gpuform.stacks.operations import (
    OperationEvent,
    RunOptions,
    RunResult,
    create_stack,
    destroy,
    preview,
    up,
)

RESERVED = TOPOLOGY.replace("ON_DEMAND", "RESERVED\n    duration_days: 30")
NO_PREVIEW = RunOptions(skip_preview=True)


@pytest.fixture
def stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[AutomatedStack]]:
    """Yield two stacks of one project with prepaid clusters, each on its own emulator."""
    for name in [name for name in os.environ if name.startswith(("GPUFORM_", "TOGETHER_"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend:\n  url: file://.\n")
    (folder / "topology.yaml").write_text(RESERVED)
    with ExitStack() as resources:
        stacks = []
        for name in ("first", "second"):
            url = resources.enter_context(serve(seed=name)).url
            variables = {
                **environment(url),
                "PULUMI_HOME": str(tmp_path / "home"),
                "PULUMI_CONFIG_PASSPHRASE": name,
            }
            stack = create_stack(name, work_dir=folder, env_vars=variables)
            stacks.append(AutomatedStack(stack, folder, url))
        yield stacks


@pytest.mark.slow
def test_a_run_does_not_have_the_permission_of_a_simultaneous_run(
    stacks: list[AutomatedStack],
) -> None:
    allowed, refused = stacks
    for created in stacks:
        assert up(created.stack, NO_PREVIEW).succeeded
    variables, folder = dict(os.environ), Path.cwd()
    is_deleting, may_go_on = threading.Event(), threading.Event()

    def hold(event: OperationEvent) -> None:
        if isinstance(event, StepStarted):
            is_deleting.set()
            assert may_go_on.wait(LAST_RESORT)

    def destroy_with_permission() -> RunResult:
        options = RunOptions(allow=("destroy-reserved",), skip_preview=True)
        return destroy(allowed.stack, options, on_event=hold)

    with ThreadPoolExecutor() as pool:
        allowed_run = pool.submit(destroy_with_permission)
        assert is_deleting.wait(LAST_RESORT)
        refused_run = destroy(refused.stack)
        is_seen_by_program = "GPUFORM_ALLOW" in os.environ
        may_go_on.set()
        assert allowed_run.result().succeeded

    assert not is_seen_by_program
    (refusal,) = [found for found in refused_run.diagnostics if found.severity == "error"]
    assert "cluster training is RESERVED" in refusal.message
    assert (len(allowed.platform_clusters), len(refused.platform_clusters)) == (0, 1)
    assert (dict(os.environ), Path.cwd()) == (variables, folder)


@pytest.mark.slow
def test_simultaneous_runs_use_the_settings_of_their_own_environment(
    stacks: list[AutomatedStack],
) -> None:
    barrier = threading.Barrier(2, timeout=LAST_RESORT)

    def plan_together(stack: AutomatedStack) -> RunResult:
        met = False

        def wait_for_other_run(event: OperationEvent) -> None:
            nonlocal met
            if isinstance(event, StepStarted) and not met:
                met = True
                barrier.wait()

        return up(stack.stack, NO_PREVIEW, on_event=wait_for_other_run)

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(plan_together, stacks))

    assert [result.succeeded for result in results] == [True, True]
    assert [len(stack.platform_clusters) for stack in stacks] == [1, 1]
    assert not preview(stacks[0].stack).has_changes
