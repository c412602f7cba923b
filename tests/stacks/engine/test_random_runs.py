"""Test invariants of runs with random states, programs, failures and operations."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomized import scenarios

pytestmark = pytest.mark.slow

EXAMPLES = [
    (scenarios.play_run_on_any_state, 60),
    (scenarios.play_history, 40),
    (scenarios.play_to_convergence, 25),
    (scenarios.play_saved_plan, 40),
    (scenarios.play_outdated_plan, 40),
]


def play_scenario(lab, scenario, examples: int) -> None:
    """Play a scenario `examples` times; the examples never vary."""

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def play_example(data):
        scenario(lab, data.draw)

    play_example()


@pytest.mark.parametrize(("scenario", "examples"), EXAMPLES)
def test_random_runs_keep_all_invariants(lab, scenario, examples):
    play_scenario(lab, scenario, examples)
