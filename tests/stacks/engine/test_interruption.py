"""Test interrupted runs: objects that are not ready, cancellation, failed state writes."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import EventBus, StepDone, StepFailed
from gpuform.stacks.engine.state import PendingOperation, ResourceState, Snapshot
from gpuform.stacks.engine.urn import STACK_TYPE


def test_an_object_that_is_not_ready_is_saved_and_its_step_fails(lab):
    outcome = lab.up("a = Machine('a', slow=True)\nMachine('b', uses=a.address)\n")
    assert not outcome.succeeded
    assert lab.state("a").id == "m-1"
    assert lab.state("a").init_errors == ["still booting"]
    assert lab.errors == ["still booting"]
    assert list(lab.platform_objects) == ["m-1"]
    # The next run updates it even if nothing differs, and goes on with its dependents.
    again = lab.up("a = Machine('a', slow=True)\nMachine('b', uses=a.address)\n")
    assert not again.succeeded
    assert ("update", "a") in lab.failures
    assert lab.up("a = Machine('a')\nMachine('b', uses=a.address)\n").succeeded
    assert lab.state("a").init_errors == []
    assert not lab.preview("a = Machine('a')\nMachine('b', uses=a.address)\n").has_changes


def test_an_update_that_does_not_become_ready_keeps_the_old_inputs(lab):
    lab.up("Machine('a', size=1)")
    assert not lab.up("Machine('a', size=2, slow=True)").succeeded
    state = lab.state("a")
    assert (state.inputs["size"], state.outputs["size"]) == (1, 2)
    assert state.init_errors == ["booting again"]


def test_cancel_ends_waiting_and_starts_no_new_operation(lab):
    program = "a = Machine('a', wait=True)\nMachine('b', uses=a.address)\n"
    (lab.directory / "__main__.py").write_text("from lab import Machine\n" + program)
    deployment = Deployment(lab.subject(), Options("update", False), EventBus())
    outcomes = []
    running = threading.Thread(target=lambda: outcomes.append(deployment.run()))
    running.start()
    while not (lab.directory / "waiting").exists():
        running.join(0.01)
        assert running.is_alive()
    deployment.cancel()
    running.join(LAST_RESORT)
    (outcome,) = outcomes
    assert outcome.cancelled
    assert not outcome.succeeded
    assert list(lab.platform_objects) == ["m-1"]


def test_no_object_is_created_when_the_state_cannot_be_written(lab):
    def full(_data: bytes) -> None:
        raise EngineError("no space left on the disk")

    (lab.directory / "__main__.py").write_text("from lab import Machine\nMachine('a')\n")
    subject = replace(lab.subject(), write=full)
    with pytest.raises(EngineError, match="no space left"):
        Deployment(subject, Options("update", False), EventBus()).run()
    assert lab.platform_objects == {}


def test_every_create_is_a_pending_operation_in_a_checkpoint_before_its_call(lab):
    lab.up("for i in range(20):\n    Machine(f'a{i}')\n")
    pending, present = set(), set()
    for data in lab.written:
        snapshot = Snapshot.from_json(data, lab.crypter)
        pending |= {o.resource.urn for o in snapshot.pending_operations if o.type == "creating"}
        present |= {r.urn for r in snapshot.resources if "Machine" in r.urn}
    assert len(present) == 20
    assert pending == present
    assert Snapshot.from_json(lab.written[-1], lab.crypter).pending_operations == []
    assert len(lab.written) < 40, "writes are grouped"


def test_a_pending_create_of_an_interrupted_run_is_reported_and_kept(lab):
    lab.up("Machine('a')")
    lost = ResourceState(lab.state("a").urn.replace("::a", "::lost"), True, lab.state("a").type)
    lab.snapshot.pending_operations = [
        PendingOperation(lost, "creating"),
        PendingOperation(lab.state("a"), "updating"),
    ]
    lab.up("Machine('a', size=2)")
    assert "::lost" in lab.list_messages("warning")[0]
    assert [o.type for o in lab.snapshot.pending_operations] == ["creating"]


def test_a_run_restores_the_process_state(lab):
    before = (Path.cwd(), list(sys.path), sys.argv, set(sys.modules))
    lab.up("import os, sys\nos.chdir('/')\nsys.argv.append('x')\nMachine('a')\n")
    assert (Path.cwd(), sys.path, sys.argv) == before[:3]
    assert "lab" not in set(sys.modules) - before[3]


def test_operations_running_at_a_failure_are_finished_and_saved(lab):
    (lab.directory / "late.py").write_text(
        "import pathlib, time\n"
        "from pulumi.dynamic import CreateResult, Resource, ResourceProvider\n"
        "HERE = pathlib.Path(__file__).parent\n"
        "def until(name):\n"
        "    while not (HERE / name).exists():\n"
        "        time.sleep(0.005)\n"
        "class Late(ResourceProvider):\n"
        "    def create(self, props):\n"
        "        if props['first']:\n"
        "            until('begun')\n"
        "            raise RuntimeError('first')\n"
        "        (HERE / 'begun').touch()\n"
        "        until('failed')\n"
        "        return CreateResult('late', props)\n"
        "class Thing(Resource, module='late', name='Machine'):\n"
        "    def __init__(self, name):\n"
        "        super().__init__(Late(), name, {'first': name == 'a'})\n"
    )
    (lab.directory / "__main__.py").write_text("from late import Thing\nThing('a')\nThing('b')\n")
    failed = lab.directory / "failed"

    def listen(event: object) -> None:
        if isinstance(event, StepFailed):
            # The program ends before the other resource does.
            threading.Timer(0.05, failed.touch).start()

    outcome = Deployment(lab.subject(), Options("update", False), EventBus([listen])).run()
    assert not outcome.succeeded
    assert [r.id for r in outcome.snapshot.resources if r.urn.endswith("::b")] == ["late"]
    assert outcome.snapshot.pending_operations == []


def test_the_state_is_written_after_an_unexpected_exception(lab):
    lab.up("Machine('a', size=1)")
    (lab.directory / "__main__.py").write_text("from lab import Machine\nMachine('a', size=2)\n")

    def listen(event: object) -> None:
        if isinstance(event, StepDone) and event.step.state.type == STACK_TYPE:
            raise ZeroDivisionError

    deployment = Deployment(lab.subject(), Options("update", False), EventBus([listen]))
    with pytest.raises(ZeroDivisionError):
        deployment.run()
    written = Snapshot.from_json(lab.written[-1], lab.crypter)
    assert [r.outputs["size"] for r in written.resources if r.urn.endswith("::a")] == [2]
