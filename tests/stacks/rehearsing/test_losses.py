"""What a run has cost the fleet, from samples of the fleet over the clock."""

from collections.abc import Mapping

from flask.typing import ResponseReturnValue

from gpuform.providers.emulator.server import serve
from gpuform.providers.emulator.together import ADMIN_KEY
from gpuform.stacks.rehearsing.fleet import (
    FleetLoss,
    FleetRecorder,
    FleetState,
    FleetTarget,
    Owner,
    find_unknown_objects,
    list_lost_data,
    measure_loss,
    sum_billed_hours,
)

A: Owner = ("together", "a")
B: Owner = ("together", "b")


def sample(at: float, working: Mapping[Owner, int], urn: str = "") -> FleetState:
    return FleetState(at, working, {"together": sum(working.values())}, urn)


def aim(before: Mapping[Owner, int], after: Mapping[Owner, int]) -> FleetTarget:
    urns = {A: frozenset({"urn-a"}), B: frozenset({"urn-b"})}
    return FleetTarget.from_states(sample(0, before), sample(1, after), urns)


def test_gpus_that_the_plan_keeps_are_lost_while_they_do_not_work() -> None:
    samples = [sample(0, {A: 16}), sample(600, {}), sample(4200, {A: 16}), sample(5000, {A: 16})]
    assert measure_loss(aim({A: 16}, {A: 16}), samples) == FleetLoss(16, 3600, 16.0)


def test_gpus_that_the_plan_removes_or_adds_are_not_lost() -> None:
    samples = [sample(0, {A: 16}), sample(600, {A: 8}), sample(3600, {A: 8, B: 8})]
    assert measure_loss(aim({A: 16}, {A: 8, B: 8}), samples) == FleetLoss(8, 3000, 6.67)
    assert measure_loss(aim({A: 16}, {A: 8}), samples) == FleetLoss(0, 0, 0.0)


def test_gpus_that_move_to_another_cluster_are_lost_between_the_two() -> None:
    samples = [sample(0, {A: 16}), sample(60, {}), sample(3660, {B: 16}), sample(3700, {B: 16})]
    assert measure_loss(aim({A: 16}, {B: 16}), samples) == FleetLoss(16, 3600, 16.0)


def test_time_during_a_step_of_another_resource_does_not_count() -> None:
    samples = [
        sample(0, {A: 8, B: 8}, "urn-a"),
        sample(0, {B: 8}, "urn-a"),
        sample(1800, {A: 8, B: 8}, "urn-b"),
        sample(1800, {A: 8}, "urn-a"),
        sample(5400, {A: 8}, "urn-b"),
        sample(9000, {A: 8, B: 8}),
    ]
    loss = measure_loss(aim({A: 8, B: 8}, {A: 8, B: 8}), samples)
    assert loss == FleetLoss(16, 3600, 12.0)


def test_time_between_runs_counts_for_every_owner() -> None:
    samples = [sample(0, {A: 8}), sample(0, {}, ""), sample(7200, {A: 8}), sample(7200, {A: 8})]
    assert measure_loss(aim({A: 8}, {A: 8}), samples) == FleetLoss(8, 7200, 16.0)


def test_gpus_that_the_hazard_takes_by_itself_are_excused() -> None:
    broken = FleetState(0, {A: 8}, {}, excused={A: 8})
    worse = FleetState(3600, {}, {}, excused={A: 8})
    samples = [broken, worse, FleetState(7200, {A: 8}, {}, excused={A: 8})]
    assert measure_loss(aim({A: 16}, {A: 16}), samples) == FleetLoss(8, 3600, 8.0)


def test_gpus_missing_at_the_end_are_lost_without_a_duration() -> None:
    assert measure_loss(aim({A: 8}, {A: 8}), [sample(0, {A: 8}), sample(5, {})]).gpus == 8


def test_charged_hours_go_on_after_the_last_sample() -> None:
    samples = [sample(0, {A: 8}), sample(3600, {A: 16})]
    assert sum_billed_hours(samples, 7200) == {"together": 8 + 16}


def test_data_is_lost_by_its_key_and_reported_by_its_label() -> None:
    before = FleetState(0, {}, {}, data={("together", "v1"): "volume data, 5 TiB"})
    again = FleetState(1, {}, {}, data={("together", "v2"): "volume data, 5 TiB"})
    assert list_lost_data(before, again) == ("volume data, 5 TiB",)
    assert list_lost_data(before, before) == ()


def test_objects_that_no_state_has_are_found_unless_they_are_being_deleted() -> None:
    objects = {
        "together": {
            "clusters": [
                {"id": "c-1", "name": "train", "status": "Ready"},
                {"id": "c-2", "name": "train", "status": "Ready"},
                {"id": "c-3", "name": "old", "status": "Deleting"},
            ],
            "volumes": [{"id": "v-1", "name": "data", "status": "available"}],
            "ssh_keys": [{"id": "k-1", "name": "key", "status": ""}],
        }
    }
    assert find_unknown_objects(objects, {"c-1"}) == {
        "together cluster train",
        "together volume data",
    }
    assert find_unknown_objects(objects, {"c-1", "c-2", "v-1"}) == frozenset()


def test_the_fleet_is_asked_for_again_after_a_change_and_after_a_wait() -> None:
    cluster = {"cluster_name": "a", "region": "us-central-8", "gpu_type": "H100_SXM"}
    cluster |= {"driver_version": "CUDA_12_6_560", "billing_type": "ON_DEMAND"}
    with serve(seed="fleet", start=1_764_200_000.0) as server:
        recorder, copy = FleetRecorder(server), server.store.dump()
        client = server.app.test_client()
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}

        def read_gpus() -> tuple[int, int]:
            """Return the charged and the working GPUs, which a second look does not change."""
            state = recorder.read(server.clock.now())
            assert recorder.read(server.clock.now()) == state
            return state.billed["together"], state.working[A]

        def read_gpus_anew() -> tuple[int, int]:
            state = FleetRecorder(server).read(server.clock.now())
            return state.billed["together"], state.working[A]

        assert read_gpus() == (0, 0)
        answer = client.post(
            "/together/v1/compute/clusters", json={**cluster, "num_gpus": 16}, headers=headers
        )
        assert answer.status_code < 300, answer.text
        assert read_gpus() == (16, 0)
        begun = server.clock.now()
        while read_gpus() != (16, 16):
            server.clock.advance(60)
            assert server.clock.now() < begun + 7200
            assert read_gpus() == read_gpus_anew()
        name = min(recorder.read(server.clock.now()).nodes)
        recorder.failed_nodes.add(name)
        assert read_gpus() == (16, 8)
        server.store.restore(copy)
        assert read_gpus() == (0, 0)


def test_a_fleet_in_which_nothing_happens_is_asked_for_once() -> None:
    with serve(seed="fleet", start=1_764_999_000.0) as server:
        recorder, requests = FleetRecorder(server), 0
        answer_request = server.app.dispatch_request

        def count_requests() -> ResponseReturnValue:
            nonlocal requests
            requests += 1
            return answer_request()

        server.app.dispatch_request = count_requests  # type: ignore[method-assign]
        for _ in range(3):
            recorder.sample(server.clock.now())
            server.clock.advance(60)
        assert requests == 1
        # Times that begin with other digits are not looked for.
        server.clock.advance(1000)
        recorder.sample(server.clock.now())
        assert requests == 2
