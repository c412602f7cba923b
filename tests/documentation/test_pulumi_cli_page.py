"""docs/reference/pulumi-cli.md lists every scenario that is run against the Pulumi CLI."""

from pathlib import Path

import pytest
from real_pulumi.table import HERE, PAGE, SECTIONS, build_page, collect_cases, format_row
from real_pulumi.test_examples import CHANGED, EDITED, EXAMPLES

from gpuform.stacks.engine.machine import LAST_TRIED


def test_all_scenarios_were_run_with_the_named_version_and_none_failed() -> None:
    page_text = PAGE.read_text()
    assert "fails |" not in page_text
    assert "not run |" not in page_text
    assert f"Pulumi CLI {'.'.join(map(str, LAST_TRIED))}." in page_text


def test_the_page_has_the_results_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [("test_sdks", "test_go"), ("test_sdks", "test_python"), ("test_programs", "test_a[b]")]
    monkeypatch.setattr("real_pulumi.table.collect_cases", lambda: cases)
    runs = []
    for day, cli, outcome, name in (
        ("2026-01-02", "3.1.0", "<failure/>", "test_go"),
        ("2026-01-03", "3.2.0", "", "test_go"),
        ("2026-01-02", "3.1.0", "<skipped message='no host'/>", "test_python"),
    ):
        runs.append(tmp_path / f"{len(runs)}.xml")
        runs[-1].write_text(
            f"<testsuites><testsuite timestamp='{day}T01:02:03'>"
            f"<testcase classname='tests.real_pulumi.test_sdks' name='{name}'>"
            f"<properties><property name='pulumi_cli' value='{cli}'/>"
            f"<property name='pulumi_sdk' value='3.5.0'/></properties>{outcome}"
            "</testcase></testsuite></testsuites>"
        )
    written = build_page(runs)
    assert (
        "was last run on 2026-01-02 and 2026-01-03 with Pulumi CLI 3.1.0 and 3.2.0 and its Python "
        "SDK 3.5.0."
    ) in written
    rows = [line for line in written.splitlines() if line.startswith("| ") and "Scen" not in line]
    assert rows == [
        "| a: `b` | each, from the same state | not run |",
        "| go | pulumi | passes |",
        "| python | pulumi | skipped: no host |",
    ]


def test_the_page_has_a_section_for_every_module() -> None:
    assert SECTIONS.keys() == {module.stem for module in HERE.glob("test_*.py")}


def test_every_example_has_a_change_that_the_pulumi_cli_plays() -> None:
    assert {*CHANGED, *EDITED} == {example.name for example in EXAMPLES}


@pytest.mark.slow
def test_the_page_has_every_scenario_and_no_other() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = [line[: line.rindex("|", 0, -1) + 1] for line in rows if "Scenario" not in line]
    assert sorted(listed) == sorted(format_row(*scenario) for scenario in collect_cases())
