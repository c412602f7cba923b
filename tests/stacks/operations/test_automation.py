"""Operations from Python: options in, a typed result out, events and questions on the way."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from automated import TOPOLOGY, World

from gpuform.schemas.plan import Plan, PlanAction
from gpuform.stacks import operations
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import StepDone, StepStarted, Summary
from gpuform.stacks.engine.stack import StackNotFound
from gpuform.stacks.operations import (
    Cancellation,
    ExitReason,
    ImportOptions,
    Interrupted,
    OperationEvent,
    OutputValue,
    RunEnded,
    RunOptions,
    RunStarted,
    create_or_select_stack,
    destroy,
    drift,
    expire,
    export_stack,
    import_resources,
    import_stack,
    outputs,
    preview,
    refresh,
    select_stack,
    status,
    up,
)


def declare(world: World, text: str) -> None:
    (world.folder / "topology.yaml").write_text(text)


def state(world: World) -> bytes:
    return (world.folder / ".pulumi/stacks/demo/dev.json").read_bytes()


class TestRuns:
    def test_a_preview_changes_nothing(self, world: World) -> None:
        before = state(world)
        result = preview(world.stack)
        assert result.reason is ExitReason.SUCCEEDED
        assert result.preview
        assert result.has_changes
        assert result.changes["create"] == 3
        assert result.plan is not None
        assert [each.action for each in result.plan.changes] == [PlanAction.CREATE] * 2
        assert state(world) == before
        assert world.clusters == []

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_up_to_destroy(self, world: World) -> None:
        made = up(world.stack)
        assert made.succeeded
        assert not made.preview
        assert made.outputs["status"] == OutputValue("Ready", secret=False)
        assert outputs(world.stack) == made.outputs
        assert [each["status"] for each in world.clusters] == ["Ready"]

        again = up(world.stack, RunOptions(expect_no_changes=True))
        assert again.succeeded
        assert set(again.changes) == {"same"}

        shown = status(world.stack, refresh=True)
        assert [each.name for each in shown.resources] == ["data", "train"]

        gone = destroy(world.stack)
        assert gone.succeeded
        assert gone.changes["delete"] == 3
        assert world.clusters == []
        assert outputs(world.stack) == {}

    @pytest.mark.slow
    def test_drift_and_refresh(self, world: World) -> None:
        up(world.stack)
        assert not drift(world.stack).plan.has_changes
        world.resize(24)
        found = drift(world.stack, ["train"])
        assert found.succeeded
        (change,) = (each for each in found.plan.changes if each.action is PlanAction.UPDATE)
        assert [(c.path, c.after) for c in change.changes if c.path == "num_gpus"] == [
            ("num_gpus", 24)
        ]
        seen = refresh(world.stack, RunOptions(preview_only=True, expect_no_changes=True))
        assert seen.reason is ExitReason.UNEXPECTED_CHANGES
        taken = refresh(world.stack)
        assert taken.succeeded
        assert taken.changes["update"] == 1
        assert not drift(world.stack).plan.has_changes

    @pytest.mark.slow
    def test_what_has_expired_goes(self, world: World) -> None:
        declare(world, TOPOLOGY.replace("    volume_id:", "    ttl: 1d\n    volume_id:"))
        assert up(world.stack).succeeded
        assert not expire(world.stack, RunOptions(preview_only=True)).has_changes
        world.ask("POST", "_emulator/clock", {"advance": 2 * 86400})
        due = expire(world.stack, RunOptions(preview_only=True))
        assert due.reason is ExitReason.DUE
        assert len(world.clusters) == 1
        assert expire(world.stack).succeeded
        assert world.clusters == []

    @pytest.mark.slow
    def test_an_import(self, world: World) -> None:
        made = up(world.stack)
        (cluster,) = world.ask("GET", "together/v1/compute/clusters")["clusters"]
        other = create_or_select_stack(
            "other", work_dir=world.folder, env_vars={**world.stack.env_vars}
        )
        options = ImportOptions("together:Cluster", "train", cluster["cluster_id"])
        with pytest.raises(EngineError, match="dev"):
            import_resources(other, options)
        assert made.succeeded
        volume = world.ask(
            "POST",
            "together/v1/compute/clusters/storage/volumes",
            {"volume_name": "more", "region": "us-central-8", "size_tib": 5},
        )
        found = ImportOptions(
            "together:SharedVolume",
            "more",
            volume["volume_id"],
            set_values=(("region", "us-central-8"),),
        )
        looked = import_resources(world.stack, replace(found, preview_only=True))
        assert "volume_name: more" in looked.entries
        assert looked.imported == ()
        events: list[OperationEvent] = []
        taken = import_resources(world.stack, found, on_event=events.append)
        assert taken.succeeded
        assert [each.rpartition("::")[2] for each in taken.imported] == ["more"]
        assert [each.preview for each in taken.runs] == [False, True]
        assert "volume_name: more" in (world.folder / "topology.yaml").read_text()
        assert any("1 entry added" in getattr(each, "message", "") for each in events)


class TestEndings:
    def test_a_program_that_fails(self, world: World) -> None:
        (world.folder / "__main__.py").write_text("raise ValueError('no such thing')\n")
        result = up(world.stack)
        assert result.reason is ExitReason.FAILED
        assert result.preview
        assert result.plan is None
        (error,) = (each for each in result.diagnostics if each.severity == "error")
        assert "no such thing" in error.message

    def test_a_mistake_in_the_topology(self, world: World) -> None:
        declare(world, TOPOLOGY.replace("num_gpus:", "num_gpu:"))
        result = preview(world.stack)
        assert result.reason is ExitReason.FAILED
        assert any("num_gpus" in each.message for each in result.diagnostics)

    @pytest.mark.slow
    def test_somebody_says_no(self, world: World) -> None:
        asked: list[Plan] = []

        def confirm(plan: Plan) -> bool:
            asked.append(plan)
            return False

        result = up(world.stack, confirm=confirm)
        assert result.reason is ExitReason.DECLINED
        assert result.preview
        assert [each.stack for each in asked] == ["dev"]
        assert world.clusters == []
        assert up(world.stack, confirm=lambda _plan: True).succeeded
        assert up(world.stack, confirm=confirm).succeeded, "without changes nobody is asked"
        assert len(asked) == 1

    def test_a_gate_stops_it(self, world: World) -> None:
        (world.folder / "gates.yaml").write_text(
            "gates:\n  small:\n    allowed_regions: [elsewhere]\n    level: mandatory\n"
        )
        result = up(world.stack)
        assert result.reason is ExitReason.POLICY_VIOLATION
        assert [each.name for each in result.gates] == ["small"]
        assert world.clusters == []

    @pytest.mark.slow
    def test_it_is_cancelled(self, world: World) -> None:
        cancellation = Cancellation()
        events: list[OperationEvent] = []

        def listen(event: OperationEvent) -> None:
            events.append(event)
            if isinstance(event, StepStarted) and event.step.urn.endswith("::train"):
                threading.Thread(target=cancellation.cancel).start()

        result = up(
            world.stack,
            RunOptions(skip_preview=True),
            on_event=listen,
            cancellation=cancellation,
        )
        assert result.reason is ExitReason.CANCELLED
        assert any(isinstance(each, Interrupted) for each in events)
        later = up(world.stack, cancellation=cancellation)
        assert later.reason is ExitReason.CANCELLED, "a cancellation holds"
        assert up(world.stack).succeeded
        assert len(world.clusters) == 1

    def test_an_unknown_stack(self, world: World) -> None:
        with pytest.raises(StackNotFound):
            select_stack("nowhere", work_dir=world.folder, env_vars=world.stack.env_vars)


@pytest.mark.slow
def test_the_events_of_an_up(world: World) -> None:
    events: list[OperationEvent] = []
    up(world.stack, on_event=events.append)
    runs = [(each.operation, each.preview) for each in events if isinstance(each, RunStarted)]
    assert runs == [("update", True), ("update", False)]
    ends = [each for each in events if isinstance(each, RunEnded)]
    assert [each.outcome is not None and each.outcome.succeeded for each in ends] == [True, True]
    done = [each.step.urn for each in events if isinstance(each, StepDone) and not each.planning]
    assert any(each.endswith("::train") for each in done)
    assert [each.preview for each in events if isinstance(each, Summary)] == [True, False]
    assert isinstance(events[-1], RunEnded)


@pytest.mark.slow
def test_a_state_is_exported_and_imported(world: World) -> None:
    up(world.stack)
    exported = export_stack(world.stack)
    assert "hunter2" not in json.dumps(exported)
    assert "hunter2" in json.dumps(export_stack(world.stack, show_secrets=True))
    exported["deployment"]["resources"] = exported["deployment"]["resources"][:1]
    assert import_stack(world.stack, exported) == 1
    assert len(export_stack(world.stack)["deployment"]["resources"]) == 1
    exported["version"] = 99
    with pytest.raises(EngineError, match="the deployment"):
        import_stack(world.stack, exported)


@pytest.mark.slow
def test_secrets_are_told_apart(world: World) -> None:
    result = up(world.stack)
    token = result.outputs["token"]
    assert token.secret
    assert token.value == "hunter2hunter2"
    assert "hunter2" not in repr(result)
    assert result.plan is not None
    assert "hunter2" not in result.plan.model_dump_json()


@pytest.mark.slow
def test_one_operation_runs_at_a_time(world: World) -> None:
    refusals: list[str] = []

    def confirm(_plan: Plan) -> bool:
        with pytest.raises(EngineError, match="another operation is at work") as refused:
            preview(world.stack)
        refusals.append(str(refused.value))
        return False

    assert up(world.stack, confirm=confirm).reason is ExitReason.DECLINED
    assert refusals
    assert preview(world.stack).succeeded


def test_a_passphrase_is_asked_for(world: World) -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return ""

    variables = dict(world.stack.env_vars)
    del variables["PULUMI_CONFIG_PASSPHRASE"]
    stack = select_stack("dev", work_dir=world.folder, env_vars=variables, ask_passphrase=ask)
    assert preview(stack).succeeded
    assert prompts
    mute = select_stack("dev", work_dir=world.folder, env_vars=variables)
    with pytest.raises(EngineError, match="passphrase"):
        preview(mute)


def test_every_name_of_the_face_is_there() -> None:
    for name in operations.__all__:
        assert getattr(operations, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = operations.nothing  # type: ignore[attr-defined]


def test_options_do_not_load_the_engine() -> None:
    code = """
import json, sys
import gpuform.stacks.operations
print(json.dumps([each for each in ("grpc", "pulumi", "click", "rich") if each in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_operations_load_no_terminal() -> None:
    code = """
import json, sys
from gpuform.stacks.operations import up
print(json.dumps([each for each in ("click", "rich") if each in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    found: Any = json.loads(done.stdout)
    assert found == []
