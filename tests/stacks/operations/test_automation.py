"""Operations from Python: options in, a typed result out, events and questions meanwhile."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from support.stacks.automated_stack import MAIN, TOPOLOGY, AutomatedStack

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.stacks import operations
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

CLUSTER = {
    "cluster_name": "training",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "billing_type": "ON_DEMAND",
}
IMPORTING_TOPOLOGY = """\
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    options: {{import: {}}}
"""


def write_topology(automated_stack: AutomatedStack, text: str) -> None:
    (automated_stack.folder / "topology.yaml").write_text(text)


def read_state(automated_stack: AutomatedStack) -> bytes:
    return (automated_stack.folder / ".pulumi/stacks/demo/dev.json").read_bytes()


class TestRuns:
    def test_a_preview_changes_nothing(self, automated_stack: AutomatedStack) -> None:
        before = read_state(automated_stack)
        result = preview(automated_stack.stack)
        assert result.reason is ExitReason.SUCCEEDED
        assert result.preview
        assert result.has_changes
        assert result.changes["create"] == 3
        assert result.plan is not None
        assert [change.action for change in result.plan.changes] == [PlanAction.CREATE] * 2
        assert read_state(automated_stack) == before
        assert automated_stack.platform_clusters == []

    def test_one_step_at_a_time_follows_the_order_of_the_topology(
        self, automated_stack: AutomatedStack
    ) -> None:
        names = [f"data-{number}" for number in range(12)]
        entries = [
            f"  {name}: {{platform: together, volume_name: {name}, region: us-central-8, "
            "size_tib: 1}\n"
            for name in names
        ]
        write_topology(automated_stack, "shared_volumes:\n" + "".join(entries))
        events: list[OperationEvent] = []

        result = up(
            automated_stack.stack,
            RunOptions(parallel=1, skip_preview=True),
            on_event=events.append,
        )

        assert result.succeeded
        urns = [event.step.urn for event in events if isinstance(event, StepStarted)]
        assert [urn.rpartition("::")[2] for urn in urns if "SharedVolume" in urn] == names

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_up_creates_and_destroy_deletes(self, automated_stack: AutomatedStack) -> None:
        up_result = up(automated_stack.stack)
        assert up_result.succeeded
        assert not up_result.preview
        assert up_result.outputs["status"] == OutputValue("Ready", secret=False)
        assert outputs(automated_stack.stack) == up_result.outputs
        assert [
            platform_cluster["status"] for platform_cluster in automated_stack.platform_clusters
        ] == ["Ready"]

        second_result = up(automated_stack.stack, RunOptions(expect_no_changes=True))
        assert second_result.succeeded
        assert set(second_result.changes) == {"same"}

        stack_status = status(automated_stack.stack, refresh=True)
        assert [resource.name for resource in stack_status.resources] == ["data", "train"]

        destroy_result = destroy(automated_stack.stack)
        assert destroy_result.succeeded
        assert destroy_result.changes["delete"] == 3
        assert automated_stack.platform_clusters == []
        assert outputs(automated_stack.stack) == {}

    @pytest.mark.slow
    def test_drift_is_reported_and_refresh_saves_it(self, automated_stack: AutomatedStack) -> None:
        up(automated_stack.stack)
        assert not drift(automated_stack.stack).plan.has_changes
        automated_stack.resize(24)
        drift_result = drift(automated_stack.stack, ["train"])
        assert drift_result.succeeded
        (change,) = (
            change for change in drift_result.plan.changes if change.action is PlanAction.UPDATE
        )
        assert [(c.path, c.after) for c in change.changes if c.path == "num_gpus"] == [
            ("num_gpus", 24)
        ]
        preview_result = refresh(
            automated_stack.stack, RunOptions(preview_only=True, expect_no_changes=True)
        )
        assert preview_result.reason is ExitReason.UNEXPECTED_CHANGES
        refresh_result = refresh(automated_stack.stack)
        assert refresh_result.succeeded
        assert refresh_result.changes["update"] == 1
        assert not drift(automated_stack.stack).plan.has_changes

    @pytest.mark.slow
    def test_expire_deletes_expired_resources(self, automated_stack: AutomatedStack) -> None:
        write_topology(
            automated_stack, TOPOLOGY.replace("    volume_id:", "    ttl: 1d\n    volume_id:")
        )
        assert up(automated_stack.stack).succeeded
        assert not expire(automated_stack.stack, RunOptions(preview_only=True)).has_changes
        automated_stack.request("POST", "_emulator/clock", {"advance": 2 * 86400})
        due = expire(automated_stack.stack, RunOptions(preview_only=True))
        assert due.reason is ExitReason.DUE
        assert len(automated_stack.platform_clusters) == 1
        assert expire(automated_stack.stack).succeeded
        assert automated_stack.platform_clusters == []

    @pytest.mark.slow
    def test_import_adds_resources_to_the_stack(self, automated_stack: AutomatedStack) -> None:
        up_result = up(automated_stack.stack)
        (cluster,) = automated_stack.request("GET", "together/v1/compute/clusters")["clusters"]
        other = create_or_select_stack(
            "other", work_dir=automated_stack.folder, env_vars={**automated_stack.stack.env_vars}
        )
        options = ImportOptions("together:Cluster", "train", cluster["cluster_id"])
        with pytest.raises(EngineError, match="dev"):
            import_resources(other, options)
        assert up_result.succeeded
        volume = automated_stack.request(
            "POST",
            "together/v1/compute/clusters/storage/volumes",
            {"volume_name": "more", "region": "us-central-8", "size_tib": 5},
        )
        options_of_volume = ImportOptions(
            "together:SharedVolume",
            "more",
            volume["volume_id"],
            set_values=(("region", "us-central-8"),),
        )
        preview_result = import_resources(
            automated_stack.stack, replace(options_of_volume, preview_only=True)
        )
        assert "volume_name: more" in preview_result.entries
        assert preview_result.imported == ()
        events: list[OperationEvent] = []
        import_result = import_resources(
            automated_stack.stack, options_of_volume, on_event=events.append
        )
        assert import_result.succeeded
        assert [urn.rpartition("::")[2] for urn in import_result.imported] == ["more"]
        assert [run.preview for run in import_result.runs] == [False, True]
        assert "volume_name: more" in (automated_stack.folder / "topology.yaml").read_text()
        assert any("1 entry added" in getattr(event, "message", "") for event in events)

    def test_an_update_imports_no_cluster_that_was_resized_after_the_preview(
        self, automated_stack: AutomatedStack
    ) -> None:
        """The run would resize the cluster again, which nobody has seen in a plan."""
        cluster = automated_stack.request("POST", "together/v1/compute/clusters", CLUSTER)
        automated_stack.request("POST", "_emulator/clock", {"advance": 7200})
        (automated_stack.folder / "topology.yaml").write_text(
            IMPORTING_TOPOLOGY.format(cluster["cluster_id"])
        )

        def confirm(plan: Plan) -> bool:
            assert [change.action for change in plan.changes] == [PlanAction.IMPORT]
            automated_stack.resize(8)
            return True

        result = up(automated_stack.stack, confirm=confirm)
        assert result.reason is ExitReason.FAILED
        (error,) = (item for item in result.diagnostics if item.severity == "error")
        assert "train would be updated, which the plan does not contain" in error.message
        assert "run the command again, and look at its new preview" in error.message
        assert "save-plan" not in error.message
        path = f"together/v1/compute/clusters/{cluster['cluster_id']}"
        assert automated_stack.request("GET", path)["num_gpus"] == 8
        assert "dynamic/gpuform" not in read_state(automated_stack).decode()


class TestEndings:
    def test_up_fails_with_a_failing_program(self, automated_stack: AutomatedStack) -> None:
        (automated_stack.folder / "__main__.py").write_text("raise ValueError('no such thing')\n")
        result = up(automated_stack.stack)
        assert result.reason is ExitReason.FAILED
        assert result.preview
        assert result.plan is None
        (error,) = (
            diagnostic for diagnostic in result.diagnostics if diagnostic.severity == "error"
        )
        assert "no such thing" in error.message

    def test_preview_reports_a_mistake_in_the_topology(
        self, automated_stack: AutomatedStack
    ) -> None:
        write_topology(automated_stack, TOPOLOGY.replace("num_gpus:", "num_gpu:"))
        result = preview(automated_stack.stack)
        assert result.reason is ExitReason.FAILED
        assert any("num_gpus" in diagnostic.message for diagnostic in result.diagnostics)

    @pytest.mark.slow
    def test_up_declined_by_the_caller_changes_nothing(
        self, automated_stack: AutomatedStack
    ) -> None:
        asked: list[Plan] = []

        def confirm(plan: Plan) -> bool:
            asked.append(plan)
            return False

        result = up(automated_stack.stack, confirm=confirm)
        assert result.reason is ExitReason.DECLINED
        assert result.preview
        assert [asked_plan.stack for asked_plan in asked] == ["dev"]
        assert automated_stack.platform_clusters == []
        assert up(automated_stack.stack, confirm=lambda _plan: True).succeeded
        assert up(automated_stack.stack, confirm=confirm).succeeded, (
            "without changes nobody is asked"
        )
        assert len(asked) == 1

    def test_up_raises_for_a_failed_gate(self, automated_stack: AutomatedStack) -> None:
        (automated_stack.folder / "gates.yaml").write_text(
            "gates:\n  small:\n    allowed_regions: [elsewhere]\n    level: mandatory\n"
        )
        result = up(automated_stack.stack)
        assert result.reason is ExitReason.POLICY_VIOLATION
        assert [gate.name for gate in result.gates] == ["small"]
        assert automated_stack.platform_clusters == []

    @pytest.mark.slow
    def test_cancelled_up_raises(self, automated_stack: AutomatedStack) -> None:
        cancellation = Cancellation()
        events: list[OperationEvent] = []

        def listen(event: OperationEvent) -> None:
            events.append(event)
            if isinstance(event, StepStarted) and event.step.urn.endswith("::train"):
                threading.Thread(target=cancellation.cancel).start()

        result = up(
            automated_stack.stack,
            RunOptions(skip_preview=True),
            on_event=listen,
            cancellation=cancellation,
        )
        assert result.reason is ExitReason.CANCELLED
        assert any(isinstance(event, Interrupted) for event in events)
        later = up(automated_stack.stack, cancellation=cancellation)
        assert later.reason is ExitReason.CANCELLED, "a cancellation holds"
        assert up(automated_stack.stack).succeeded
        assert len(automated_stack.platform_clusters) == 1

    def test_select_stack_raises_for_an_unknown_stack(
        self, automated_stack: AutomatedStack
    ) -> None:
        with pytest.raises(StackNotFound):
            select_stack(
                "nowhere", work_dir=automated_stack.folder, env_vars=automated_stack.stack.env_vars
            )


@pytest.mark.slow
def test_up_sends_events(automated_stack: AutomatedStack) -> None:
    events: list[OperationEvent] = []
    up(automated_stack.stack, on_event=events.append)
    runs = [(event.operation, event.preview) for event in events if isinstance(event, RunStarted)]
    assert runs == [("update", True), ("update", False)]
    ends = [event for event in events if isinstance(event, RunEnded)]
    assert [end.outcome is not None and end.outcome.succeeded for end in ends] == [True, True]
    done = [
        event.step.urn for event in events if isinstance(event, StepDone) and not event.planning
    ]
    assert any(urn.endswith("::train") for urn in done)
    assert [event.preview for event in events if isinstance(event, Summary)] == [True, False]
    assert isinstance(events[-1], RunEnded)


@pytest.mark.slow
def test_exported_stack_can_be_imported(automated_stack: AutomatedStack) -> None:
    up(automated_stack.stack)
    exported = export_stack(automated_stack.stack)
    assert "hunter2" not in json.dumps(exported)
    assert "hunter2" in json.dumps(export_stack(automated_stack.stack, show_secrets=True))
    exported["deployment"]["resources"] = exported["deployment"]["resources"][:1]
    assert import_stack(automated_stack.stack, exported) == 1
    assert len(export_stack(automated_stack.stack)["deployment"]["resources"]) == 1
    exported["version"] = 99
    with pytest.raises(EngineError, match="the deployment"):
        import_stack(automated_stack.stack, exported)


@pytest.mark.slow
def test_outputs_mark_secrets(automated_stack: AutomatedStack) -> None:
    result = up(automated_stack.stack)
    token = result.outputs["token"]
    assert token.secret
    assert token.value == "hunter2hunter2"
    assert "hunter2" not in repr(result)
    assert result.plan is not None
    assert "hunter2" not in result.plan.model_dump_json()


@pytest.mark.slow
def test_confirmer_may_run_an_operation_and_a_listener_may_not(
    automated_stack: AutomatedStack,
) -> None:
    (automated_stack.folder / "__main__.py").write_text(f"import os\n{MAIN}")
    plans: list[Plan | None] = []
    refusals: list[str] = []

    def confirm(_plan: Plan) -> bool:
        plans.append(preview(automated_stack.stack).plan)
        return False

    def listen(event: OperationEvent) -> None:
        if isinstance(event, StepDone) and not refusals:
            with pytest.raises(EngineError, match="another operation is running") as refused:
                preview(automated_stack.stack)
            refusals.append(str(refused.value))

    result = up(automated_stack.stack, confirm=confirm, on_event=listen)

    assert result.reason is ExitReason.DECLINED
    assert plans == [result.plan]
    assert refusals


def test_preview_without_a_passphrase_asks_for_it(automated_stack: AutomatedStack) -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return ""

    variables = dict(automated_stack.stack.env_vars)
    del variables["PULUMI_CONFIG_PASSPHRASE"]
    stack = select_stack(
        "dev", work_dir=automated_stack.folder, env_vars=variables, ask_passphrase=ask
    )
    assert preview(stack).succeeded
    assert prompts
    mute = select_stack("dev", work_dir=automated_stack.folder, env_vars=variables)
    with pytest.raises(EngineError, match="passphrase"):
        preview(mute)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed_variables", "message"),
    [
        ({"GPUFORM_CLOCK": ""}, "the stack lives on the emulator"),
        ({"GPUFORM_CLOCK": "http://127.0.0.1:9/_emulator/clock"}, "does not answer"),
        ({"GPUFORM_ALLOW": "everything"}, "permission not found"),
    ],
)
def test_a_run_that_cannot_begin_raises_engine_error(
    automated_stack: AutomatedStack, changed_variables: dict[str, str], message: str
) -> None:
    up(automated_stack.stack)
    variables = automated_stack.stack.env_vars | changed_variables
    stack = select_stack("dev", work_dir=automated_stack.folder, env_vars=variables)
    with pytest.raises(EngineError, match=message):
        preview(stack)


def test_every_exported_name_exists() -> None:
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
    document: Any = json.loads(done.stdout)
    assert document == []
