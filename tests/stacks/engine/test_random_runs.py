"""Random old state, program, failure and operation: what must always hold, holds."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomized import scenarios

pytestmark = pytest.mark.slow

EXAMPLES = [
    (scenarios.a_run_on_any_state, 60),
    (scenarios.a_history, 40),
    (scenarios.a_happy_end, 25),
    (scenarios.a_saved_plan, 40),
    (scenarios.an_overtaken_plan, 40),
]


def explore(lab, scenario, examples: int) -> None:
    """Plays a scenario that often, the same examples each time."""

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def course(data):
        scenario(lab, data.draw)

    course()


@pytest.mark.parametrize(("scenario", "examples"), EXAMPLES)
def test_random_runs(lab, scenario, examples):
    explore(lab, scenario, examples)
