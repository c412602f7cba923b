"""`gpuform status --all`: each stack under its name, and what all of them come to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.stacks.project_folders import build_topology, write_project, write_three_projects

from gpuform.providers.emulator.server import environment, serve
from gpuform.schemas.plan import StackCost
from gpuform.stacks.review.multi_stack_status_text import StackStatus, Totals, format_totals
from gpuform.stacks.review.status_text import StatusReport

CLUSTER = """\
clusters:
  train:
    platform: together
    cluster_name: train
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
"""
PRICES = "currency: {}\ngpus:\n  - {{platform: together, gpu_type: H100_SXM, per_hour: {}}}\n"


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with serve(seed="status", start=1_800_000_000.0) as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def three_projects(
    project: Path, tmp_path: Path, salt: str, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write three projects without stacks into the current folder."""
    root = tmp_path / "three"
    root.mkdir()
    monkeypatch.chdir(root)
    write_three_projects(root, salt)
    return root


@pytest.fixture
def applied_project(
    run: Any, three_projects: Path, emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Create the stacks network (a volume) and clusters (a volume and a cluster), without Lens."""
    monkeypatch.delenv("LENS_URL")
    path = three_projects / "clusters/topology.yaml"
    path.write_text(path.read_text() + CLUSTER)
    for folder in ("network", "clusters"):
        assert run("--cwd", folder, "stack", "init", "prod").code == 0
        ran = run("--cwd", folder, "up", "--yes", "--skip-preview", "--stack", "prod")
        assert ran.code == 0, ran.out + ran.err
    return three_projects


def break_state(root: Path, name: str) -> None:
    path = root / f"state/.pulumi/stacks/{name}.json"
    path.write_text(path.read_text()[:100])


def test_status_all_shows_each_stack_and_the_totals(run: Any, applied_project: Path) -> None:
    before = {path: path.read_bytes() for path in applied_project.rglob("*.json")}
    ran = run("status", "--all")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    names = ["network/prod:", "clusters/prod:", "apps/prod:"]
    assert [line for line in lines if line in names] == names
    assert (
        lines[lines.index("apps/prod:") + 1]
        == f"The stack does not exist in file://{applied_project}/state yet."
    )
    assert lines[-1] == (
        "All 3 stacks: 4 resources, 16 GPUs; not created yet: apps/prod; on the emulator: "
        "network/prod, clusters/prod"
    )
    assert {path: path.read_bytes() for path in applied_project.rglob("*.json")} == before


def test_status_all_json_has_each_stack_and_the_totals(run: Any, applied_project: Path) -> None:
    prices = PRICES.format("USD", 2).replace("H100_SXM", "H200_SXM")
    (applied_project / "clusters/prices.yaml").write_text(prices)
    document = run("status", "--all", "--json").json
    assert list(document["stacks"]) == ["network/prod", "clusters/prod", "apps/prod"]
    clusters = document["stacks"]["clusters/prod"]
    assert (clusters["exists"], clusters["problem"], clusters["stack"]) == (True, "", "prod")
    names = [resource["name"] for resource in clusters["resources"]]
    assert sorted(names) == ["network", "scratch", "train"]
    assert document["stacks"]["apps/prod"] == {
        "exists": False,
        "problem": f"The stack does not exist in file://{applied_project}/state yet.",
    }
    totals = document["totals"]
    assert totals["cost"]["amounts"] == []
    assert any(
        unknown_cost.startswith("clusters/prod: train: ")
        for unknown_cost in totals.pop("cost")["unknown"]
    )
    assert totals == {
        "stacks": 3,
        "resources": 4,
        "gpus": 16,
        "not_ready": 0,
        "unread": [],
        "absent": ["apps/prod"],
        "emulated": ["network/prod", "clusters/prod"],
    }


def test_status_all_shows_the_others_if_a_state_is_unreadable(
    run: Any, applied_project: Path
) -> None:
    break_state(applied_project, "network/prod")
    ran = run("status", "--all")
    assert ran.code == 1
    assert ran.err == "error: network/prod could not be read\n"
    assert "network/prod:\nIt could not be read: " in ran.out
    assert "All 3 stacks: 3 resources, 16 GPUs" in ran.out
    assert "; not read: network/prod; not created yet: apps/prod" in ran.out
    ran = run("status", "--all", "--json")
    assert ran.code == 1
    assert ran.json["stacks"]["network/prod"]["problem"]
    assert ran.json["stacks"]["network/prod"]["exists"] is True
    assert ran.json["totals"]["unread"] == ["network/prod"]


def test_status_all_shows_the_others_if_a_backend_is_missing(
    run: Any, applied_project: Path, salt: str
) -> None:
    write_project(applied_project, "network", backend="file://./none", salt=salt)
    ran = run("status", "--all")
    assert ran.code == 1
    assert "It could not be read: the folder /" in ran.out
    assert "All 3 stacks: 3 resources" in ran.out


def test_status_all_shows_the_others_if_a_project_is_invalid(
    run: Any, applied_project: Path
) -> None:
    (applied_project / "apps/Pulumi.yaml").write_text("name: apps\nruntime: go\n")
    ran = run("status", "--all")
    assert ran.code == 1
    assert ran.err.startswith(
        "error: apps/Pulumi.yaml:2:10: gpuform does not support the runtime 'go'"
    )
    assert "All 2 stacks: 4 resources" in ran.out
    (applied_project / "stacks.yaml").write_text("stacks: 5\n")
    ran = run("status", "--all")
    assert (ran.code, ran.out) == (1, "")
    assert "cannot load the stacks:\nstacks.yaml:1:9: " in ran.err


def test_status_all_ignores_an_invalid_topology(run: Any, applied_project: Path) -> None:
    (applied_project / "network/topology.yaml").write_text("clutsers: {}\n")
    assert run("status", "--all").code == 0


def test_status_all_filter_selects_stacks(run: Any, applied_project: Path) -> None:
    ran = run("status", "--all", "--filter", "network", "--json")
    assert list(ran.json["stacks"]) == ["network/prod"]
    assert run("status", "--filter", "network").code == 2
    assert run("status", "--all", "--stack", "none").code == 1
    inside = run("--cwd", "apps", "status", "--all", "--stack", "prod", "--json")
    assert list(inside.json["stacks"]) == list(run("status", "--all", "--json").json["stacks"])


def test_status_all_asks_platforms_only_with_refresh(
    run: Any, applied_project: Path, emulator: Any
) -> None:
    path = "^/compute/clusters/[0-9a-f-]{36}$"
    rule = {"method": "GET", "path": path, "status": 403, "count": None}
    httpx.post(
        f"{emulator.url}/_emulator/faults", json=rule, trust_env=False, verify=False
    ).raise_for_status()
    assert run("status", "--all").code == 0
    ran = run("status", "--all", "--refresh")
    assert ran.code == 1
    assert ran.err == "error: clusters/prod: could not read train\n"
    assert ran.out.count("As of now, from the platforms") == 2


def test_status_all_sums_costs_by_currency(run: Any, applied_project: Path) -> None:
    (applied_project / "clusters/prices.yaml").write_text(PRICES.format("USD", 2))
    ran = run("status", "--all", "--json")
    amounts = ran.json["totals"]["cost"]["amounts"]
    assert amounts == [{"billing": "on_demand", "currency": "USD", "hourly": 32.0}]
    assert "32.00 USD/h" in run("status", "--all").out.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_status_all_shows_lens_once(
    run: Any, applied_project: Path, emulator: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("LENS_URL", environment(emulator.url)["LENS_URL"])
    ran = run("status", "--all")
    assert ran.out.count("Lens:") == 1
    assert all(
        run("status", "--all", "--json").json["stacks"][name]["lens"]
        for name in ("network/prod", "clusters/prod")
    )


@pytest.mark.slow
def test_status_all_emulate_uses_the_emulator_of_each_project(
    run: Any, three_projects: Path
) -> None:
    (three_projects / "apps/.gpuform").mkdir()
    for folder in ("network", "apps"):
        if folder == "apps":
            (three_projects / "apps/__main__.py").unlink()
            (three_projects / "apps/topology.yaml").write_text(build_topology("own"))
        assert run("--cwd", folder, "stack", "init", "prod", "--emulate").code == 0
        ran = run("--cwd", folder, "up", "--yes", "--emulate", "--stack", "prod")
        assert ran.code == 0, ran.err
    ran = run("status", "--all", "--emulate", "--refresh")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("lives on the emulator") == 2
    assert ran.out.splitlines()[-1].startswith("All 3 stacks: 2 resources; ")
    assert "; on the emulator: apps/prod, network/prod" in ran.out.splitlines()[-1]
    assert run("status", "--all").code == 0, "the state says where they live"


@pytest.mark.slow
def test_status_all_emulate_creates_no_emulator_in_projects(run: Any, three_projects: Path) -> None:
    for folder in ("network", "clusters"):
        assert run("--cwd", folder, "stack", "init", "prod", "--emulate").code == 0
    before = set(three_projects.rglob("emulator.db"))
    ran = run("status", "--all", "--emulate")
    assert ran.code == 0
    made = set(three_projects.rglob("emulator.db")) - before
    assert made <= {three_projects / ".gpuform/emulator.db"}


def test_status_all_asks_for_passphrases_by_stack(
    run: Any, applied_project: Path, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return ""

    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    monkeypatch.setattr("getpass.getpass", answer)
    for folder in ("network", "clusters"):
        path = applied_project / folder / "Pulumi.prod.yaml"
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
        flags = ("--secret", "--stack", "prod", "gpuform:lensToken", "y")
        assert run("--cwd", folder, "config", "set", *flags).code == 0
        assert "secure" in path.read_text()
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    assert run("status", "--all").code == 0
    assert [question.partition(":")[0] for question in asked] == ["network/prod", "clusters/prod"]
    asked.clear()
    ran = run("status", "--all", "--non-interactive")
    assert (ran.code, asked) == (1, [])
    assert ran.err.count("could not be read") == 2


def test_totals_without_costs_have_no_sum() -> None:
    none = StackStatus("a/b", StatusReport("b", []))
    assert format_totals(Totals.from_statuses([none])) == "All 1 stack: 0 resources"
    assert Totals.from_statuses([none]).cost is None
    some = StackStatus("c/d", StatusReport("d", [], cost=StackCost(unknown=("x: y",))))
    assert Totals.from_statuses([none, some]).cost == StackCost(unknown=("c/d: x: y",))
    assert format_totals(Totals.from_statuses([])) == "All 0 stacks: 0 resources"
