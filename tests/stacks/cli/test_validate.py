"""`gpuform validate`: files, stacks and forms of output; neither passphrase nor network."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.topologies.topology_planner import declare_cluster

GPUS = '"{{ config.gpus }}"'
GOOD = f"""config:
  gpus: {{type: integer, default: 16, multiple_of: 8}}
  sites: {{type: array}}
clusters:
  train: {declare_cluster(num_gpus=GPUS)}
"""
BAD = GOOD.replace("us-central-8", "5").replace("H100_SXM", "H100_SMX") + "clutsers: {}\n"
EACH = GOOD + "  more: " + declare_cluster(for_each="'{{ config.sites }}'") + "\n"


@pytest.fixture
def write_topology(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that writes the topology; program and passphrase are removed."""
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    (project / "__main__.py").unlink()
    return (project / "topology.yaml").write_text


def test_validate_accepts_a_valid_topology(run: Any, write_topology: Any) -> None:
    write_topology(GOOD)
    ran = run("validate")
    assert (ran.code, ran.out, ran.err) == (0, "topology.yaml is valid: 1 resource\n", "")


def test_validate_leaves_values_open_that_a_stack_sets(run: Any, write_topology: Any) -> None:
    write_topology(EACH)
    ran = run("validate")
    assert ran.code == 0
    assert ran.out == (
        "topology.yaml is valid: 1 resource, and an unknown number of resources of clusters.more\n"
    )


def test_validate_reports_all_problems_with_positions(run: Any, write_topology: Any) -> None:
    write_topology(BAD)
    ran = run("validate")
    assert ran.code == 1
    positions = [line.split(" ")[0] for line in ran.out.splitlines() if not line.startswith(" ")]
    assert positions == ["topology.yaml:5:63:", "topology.yaml:5:76:", "topology.yaml:6:1:"]
    assert "did you mean H100_SXM?" in ran.out
    assert "  did you mean clusters?" in ran.out
    assert ran.err == "error: 3 problems\n"


def test_validate_of_several_files_names_each(run: Any, write_topology: Any, project: Path) -> None:
    (project / "parts").mkdir()
    (project / "parts/bad.yaml").write_text("outputs: {a: '{{ b }}'}\n")
    (project / "good.yml").write_text(GOOD)
    ran = run("validate", "good.yml", "parts/bad.yaml", "none.yaml")
    assert ran.code == 1
    assert [line.partition(" ")[0] for line in ran.out.splitlines() if line[0] != " "] == [
        *("none.yaml:1:1:", "parts/bad.yaml:1:18:")
    ]
    assert run("validate", "good.yml").code == 0


def test_validate_json_describes_problems(run: Any, write_topology: Any) -> None:
    write_topology(BAD)
    ran = run("validate", "--format", "json")
    assert ran.code == 1
    problem = ran.json[-1]
    assert problem == {
        "file": "topology.yaml",
        "line": 6,
        "column": 1,
        "severity": "error",
        "rule": "unknown-key",
        "message": "clutsers is not known",
        "hint": "did you mean clusters?",
    }
    write_topology(GOOD)
    ran = run("validate", "--format", "json")
    assert (ran.code, ran.json) == (0, [])


def test_validate_sarif_describes_problems(run: Any, write_topology: Any) -> None:
    write_topology(BAD)
    (sarif_run,) = run("validate", "-f", "sarif").json["runs"]
    assert {rule["id"] for rule in sarif_run["tool"]["driver"]["rules"]} == {"unknown-key", "value"}
    (location,) = sarif_run["results"][-1]["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "topology.yaml"},
        "region": {"startLine": 6, "startColumn": 1},
    }
    write_topology(GOOD)
    assert run("validate", "-f", "sarif").json["runs"][0]["results"] == []


def test_validate_github_prints_annotations(run: Any, write_topology: Any) -> None:
    write_topology(BAD)
    ran = run("validate", "-f", "github")
    assert ran.out.splitlines()[-1] == (
        "::error file=topology.yaml,line=6,col=1,title=unknown-key::"
        "clutsers is not known%0Adid you mean clusters?"
    )
    write_topology(GOOD)
    assert run("validate", "-f", "github").out.strip() == ""


def test_validate_stack_checks_configured_values(
    run: Any, write_topology: Any, project: Path
) -> None:
    write_topology(GOOD)
    settings = project / "Pulumi.dev.yaml"
    settings.write_text(settings.read_text() + "config:\n  demo:gpus: 20\n")
    assert run("validate").code == 0
    ran = run("validate", "--stack", "dev")
    assert ran.code == 1
    assert ran.out.startswith("topology.yaml:2:3: config.gpus: 20 is not a multiple of 8\n")
    settings.write_text("config:\n  demo:gpus: {secure: v1:not-to-be-read}\n")
    assert run("validate", "--stack", "dev").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--stack", "prod"], 1, "stack prod has no settings file Pulumi.prod.yaml"),
        (["--format", "xml"], 2, "'xml' is not one of"),
        ([], 1, "has no topology.yaml"),
    ],
)
def test_validate_fails_for_unknown_stack_format_or_file(
    run: Any, write_topology: Any, arguments: list[str], code: int, message: str
) -> None:
    if arguments:
        write_topology(GOOD)
    ran = run("validate", *arguments)
    assert ran.code == code
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_validate_works_outside_of_a_project(run: Any, project: Path, tmp_path: Path) -> None:
    file = tmp_path / "alone.yaml"
    file.write_text(BAD)
    ran = run("validate", str(file), "--format", "json")
    assert ran.code == 1
    assert {load["file"] for load in json.loads(ran.out)} == {str(file)}


def test_validate_refuses_gates_in_two_currencies(
    run: Any, write_topology: Any, project: Path
) -> None:
    write_topology(GOOD)
    (project / "gates.yaml").write_text(
        "gates:\n"
        "  budget: {max_hourly_cost: {amount: 5, currency: USD}}\n"
        "  other: {max_hourly_cost: {amount: 5, currency: EUR}}\n"
    )
    ran = run("validate")
    assert ran.code == 1
    assert ran.out == (
        "gates.yaml:3:50: gates.other.max_hourly_cost.currency: is EUR, and the limit at "
        "gates.yaml:2:51 is in USD: costs in two currencies cannot be compared\n"
        "  write the limit in USD\n"
    )
    (project / "prices.yaml").write_text("currency: EUR\n")
    ran = run("validate", "-f", "json")
    (problems,) = ran.json
    assert (problems["file"], problems["line"], problems["column"]) == ("gates.yaml", 2, 51)
    assert "is USD, and the prices at prices.yaml:1:11 are in EUR" in problems["message"]
    (project / "prices.yaml").write_text("currency: euros\n")
    ran = run("validate")
    assert "prices.yaml:1:11: currency: must be a currency's code" in ran.out
    (project / "prices.yaml").unlink()
    (project / "gates.yaml").write_text("gates: {b: {max_hourly_cost: {amount: 5, currency: KRW}}}")
    assert run("validate").code == 0


def test_a_gate_in_another_currency_than_the_prices_fails_the_preview(dev: Any) -> None:
    Path("prices.yaml").write_text("currency: EUR\n")
    Path("gates.yaml").write_text("gates: {b: {max_hourly_cost: {amount: 5, currency: USD}}}\n")
    ran = dev("preview")
    assert ran.code == 1
    assert "gates.yaml:1:52: gates.b.max_hourly_cost.currency: is USD, and the prices" in ran.err
