"""Test a Slurm that lags, hides nodes or reports others: no node passes or is removed by it."""

from pathlib import Path
from typing import Any

import pytest
from hostile.fakes.slurm import Slurm
from support.clocks.fake_clock import FakeClock

from gpuform.providers.certifying import CertifiableNode, CertificationRunner
from gpuform.providers.certifying.runs import CertificationRequest
from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.draining import DrainOperation, DrainTarget, NodeEviction, Worker
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.records import BatchRecords, FolderRecords, Intents
from gpuform.providers.slurm.batch import BatchQueue
from gpuform.providers.slurm.results import SlurmTester
from gpuform.providers.slurm.scheduler import SlurmScheduler
from gpuform.schemas.policies.certification import CategoryInputs
from gpuform.schemas.policies.drain import DrainInputs

NODES = ["w0", "w1", "w2"]
JOB = {"script": "#!/bin/bash\nmeasure\n", "result": r"Avg bus bandwidth\s*:\s*([\d.]+)"}


def get_category(nodes: str) -> CategoryInputs:
    declared = {"domain": "communication", "variant": "nccl-all-reduce", "floor": 300}
    return CategoryInputs.model_validate({**declared, "job": {**JOB, "nodes": nodes}})


@pytest.fixture
def slurm() -> Slurm:
    return Slurm(FakeClock(), NODES)


@pytest.fixture
def call(slurm: Slurm, tmp_path: Path) -> ProviderContext:
    return ProviderContext(clock=slurm.clock, intents=Intents(FolderRecords(tmp_path)))


def make_tester(call: ProviderContext, slurm: Slurm, category: CategoryInputs) -> SlurmTester:
    jobs, records = BatchQueue(slurm, folder="/shared"), BatchRecords.from_intents(call.intents)
    return SlurmTester(jobs, records, "default/fabric", "fabric", [category], {})


def certify(call: ProviderContext, slurm: Slurm, *, nodes: str = "each") -> Any:
    category = get_category(nodes)
    tester = make_tester(call, slurm, category)
    certification_request = CertificationRequest(
        label="fabric",
        categories=[category],
        tests_all_nodes=True,
        timeout_s=3600,
        declared_count=3,
    )
    machines = [CertifiableNode(name, f"machine-{name}") for name in NODES]
    with use_context(call):
        return CertificationRunner(
            call, tester, certification_request, lambda: machines, call.clock.now
        ).certify()


def list_certified_nodes(outputs: Any) -> list[str]:
    return [result.node for result in outputs.evidence]


def test_every_node_passes_when_slurm_reports_everything(
    call: ProviderContext, slurm: Slurm
) -> None:
    assert list_certified_nodes(certify(call, slurm)) == NODES
    assert len(slurm.jobs) == 3


@pytest.mark.parametrize("forgets_after_s", [300.0, 1.0])
def test_a_node_that_no_job_ran_on_does_not_pass(
    call: ProviderContext, slurm: Slurm, forgets_after_s: float
) -> None:
    """Judge also by the output alone, for a job that Slurm has forgotten."""
    slurm.misbehavior.runs_elsewhere = {"w1": "w0"}
    slurm.misbehavior.forgets_after_s = forgets_after_s
    outputs = certify(call, slurm)
    assert list_certified_nodes(outputs) == ["w0", "w2"]
    assert "w1" in (outputs.not_ready_reason or "")


def test_a_job_over_all_nodes_certifies_the_nodes_it_ran_on(
    call: ProviderContext, slurm: Slurm
) -> None:
    slurm.misbehavior.runs_elsewhere = {"w1": "w9"}
    assert list_certified_nodes(certify(call, slurm, nodes="all")) == ["w0", "w2"]


def test_a_completed_job_with_another_exit_code_certifies_no_node(
    call: ProviderContext, slurm: Slurm
) -> None:
    slurm.misbehavior.exit_codes = {"w1": "3:0", "w2": "0:9"}
    outputs = certify(call, slurm)
    assert list_certified_nodes(outputs) == ["w0"]
    assert "COMPLETED with exit code 3:0" in (outputs.not_ready_reason or "")


def test_a_completed_job_without_the_last_line_of_its_script_certifies_no_node(
    call: ProviderContext, slurm: Slurm
) -> None:
    slurm.misbehavior.loses_last_line = True
    outputs = certify(call, slurm)
    assert list_certified_nodes(outputs) == []
    assert "does not say how the script ended" in (outputs.not_ready_reason or "")


def test_a_completed_job_without_nodes_certifies_no_node(
    call: ProviderContext, slurm: Slurm
) -> None:
    slurm.misbehavior.shows_no_node = True
    outputs = certify(call, slurm)
    assert list_certified_nodes(outputs) == []
    assert "reports no node that the job ran on" in (outputs.not_ready_reason or "")


class Killed(BaseException):
    """The process ends here."""


def certify_and_crash(
    call: ProviderContext, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, at_command: int
) -> None:
    """Kill a certification just after the n-th command took effect."""
    run = slurm.run

    def run_and_die(*arguments: Any, **options: Any) -> Any:
        output = run(*arguments, **options)
        if len(slurm.commands) == at_command:
            raise Killed
        return output

    with monkeypatch.context() as patched:
        patched.setattr(slurm, "run", run_and_die)
        with pytest.raises(Killed):
            certify(call, slurm)


@pytest.mark.parametrize("lag_s", [0.0, 5.0, 50.0])
@pytest.mark.parametrize("at_command", [1, 2, 3, 4])
def test_jobs_that_the_queue_shows_late_are_not_submitted_again(
    call: ProviderContext,
    slurm: Slurm,
    monkeypatch: pytest.MonkeyPatch,
    lag_s: float,
    at_command: int,
) -> None:
    slurm.misbehavior.lag_s = lag_s
    certify_and_crash(call, slurm, monkeypatch, at_command)
    assert list_certified_nodes(certify(call, slurm)) == NODES
    assert len(slurm.jobs) == 3


def test_jobs_that_the_queue_shows_late_are_cancelled_with_their_certification(
    call: ProviderContext, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.misbehavior.lag_s = 5.0
    certify_and_crash(call, slurm, monkeypatch, 3)
    tester = make_tester(call, slurm, get_category("each"))
    run = tester.find_run()
    assert run is not None
    with use_context(call):
        tester.remove_run(run)
    assert [job.state for job in slurm.jobs] == ["CANCELLED"] * 3


def test_the_name_of_a_node_is_not_parsed_as_a_figure(call: ProviderContext, slurm: Slurm) -> None:
    """A pattern for any number at the end of a line would match the line of the node names."""
    slurm.figure = 100.0
    slurm.nodes["w450"] = slurm.nodes["w0"]
    slurm.misbehavior.runs_elsewhere = dict.fromkeys(NODES, "w450")
    JOB_OF_ANY = {**JOB, "result": r"([\d.]+)$"}  # noqa: N806 - as JOB
    category = CategoryInputs.model_validate(
        {"domain": "d", "variant": "v", "floor": 300, "job": JOB_OF_ANY}
    )
    jobs, records = BatchQueue(slurm, folder="/shared"), BatchRecords.from_intents(call.intents)
    tester = SlurmTester(jobs, records, "default/x", "x", [category], {"w450": "w450"})
    with use_context(call):
        tester.begin_run(["w450"], "test")
        call.sleep(120)
        run = tester.find_run()
        assert run is not None
        (job,) = tester.read_results(run)
    assert job.measured_value == 100.0


def drain_nodes(call: ProviderContext, slurm: Slurm, *names: str, **drain_inputs: Any) -> Any:
    subject = DrainTarget("p1", "pool train", [Worker(name) for name in NODES])
    scheduler = SlurmScheduler(slurm)
    draining = DrainOperation(call, subject, lambda: scheduler, DrainInputs(**drain_inputs))
    return draining.drain_nodes(NodeEviction(dict.fromkeys(names, "deleted")))


@pytest.mark.parametrize("hidden", [{"w1"}, {*NODES}])
def test_a_node_that_slurm_hides_is_not_removed(
    call: ProviderContext, slurm: Slurm, hidden: set[str]
) -> None:
    slurm.start_job("w1", "train", 600)
    slurm.misbehavior.hides_nodes = hidden
    with pytest.raises(NotEnoughEvidence, match=r"Slurm: no node has .* of w1"):
        drain_nodes(call, slurm, "w1")


@pytest.mark.parametrize("fault", ["doubles_nodes", "cuts_output"])
def test_unreadable_output_removes_no_node(call: ProviderContext, slurm: Slurm, fault: str) -> None:
    slurm.start_job("w1", "train", 600)
    setattr(slurm.misbehavior, fault, True)
    with pytest.raises(GpuformError, match="no node was removed"):
        drain_nodes(call, slurm, "w1")


@pytest.mark.parametrize("lag_s", [3.0, 6.0, 8.0])
def test_a_job_that_is_shown_late_is_waited_for(
    call: ProviderContext, slurm: Slurm, lag_s: float
) -> None:
    call.sleep(100)
    slurm.misbehavior.lag_s = lag_s
    slurm.start_job("w1", "train", 5)
    assert drain_nodes(call, slurm, "w1").chosen == ("w1",)
    assert slurm.list_jobs_on("w1") == []


def test_jobs_of_others_that_are_hidden_are_waited_for(call: ProviderContext, slurm: Slurm) -> None:
    slurm.misbehavior.hides_jobs = True
    slurm.start_job("w1", "train", 5)
    assert drain_nodes(call, slurm, "w1").chosen == ("w1",)
    assert slurm.list_jobs_on("w1") == []


def test_a_node_of_another_name_is_recognized_by_its_address(
    call: ProviderContext, slurm: Slurm
) -> None:
    slurm.nodes["gpu-a"] = {**slurm.nodes.pop("w1"), "address": "10.0.0.1"}
    slurm.start_job("gpu-a", "train", 600)
    workers = [Worker("w0"), Worker("w1", addresses=("10.0.0.1",)), Worker("w2")]
    subject, scheduler = DrainTarget("p1", "pool train", workers), SlurmScheduler(slurm)
    draining = DrainOperation(call, subject, lambda: scheduler, DrainInputs(on_busy="fail"))
    with pytest.raises(GpuformError, match="jobs run on w1: 1 train"):
        draining.drain_nodes(NodeEviction({"w1": "deleted"}))
