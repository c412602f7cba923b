"""Test how the Xid errors of a node choose its repair, by the rules of NVIDIA's catalogue."""

from typing import Any

import pytest
from support.schedulers.cluster_with_jobs import PROGRAM, Cluster, Properties, create_cluster

from gpuform.providers.together.repairs import advise_repair
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.together.wire import LinkedAlert

BROKEN = "train-worker-1"


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    """Create a cluster whose broken nodes are repaired without a review."""
    policy = {"approve": "automatic", "on": ["platform", "not_ready"]}
    cluster = create_cluster(emulator, cluster_inputs)
    cluster.inputs = {**cluster.inputs, "num_gpus": 32.0, "repair": policy, **PROGRAM}
    cluster.outs = {**cluster.outs, "repair": policy}
    return cluster


def _propose(cluster: Cluster, *xid_codes: int, **alert: Any) -> None:
    """Make the platform propose the replacement of the broken node because of Xid errors."""
    alerts = [{"alert_name": "DmesgXidError", "xid_codes": xid_codes, **alert}]
    body = {"cluster_id": cluster.id, "instance_name": BROKEN, "alerts": alerts}
    cluster.emulator.http.post("/_emulator/together/remediations", json=body).raise_for_status()
    cluster.refresh()


def _list_repairs(cluster: Cluster) -> list[FieldChange]:
    with cluster.emulator.use_context_of():
        changes = cluster.lifecycle.list_changes(
            {**cluster.outs, **PROGRAM}, cluster.inputs, cluster.id
        )
    return [change for change in changes if change.repair is not None]


def test_an_error_of_an_application_repairs_no_node(cluster: Cluster) -> None:
    _propose(cluster, 31, 13)
    assert _list_repairs(cluster) == []
    (notice,) = cluster.lifecycle.hooks.list_notices(cluster.inputs, cluster.outs, 0.0)
    rule = "Xid 31: RESTART_APP, Xid 13: RESTART_APP in NVIDIA's Xid catalogue"
    assert notice.text.endswith(f"Not repaired: {rule}")


def test_an_error_that_a_reset_removes_reboots_the_node_and_names_the_rule(
    cluster: Cluster,
) -> None:
    _propose(cluster, 64, 13)
    (repair,) = _list_repairs(cluster)
    assert repair.after == "REBOOT_VM"
    evidence = "Xid 64 INFOROM_DRAM_RETIREMENT_FAILURE, Xid 13, since "
    assert repair.because.startswith(f"DmesgXidError (critical): {evidence}")
    assert "; Xid 64: RESET_GPU in NVIDIA's Xid catalogue" in repair.because
    assert repair.because.endswith("; the platform proposed HOST_AWARE")
    cluster.update(cluster.inputs)
    cluster.assert_unchanged()


def test_a_proposal_that_cannot_become_a_power_cycle_is_approved_as_it_is(
    cluster: Cluster,
) -> None:
    _propose(cluster, 79)
    (repair,) = _list_repairs(cluster)
    assert (repair.after, "RESTART_BM" in repair.because) == ("HOST_AWARE", False)


def test_an_alert_without_a_rule_leaves_the_proposal_as_it_is(cluster: Cluster) -> None:
    _propose(cluster, 31, 999)
    (repair,) = _list_repairs(cluster)
    assert repair.after == "HOST_AWARE"


def test_a_node_that_is_not_ready_is_repaired_whatever_its_applications_do(
    cluster: Cluster,
) -> None:
    cluster.call_emulated_kubernetes("POST", f"nodes/{BROKEN}", {"ready": False})
    cluster.emulator.advance(3600)
    _propose(cluster, 31)
    (repair,) = _list_repairs(cluster)
    assert "Kubernetes" in repair.because


def test_the_reason_of_slurm_is_part_of_the_evidence(cluster: Cluster) -> None:
    _propose(cluster, slurm_reason="Not responding")
    (repair,) = _list_repairs(cluster)
    assert repair.because.startswith("DmesgXidError (critical): Slurm: Not responding, since ")


def _build_alert(*xid_codes: object) -> LinkedAlert:
    events = [{"xid_code": code, "count": 1, "mnemonic": ""} for code in xid_codes]
    return LinkedAlert.model_validate({"annotation": {"xid": {"events": events}}})


@pytest.mark.parametrize(
    ("alerts", "mode"),
    [
        ([_build_alert(13), _build_alert(43, 45)], "NONE"),
        ([_build_alert("63"), _build_alert("94")], "NONE"),
        ([_build_alert(48)], "REBOOT_VM"),
        ([_build_alert(94, 95)], "REBOOT_VM"),
        ([_build_alert(119, 79, 31)], "HOST_POWER_CYCLE"),
        ([_build_alert(31, 12)], None),
        ([_build_alert(31), LinkedAlert(alert_name="GpuPcieReplayRateHigh")], None),
        ([LinkedAlert.model_validate({"annotation": "in no form of the SDK"})], None),
        ([], None),
    ],
)
def test_the_error_with_the_largest_effect_chooses_the_mode(
    alerts: list[LinkedAlert], mode: str | None
) -> None:
    advice = advise_repair(alerts)
    assert (advice and advice.mode) == mode
