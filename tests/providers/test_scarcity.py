"""Test Together without stock: reported, or searched for as declared; never two clusters."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import use_context
from gpuform.providers.errors import Cancelled, NameTaken, OutOfCapacity, UnknownOutcome
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster import ClusterLifecycle

Properties = dict[str, Any]

CREATE = "^/compute/clusters$"
HERE, THERE = "us-central-8", "us-central-4"
SEARCH = {"alternatives": [{"gpu_type": "H200_SXM"}, {"region": THERE}]}


class Killed(BaseException):
    """The process is killed here."""


@pytest.fixture
def declared(cluster_inputs: Properties) -> Properties:
    return {**cluster_inputs, "on_no_capacity": SEARCH}


@pytest.fixture
def waiting(cluster_inputs: Properties) -> Properties:
    return {**cluster_inputs, "on_no_capacity": {"wait_minutes": 30.0}}


def _now(emulator: Any) -> float:
    now: float = emulator.http.get("/_emulator/clock").json()["now"]
    return now


def _list_attempts(emulator: Any) -> list[tuple[str, str]]:
    return [(p["body"]["gpu_type"], p["body"]["region"]) for p in emulator.list_requests("POST")]


def _exhaust_region(emulator: Any) -> None:
    emulator.add_fault("POST", CREATE, capacity=True, sent={"region": HERE}, count=None)


ALL = [("H100_SXM", HERE), ("H200_SXM", HERE), ("H100_SXM", THERE)]


class TestAlternatives:
    def test_alternatives_are_tried_in_order_and_the_placement_is_an_output(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        _exhaust_region(emulator)
        with emulator.use_context_of():
            created = lifecycle.create(declared)
        assert _list_attempts(emulator) == ALL
        outs = created.outs
        assert (outs["region"], outs["gpu_type"]) == (HERE, "H100_SXM")
        assert (outs["placed_region"], outs["placed_gpu_type"]) == (THERE, "H100_SXM")
        assert outs["ready"] is True
        first, second, third = (f"{gpu_type} in {region}" for gpu_type, region in ALL)
        assert emulator.reported.progress[:4] == [
            f"trying {first}, then {second}, {third}",
            f"trying {second}; out of capacity: {first}",
            f"trying {third}; out of capacity: {first}, {second}",
            f"using {third}; out of capacity: {first}, {second}",
        ]
        assert len(emulator.list_objects("clusters")) == 1

    def test_on_no_capacity_is_not_sent(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        with emulator.use_context_of():
            lifecycle.create(declared)
        assert _list_attempts(emulator) == ALL[:1]
        assert "on_no_capacity" not in emulator.list_requests("POST")[0]["body"]

    def test_a_placement_is_no_drift_and_no_change(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        _exhaust_region(emulator)
        with emulator.use_context_of():
            inputs = {**lifecycle.check({}, declared).inputs, "__provider": "pickled"}
            created = lifecycle.create(inputs)
            state = {**created.outs, "__provider": "pickled"}
            assert lifecycle.diff(created.id, state, inputs).changes is False
            read = lifecycle.read(created.id, state)
        assert read.outs == created.outs
        assert read.inputs == {k: v for k, v in inputs.items() if k != "__provider"}
        without = {k: v for k, v in inputs.items() if k != "on_no_capacity"}
        assert lifecycle.diff(created.id, state, without).changes is False

    def test_a_placement_is_kept_when_alternatives_are_no_longer_declared(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        _exhaust_region(emulator)
        with emulator.use_context_of():
            inputs = {**lifecycle.check({}, declared).inputs, "__provider": "pickled"}
            created = lifecycle.create(inputs)
            state = {**created.outs, "__provider": "pickled"}
            smaller = {k: v for k, v in inputs.items() if k != "on_no_capacity"} | {"num_gpus": 8}
            updated = lifecycle.update(created.id, state, smaller)
            assert updated.outs is not None
            read = lifecycle.read(created.id, updated.outs)
        state = {**read.outs, "__provider": "pickled"}
        assert lifecycle.diff(created.id, state, smaller).changes is False
        assert read.outs["placed_region"] == THERE

    def test_declaring_the_placement_changes_only_the_state(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        _exhaust_region(emulator)
        with emulator.use_context_of():
            inputs = {**lifecycle.check({}, declared).inputs, "__provider": "pickled"}
            created = lifecycle.create(inputs)
            state = {**created.outs, "__provider": "pickled"}
            settled = {**inputs, "region": THERE, "on_no_capacity": None}
            (change,) = lifecycle.list_changes(state, settled)
            assert (change.path, change.replaces) == ("region", False)
            assert change.because == "recorded in the state: the platform already has the value"
            updated = lifecycle.update(created.id, state, settled)
        assert emulator.list_requests("PUT") == []
        assert updated.outs is not None
        state = {**updated.outs, "__provider": "pickled"}
        assert lifecycle.diff(created.id, state, settled).changes is False
        assert lifecycle.diff(created.id, state, inputs).replaces == ["region"]

    def test_another_error_ends_the_search(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, status=422)
        with emulator.use_context_of(), pytest.raises(Exception, match="answered 422"):
            lifecycle.create(declared)
        assert len(_list_attempts(emulator)) == 1
        assert emulator.intents.list_all() == []

    def test_the_error_names_all_attempts(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=None)
        with emulator.use_context_of(), pytest.raises(OutOfCapacity) as caught:
            lifecycle.create(declared)
        assert caught.value.message == (
            "Together is out of capacity: it has no 16 H100_SXM GPUs free in us-central-8 and "
            "no 16 H200_SXM GPUs free in us-central-8 and no 16 H100_SXM GPUs free in "
            "us-central-4 now; nothing was created"
        )
        assert (emulator.list_objects("clusters"), emulator.intents.list_all()) == ([], [])

    def test_alternatives_are_checked_while_planning(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        wrong = [{"region": "atlantis"}, {"region": "us-west-3"}, {"gpu_type": "B200_SXM"}]
        wrong.append({"region": "us-east-2", "gpu_type": "B200_SXM"})
        with emulator.use_context_of(preview=True):
            failures = lifecycle.check(
                {}, {**declared, "on_no_capacity": {"alternatives": wrong}}
            ).failures
        result = [(failure.property, failure.reason) for failure in failures]
        expected = [
            ("[0].region", "atlantis is not a region"),
            ("[1].region", "us-west-3 does not offer H100_SXM"),
            ("[1].region", "us-west-3 does not offer CUDA 12.6 with driver 560"),
            ("[2].gpu_type", "us-central-8 does not offer B200_SXM"),
            ("[3].region", "us-east-2 does not offer CUDA 12.6 with driver 560"),
        ]
        assert [path for path, _ in result] == [
            f"on_no_capacity.alternatives{position}" for position, _ in expected
        ]
        for (_, reason), (_, expected_reason) in zip(result, expected, strict=True):
            assert reason.startswith(expected_reason)


class TestWaiting:
    @pytest.mark.exact_waits
    def test_the_search_is_repeated_until_there_is_capacity(
        self, lifecycle: ClusterLifecycle, emulator: Any, waiting: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=5)
        began = _now(emulator)
        with emulator.use_context_of():
            created = lifecycle.create(waiting)
        assert created.outs["ready"] is True
        times = [post["time"] - began for post in emulator.list_requests("POST")]
        assert times == [0, 60, 120, 180, 240, 300]
        assert emulator.reported.progress[0] == "out of capacity; trying again for 30m00s"
        assert len(emulator.list_objects("clusters")) == 1

    def test_each_round_reports_all_attempts(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=6)
        search = {"alternatives": SEARCH["alternatives"][:1], "wait_minutes": 30.0}
        with emulator.use_context_of():
            lifecycle.create({**declared, "on_no_capacity": search})
        first, second = (f"{gpu_type} in {region}" for gpu_type, region in ALL[:2])
        assert emulator.reported.progress[:4] == [
            f"trying {first}, then {second}",
            f"trying {second}; out of capacity: {first}",
            f"out of capacity: {first}, {second}; trying again for 30m00s",
            f"trying again {first}, then {second}",
        ]

    @pytest.mark.exact_waits
    def test_the_search_ends_at_its_limit_without_an_intent(
        self, lifecycle: ClusterLifecycle, emulator: Any, waiting: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=None)
        began = _now(emulator)
        with (
            emulator.use_context_of(),
            pytest.raises(OutOfCapacity, match="16 H100_SXM GPUs free in"),
        ):
            lifecycle.create(waiting)
        assert _now(emulator) - began == 1800
        assert len(_list_attempts(emulator)) == 31
        assert (emulator.list_objects("clusters"), emulator.intents.list_all()) == ([], [])

    @pytest.mark.exact_waits
    def test_a_custom_timeout_ends_the_search(
        self, lifecycle: ClusterLifecycle, emulator: Any, waiting: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=None)
        began = _now(emulator)
        with emulator.use_context_of(timeout=90.0), pytest.raises(OutOfCapacity):
            lifecycle.create(waiting)
        assert _now(emulator) - began == 90

    @pytest.mark.slow
    @pytest.mark.exact_waits
    def test_the_search_does_not_shorten_the_time_to_become_ready(
        self, lifecycle: ClusterLifecycle, emulator: Any, waiting: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=90)
        patient = {**waiting, "on_no_capacity": {"wait_minutes": 120.0}}
        call = emulator.create_context()
        with use_context(call):
            created = lifecycle.create(patient)
        assert created.outs["ready"] is True
        began = emulator.list_requests("POST")[0]["time"]
        assert call.progress.deadline == began + 90 * 60 + ClusterLifecycle.timeouts.create

    def test_an_interruption_ends_the_search_without_an_intent(
        self, lifecycle: ClusterLifecycle, emulator: Any, waiting: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=None)
        call = emulator.create_context()
        change_context(call, on_progress=lambda _text: call.cancelled.set())
        with use_context(call), pytest.raises(Cancelled):
            lifecycle.create(waiting)
        assert len(_list_attempts(emulator)) == 1
        assert (emulator.list_objects("clusters"), emulator.intents.list_all()) == ([], [])

    def test_a_cluster_of_somebody_else_created_meanwhile_is_not_adopted(
        self, lifecycle: ClusterLifecycle, emulator: Any, waiting: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, count=2)

        def create_outside(text: str) -> None:
            if text.startswith("out of capacity") and not emulator.list_objects("clusters"):
                emulator.clear_faults()
                body = {k: v for k, v in waiting.items() if k[0] != "_" and k != "on_no_capacity"}
                emulator.send_as_somebody_else("POST", "/clusters", {**body, "num_gpus": 16})

        call = emulator.create_context()
        change_context(call, on_progress=create_outside)
        with use_context(call), pytest.raises(NameTaken):
            lifecycle.create(waiting)
        assert len(emulator.list_objects("clusters")) == 1
        assert emulator.intents.list_all() == []

    def test_growing_waits_for_capacity_and_names_the_placement(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        _exhaust_region(emulator)
        with emulator.use_context_of():
            inputs = {**lifecycle.check({}, declared).inputs, "__provider": "pickled"}
            created = lifecycle.create(inputs)
        state = {**created.outs, "__provider": "pickled"}
        emulator.add_fault("PUT", "^/compute/clusters/", capacity=True, count=2)
        with emulator.use_context_of(), pytest.raises(OutOfCapacity) as caught:
            lifecycle.update(created.id, state, {**inputs, "num_gpus": 24})
        assert "no 24 H100_SXM GPUs free in us-central-4 now; nothing was changed" in str(
            caught.value
        )
        larger = {**inputs, "num_gpus": 24, "on_no_capacity": {"wait_minutes": 3}}
        with emulator.use_context_of():
            updated = lifecycle.update(created.id, state, larger)
        assert updated.outs is not None
        assert (updated.outs["num_gpus"], updated.outs["ready"]) == (24, True)


class TestNeverTwo:
    """The second attempt of a search meets a fault; no further attempt may follow."""

    @pytest.fixture(autouse=True)
    def _exhaust_first_placement(self, emulator: Any) -> None:
        emulator.add_fault("POST", CREATE, capacity=True, sent={"gpu_type": "H100_SXM"})

    def test_the_object_of_a_lost_answer_is_found_at_the_attempted_placement(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, drop="after", sent={"gpu_type": "H200_SXM"})
        with emulator.use_context_of():
            created = lifecycle.create(declared)
        assert _list_attempts(emulator) == ALL[:2]
        assert created.outs["placed_gpu_type"] == "H200_SXM"
        assert len(emulator.list_objects("clusters")) == 1

    def test_an_unknown_result_stops_the_search(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        emulator.add_fault("POST", CREATE, drop="before", sent={"gpu_type": "H200_SXM"})
        with emulator.use_context_of(), pytest.raises(UnknownOutcome):
            lifecycle.create(declared)
        assert _list_attempts(emulator) == ALL[:2]
        (intent,) = emulator.intents.list_all()
        assert (intent.region, intent.tried_region, intent.tried_gpu_type) == (
            HERE,
            HERE,
            "H200_SXM",
        )
        with emulator.use_context_of():
            lifecycle.create(declared)
        assert len(emulator.list_objects("clusters")) == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("search", [SEARCH, None], ids=["declared", "no longer declared"])
    def test_a_killed_search_finds_its_object_at_the_attempted_placement(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        search: Properties | None,
    ) -> None:
        elsewhere = {"alternatives": [{"region": THERE}]}
        send: Callable[..., Any] = TogetherClient.create_cluster

        def die(client: TogetherClient, inputs: Any) -> Any:
            send(client, inputs)
            raise Killed

        with monkeypatch.context() as patch, emulator.use_context_of(), suppress(Killed):
            patch.setattr(TogetherClient, "create_cluster", die)
            lifecycle.create({**cluster_inputs, "on_no_capacity": elsewhere})
        (intent,) = emulator.intents.list_all()
        assert (intent.id, intent.tried_region) == (None, THERE)
        with emulator.use_context_of():
            created = lifecycle.create({**cluster_inputs, "on_no_capacity": search})
        assert created.outs["placed_region"] == THERE
        assert [found_object["id"] for found_object in emulator.list_objects("clusters")] == [
            created.id
        ]

    def test_a_name_in_use_at_an_alternative_is_refused(
        self, lifecycle: ClusterLifecycle, emulator: Any, declared: Properties
    ) -> None:
        body = {k: v for k, v in declared.items() if k[0] != "_" and k != "on_no_capacity"}
        theirs = emulator.send_as_somebody_else(
            "POST", "/clusters", {**body, "num_gpus": 16, "region": THERE, "gpu_type": "B200_SXM"}
        )
        with emulator.use_context_of(), pytest.raises(NameTaken, match=theirs["cluster_id"]):
            lifecycle.create(declared)
        assert len(emulator.list_objects("clusters")) == 1
        emulator.clear_faults()
        single_placement = {**declared, "on_no_capacity": None}
        with emulator.use_context_of():
            lifecycle.create(single_placement)
        assert len(emulator.list_objects("clusters")) == 2
