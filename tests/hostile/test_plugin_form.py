"""Test the plugin on failing platforms, killed at any request: no object is lost or created twice.

It is called as Pulumi's engine calls it: what a call has not answered, the engine does not know.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from conformance.operations import Refused
from conformance.plugin import PluginHost, start_plugin, unpack_partial_failure
from hostile.fakes.faults import AFTER, ANY, BEFORE, Fault, FaultPlan
from hostile.fakes.serving import FakePlatforms
from hostile.fakes.simulation import PlatformObject, Simulation
from hostile.planted import ALL, CONFIG_SECRET
from processes.limits import LAST_RESORT
from pulumi.runtime.proto import provider_pb2

from gpuform.providers.plugin.wire import from_struct, to_struct
from gpuform.providers.values import Secret

pytestmark = pytest.mark.slow

_CLUSTER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "billing_type": "ON_DEMAND",
}
_VOLUME = {"volume_name": "data", "region": "us-central-8", "size_tib": 5}
_POOL = {
    "cluster_fabric_name": "train",
    "node_pool_id": "POOL001-krw1a",
    "gpu_node_name_prefix": "work",
    "count": 2,
    "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
    "server_type_id": "f90e8ef54cc2451b825608e9f95f7bcb",
    "region_id": "kr-west1",
    "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
    "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
    "os_user_password": Secret(CONFIG_SECRET),
}
KINDS = {
    "together:SharedVolume": (_VOLUME, {**_VOLUME, "size_tib": 6}, 1),
    "together:Cluster": (_CLUSTER, {**_CLUSTER, "num_gpus": 24}, 1),
    "scp:NodePool": (_POOL, {**_POOL, "count": 3}, 3),
}
"""What each kind declares, a change of it, and how many objects that has in the end."""
FAULTS = [("kill", BEFORE), ("kill", AFTER), ("closed", AFTER), ("500", AFTER), ("ignored", BEFORE)]


@dataclass
class Engine:
    """One resource as Pulumi's engine knows it: id, inputs and outputs of the last answer.

    `messages` is all clear text that the plugin has returned.
    """

    fakes: FakePlatforms
    directory: Path
    type: str = ""
    id: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    is_partial: bool = False
    messages: list[str] = field(default_factory=list)
    _resources: ExitStack = field(default_factory=ExitStack)
    _plugin: PluginHost | None = None

    @property
    def urn(self) -> str:
        return f"urn:pulumi:dev::p::gpuform:{self.type}::thing"

    def kill(self, _signal: str) -> None:
        assert self._plugin is not None
        self._plugin.process.kill()
        self._plugin = None

    def begin_course(self, type_: str) -> None:
        """Forget all resources and empty the platforms; a running plugin process continues."""
        self.fakes.begin_course(Simulation())
        self.fakes.signal = self.kill
        shutil.rmtree(self.directory / ".gpuform", ignore_errors=True)
        self.type, self.id, self.inputs, self.outputs = type_, "", {}, {}
        self.is_partial, self.messages = False, []

    def close(self) -> None:
        self._resources.close()

    def create_or_update(self, declared: Mapping[str, Any]) -> str:
        """Call Check, Diff, and Create or Update, and return the result."""
        request = provider_pb2.CheckRequest(
            urn=self.urn, olds=to_struct(self.inputs), news=to_struct(declared)
        )
        checked = self._call("Check", request)
        assert not checked.failures, checked.failures
        if not self.id:
            create = provider_pb2.CreateRequest(urn=self.urn, properties=checked.inputs)
            return self._create_or_update("Create", create, checked.inputs)
        both = {"id": self.id, "urn": self.urn, "olds": to_struct(self.outputs)}
        diff = self._call("Diff", provider_pb2.DiffRequest(**both, news=checked.inputs))
        assert not diff.replaces
        if diff.changes != provider_pb2.DiffResponse.DIFF_SOME and not self.is_partial:
            return "same"
        update = provider_pb2.UpdateRequest(**both, news=checked.inputs)
        return self._create_or_update("Update", update, checked.inputs)

    def refresh(self) -> None:
        properties = to_struct(self.outputs)
        request = provider_pb2.ReadRequest(
            id=self.id, urn=self.urn, properties=properties, inputs=to_struct(self.inputs)
        )
        answer = self._call("Read", request)
        self.id, self.outputs = answer.id, from_struct(answer.properties)

    def destroy(self) -> None:
        if self.id:
            properties = to_struct(self.outputs)
            request = provider_pb2.DeleteRequest(id=self.id, urn=self.urn, properties=properties)
            self._call("Delete", request)
        self.id, self.inputs, self.outputs = "", {}, {}

    def _create_or_update(self, verb: str, request: Any, inputs: Any) -> str:
        try:
            answer = self._call(verb, request)
            self.is_partial = False
        except grpc.RpcError as error:
            answer = unpack_partial_failure(error)
            self.messages += answer.reasons
            self.is_partial = True
        self.id = self.id or answer.id
        self.inputs, self.outputs = from_struct(inputs), from_struct(answer.properties)
        self.messages.append(repr(self.outputs))  # a Secret hides itself
        return verb

    def _call(self, verb: str, request: Any) -> Any:
        if self._plugin is None:
            variables = {**self.fakes.build_environ(), "GPUFORM_ALLOW": "evict-jobs"}
            running = start_plugin(self.directory, variables)
            self._plugin = self._resources.enter_context(running)
        try:
            return getattr(self._plugin.stub, verb)(request, timeout=LAST_RESORT)
        except grpc.RpcError as error:
            self.messages.append(error.details())
            raise


@pytest.fixture(scope="module")
def fakes() -> Iterator[FakePlatforms]:
    with FakePlatforms().run_server() as serving:
        yield serving


def list_existing_objects(fakes: FakePlatforms) -> list[PlatformObject]:
    kinds = ("volume", "cluster", "node")
    platform_objects = fakes.simulation.objects
    return [
        item
        for item in platform_objects
        if item.kind in kinds and item.is_alive(fakes.simulation.now)
    ]


def repeat_until(expected_result: object, engine: Engine, step: Callable[[], object]) -> None:
    """Repeat a step as a person does, with a refresh after what is not ready or has failed.

    Only a refresh shows that the platform has accepted an update and ignored it.
    """
    for _ in range(6):
        engine.fakes.simulation.advance(30)
        is_failed = False
        try:
            if step() == expected_result:
                return
        except (grpc.RpcError, Refused):
            is_failed = True
        if engine.id and (is_failed or engine.is_partial):
            engine.refresh()
    raise AssertionError(f"it does not come to an end: {engine.messages[-3:]}")


@pytest.fixture
def engine(fakes: FakePlatforms, tmp_path: Path) -> Iterator[Engine]:
    new_engine = Engine(fakes, tmp_path / "plugin")
    yield new_engine
    new_engine.close()


@pytest.mark.parametrize(("failure", "effect"), FAULTS)
@pytest.mark.parametrize("verb", ["create", "update", "delete"])
@pytest.mark.parametrize("type_", KINDS)
def test_no_fault_at_any_request_loses_or_doubles_an_object(
    fakes: FakePlatforms, engine: Engine, type_: str, verb: str, failure: str, effect: str
) -> None:
    declared, changed, number = KINDS[type_]
    step = engine.destroy if verb == "delete" else lambda: engine.create_or_update(changed)
    for nth in range(1, 30):
        engine.begin_course(type_)
        if verb != "create":
            engine.create_or_update(declared)
        has_happened = run_step_with_fault(fakes, engine, Fault(ANY, failure, effect, nth), step)
        repeat_until("same", engine, lambda: engine.create_or_update(changed))
        assert len(list_existing_objects(fakes)) == number, [
            str(item) for item in list_existing_objects(fakes)
        ]
        repeat_until(None, engine, engine.destroy)
        fakes.simulation.advance(300)
        assert list_existing_objects(fakes) == []
        output = "\n".join([*engine.messages, (engine.directory / "plugin.log").read_text()])
        assert not [item for item in ALL if item in output]
        assert not re.search(r"Traceback|error in gpuform", output)
        if not has_happened:
            return


def run_step_with_fault(
    fakes: FakePlatforms, engine: Engine, fault: Fault, step: Callable[[], object]
) -> bool:
    """Take a step under a fault, and return whether the fault happened."""
    fakes.plan, fakes.hostile = FaultPlan((fault,)), {engine.type.partition(":")[0]}
    with suppress(grpc.RpcError, Refused):
        step()
    fakes.hostile = set()
    return bool(fakes.plan.applied_faults)
