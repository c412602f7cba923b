"""docs/reference/pulumi-cli.md tells of every scenario that is played against the Pulumi CLI."""

import pytest
from real_pulumi.table import PAGE, collected, row

from gpuform.stacks.engine.machine import LAST_TRIED


def test_none_failed_with_the_version_that_is_named() -> None:
    page = PAGE.read_text()
    assert "| fails |" not in page
    assert f"Pulumi CLI {'.'.join(map(str, LAST_TRIED))}." in page


@pytest.mark.slow
def test_the_page_has_every_scenario_and_no_other() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = [line[: line.rindex("|", 0, -1) + 1] for line in rows if "Scenario" not in line]
    assert sorted(listed) == sorted(row(*each) for each in collected())
