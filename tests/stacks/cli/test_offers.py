"""Test `gpuform offers`: the platforms' offers, the questions asked, and later uses."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.topologies.topology_planner import declare_cluster

from gpuform.providers.emulator.server import environment, serve

Run = Any
PRICES = """\
currency: USD
gpus:
  - {platform: together, gpu_type: H100_SXM, per_hour: 2.99}
  - {platform: together, gpu_type: H100_SXM, billing: reserved, region: us-central-8, per_hour: 2.2}
"""


@pytest.fixture(scope="module")
def platform_variables() -> Any:
    with serve(seed="offers") as server:
        yield environment(server.url)


@pytest.fixture
def run_reached(
    run: Run, platform_variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Return the commands of a user whose platforms are served by an emulator."""
    for name, value in platform_variables.items():
        monkeypatch.setenv(name, value)
    return run


def split_rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_offers_prints_a_table_with_prices(run_reached: Run, project: Path) -> None:
    (project / "prices.yaml").write_text(PRICES)
    ran = run_reached(
        "offers", "--platform", "together", "--gpu", "h100 sxm", "--region", "us-central-8"
    )
    assert ran.code == 0, ran.err
    rows = split_rows(ran.out)
    assert rows[0] == ["PLATFORM", "REGION", "WHAT", "FIELD", "VALUE", "PRICE", "ABOUT"]
    gpu = "together us-central-8 GPU type gpu_type H100_SXM 2.99 USD/h, 2.20 USD/h reserved -"
    assert gpu.split() in rows
    assert "H200_SXM" not in ran.out
    assert "CUDA_12_6_560" in ran.out, "the drivers of the regions that have it"


def test_offers_json_lists_every_platform(run_reached: Run) -> None:
    ran = run_reached("offers", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["asked"], ran.json["documented"]) == (["together", "scp"], ["tensorone"])
    stock = {offer["about"]: offer["in_stock"] for offer in ran.json["offers"] if offer["gpu"]}
    assert (stock["g2v192m1920_metal, H100"], stock["g3v224m2048_metal, B200"]) == (True, False)
    offered_kinds = {(offer["platform"], offer["what"]) for offer in ran.json["offers"]}
    assert {("scp", "image"), ("scp", "node pool"), ("together", "driver")} <= offered_kinds


def test_offers_of_scp_are_filtered_by_region(run_reached: Run) -> None:
    ran = run_reached("offers", "--platform", "scp", "--region", "kr-east1", "--json")
    images = {offer["region"] for offer in ran.json["offers"] if offer["what"] == "image"}
    assert images == {"kr-east1"}


def test_offers_emulate_works_outside_of_a_project(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    ran = run("offers", "--emulate", "--platform", "together")
    assert ran.code == 0, ran.err
    assert "GB200_SXM" in ran.out
    assert list(outside.iterdir()) == []


def test_offers_names_platforms_that_could_not_be_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run("offers")
    assert ran.code == 1
    assert "not asked: together (the API key for Together is missing" in ran.out
    assert "not asked: tensorone (its API has no such lists" in ran.out
    assert ran.err == "error: no platform could be reached\n"
    assert run("offers", "--platform", "tensorone").code == 0


def test_offers_of_an_unreachable_platform_is_an_error_beside_the_others(
    run_reached: Run, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.setenv("TOGETHER_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TOGETHER_API_KEY", "a-key-that-is-secret")
    ran = run_reached("offers")
    assert ran.code == 4
    assert "error: together: cannot list the offers" in ran.err
    assert "g2v192m1920_metal" in ran.out
    assert "a-key-that-is-secret" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--gpu", "B2OO_SXM"), "no queried platform offers B2OO_SXM\n  did you mean B200_SXM?"),
        (("--platform", "togehter"), "togehter is not a platform with a list of offers\n  did you"),
        (("--platform", "lens"), "use one of together, scp, tensorone"),
    ],
)
def test_offers_of_an_unknown_name_suggests_the_nearest(
    run_reached: Run, flags: tuple[str, str], message: str
) -> None:
    ran = run_reached("offers", *flags)
    assert ran.code == 1
    assert message in ran.err


def test_validate_warns_about_values_not_offered_lately(run_reached: Run, project: Path) -> None:
    (project / "__main__.py").unlink()
    message = f"clusters:\n  train: {declare_cluster(region='us-centrl-8')}\n"
    (project / "topology.yaml").write_text(message)
    assert "the region us-centrl-8 is unknown to gpuform" in run_reached("validate").out
    assert run_reached("offers", "--platform", "together").code == 0
    ran = run_reached("validate")
    assert ran.code == 0, "it may be new"
    assert "clusters.train.region: together did not offer us-centrl-8 when last queried" in ran.out
    assert "did you mean us-central-8? `gpuform offers` queries again" in ran.out
    record_path = project / ".gpuform" / "offers.json"
    document = json.loads(record_path.read_text())
    document["at"]["together"] -= 2 * 24 * 3600
    record_path.write_text(json.dumps(document))
    assert "did not offer" not in run_reached("validate").out, "that is long ago"
    record_path.write_text("{")
    assert "did not offer" not in run_reached("validate").out


def test_a_preview_without_a_key_warns_about_values_not_offered_lately(
    run_reached: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "__main__.py").unlink()
    message = f"clusters:\n  train: {declare_cluster(region='us-centrl-8')}\n"
    (project / "topology.yaml").write_text(message)
    assert run_reached("stack", "init", "dev").code == 0
    assert run_reached("offers", "--platform", "together").code == 0
    monkeypatch.delenv("TOGETHER_API_KEY")
    ran = run_reached("preview")
    assert "were not checked with Together" in ran.out
    assert "warning: topology.yaml:2:" in ran.out
    assert "did you mean us-central-8? `gpuform offers` queries again" in ran.out


def test_completion_suggests_offered_values(
    run_reached: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_reached("offers", "--platform", "together").code == 0
    monkeypatch.setenv("_GPUFORM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "gpuform offers --region us-c")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert set(run_reached().out.split()) == {"plain,us-central-8", "plain,us-central-4"}
