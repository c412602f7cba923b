"""Test that the emulator gives every documented field of a platform in some course."""

from collections.abc import Iterator
from typing import Any

import pytest
from conformance.catalogue import APIS, KINDS
from conformance.emulated import Platform, start_emulated_platform
from conformance.kind_descriptions import KindDescription, Request
from platforms.documented import NAMES, list_leaf_paths, load_document

TOGETHER = "/compute/clusters"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Platform]:
    with start_emulated_platform(seed="given") as platform:
        yield platform


def get_kind(name: str) -> KindDescription:
    (matching_kind,) = [
        candidate for candidate in KINDS if f"{candidate.platform}:{candidate.kind}" == name
    ]
    return matching_kind


def run_together(platform: Platform) -> None:
    cluster = get_kind("together:Cluster")
    complete_body = {
        **cluster.valid_inputs,
        "num_gpus": 24,
        "billing_type": "RESERVED",
        "duration_days": 30,
        "num_reserved_gpus": 16,
        "num_preemptible_gpus": 8,
        "capacity_pool_id": "pool-research",
        "num_capacity_pool_gpus": 8,
        "shared_volume": {"volume_name": "d", "region": "us-central-8", "size_tib": 1},
        "oidc_config": {
            "client_id": "gpus",
            "group_claim": "groups",
            "group_prefix": "oidc:",
            "issuer_url": "https://login.example.com",
            "username_claim": "email",
            "username_prefix": "oidc:",
            "ca_cert": "PEM",
        },
        "cluster_config": {
            "load_balancer": "NGINX",
            "ingress": {"enabled": True},
            "observability": {"enabled": True},
            "jumphost_enabled": True,
            "kubernetes_dashboard_enabled": True,
            "ssh_ca_enabled": True,
        },
        "add_ons": [
            {"add_on_type": add_on, "name": add_on, "config": {add_on: {"enabled": True}}}
            for add_on in ("dashboard", "headlamp", "ingress", "slurm_web")
        ],
    }
    created = platform.send(cluster, Request("POST", TOGETHER, complete_body))["cluster_id"]
    scripts = ("controller_epilog", "controller_prolog", "extra_slurm_conf", "login_init_script",
               "nodeset_init_script", "worker_epilog", "worker_prolog")  # fmt: skip
    slurm = {
        **cluster.valid_inputs,
        "cluster_name": "slurm",
        "cluster_type": "SLURM",
        "slurm_shm_size_gib": 64,
        "billing_type": "SCHEDULED_CAPACITY",
        "reservation_start_time": "2040-01-01T00:00:00Z",
        "reservation_end_time": "2040-02-01T00:00:00Z",
        "cluster_config": {
            "load_balancer": "NONE",
            "slurm_startup_scripts": dict.fromkeys(scripts, "#!/bin/sh\ntrue\n"),
        },
    }
    platform.send(cluster, Request("POST", TOGETHER, slurm))
    platform.advance(7200)
    platform.send(cluster, Request("PUT", f"{TOGETHER}/{created}", {"num_gpus": 16}))
    platform.advance(7200)
    review = {"reviewed_by": "ada", "review_comment": "seen", "are_resolved": True}
    review |= {"state": "FAILED", "error_message": "no host is free"}
    for alerts in ([{"xid_codes": [79], "slurm_reason": "Not responding"}], []):
        for worker in ("train-worker-0", "train-worker-2"):
            body = {"cluster_id": created, "instance_name": worker, "alerts": alerts, **review}
            path = "/_emulator/together/remediations"
            platform.http.post(path, json=body).raise_for_status()
        platform.send(cluster, Request("GET", f"{TOGETHER}/{created}"))
        platform.advance(60)
    for path in (TOGETHER, "/compute/regions", f"{TOGETHER}/storage/volumes"):
        platform.send(cluster, Request("GET", path))


def run_scp(platform: Platform) -> None:
    nodes = get_kind("scp:NodePool")
    platform.advance(7200)
    for path in ("gpu-nodes/images?region_id=kr-west1", "gpu-nodes/products", "gpu-nodes",
                 "cluster-fabrics/node-pools", "cluster-fabrics"):  # fmt: skip
        platform.send(nodes, Request("GET", f"/v1/{path}"))
    first, *_ = platform.list_ids(get_kind("scp:GpuNode"))
    nat = {"public_ip_address_id": "0123456789abcdef0123456789abcdef"}
    platform.send(nodes, Request("POST", f"/v1/gpu-nodes/{first}/public-nat-ip", nat))
    platform.advance(7200)
    path = f"/v1/gpu-nodes/{first}"
    platform.send(nodes, Request("GET", path))
    signed = APIS["scp"].headers("GET", f"{platform.server.url}/scp{path}")
    newer = {**signed, "Scp-Api-Version": "multinodegpucluster 1.3"}
    platform.http.get(f"/scp{path}", headers=newer).raise_for_status()
    platform.send(nodes, Request("PUT", f"{path}/lock"))


def run_tensorone(platform: Platform) -> None:
    cluster = get_kind("tensorone:Cluster")
    complete_body = {
        **cluster.valid_inputs,
        "name": "whole",
        "environment_variables": {"MODE": "fast", "API_TOKEN": "hidden"},
        "auto_terminate": {"enabled": True, "idle_minutes": 60, "max_runtime_hours": 24},
    }
    created = platform.send(cluster, Request("POST", "/clusters", complete_body))["data"]["id"]
    platform.advance(7200)
    platform.send(cluster, Request("GET", f"/clusters/{created}?include_metrics=true"))
    saved = {"save_state": True, "snapshot_name": "kept"}
    platform.send(cluster, Request("POST", f"/clusters/{created}/stop", saved))
    platform.advance(7200)
    platform.send(cluster, Request("GET", f"/clusters/{created}"))


def run_aios(platform: Platform) -> None:
    platform.advance(7200)
    for id_ in platform.list_ids(get_kind("aios:Cluster")):
        platform.send(get_kind("aios:Cluster"), Request("GET", f"/clusters/{id_}"))
        platform.send(get_kind("aios:Cluster"), Request("DELETE", f"/clusters/{id_}"))


def run_lens(platform: Platform) -> None:
    cluster, lens = get_kind("together:Cluster"), get_kind("lens:HealthGate")
    assert cluster.create is not None
    platform.send(cluster, cluster.create)
    platform.advance(7200)
    workload = {
        "kind": "Job",
        "name": "train",
        "namespace": "ml",
        "uid": "1",
        "source": "k8s",
        "stat": {"gpuRequest": 4, "gpuUtilization": 0.5},
    }
    settings = {"consumers": [workload]}
    platform.http.post("/_emulator/lens/settings", json=settings).raise_for_status()
    for name in ("overview", "consumers?pageNum=1&pageSize=100", "gpuHeatmap"):
        platform.send(lens, Request("GET", f"/api/clusters/{name}"))


COURSES = {
    "together": run_together,
    "scp": run_scp,
    "tensorone": run_tensorone,
    "aios": run_aios,
    "lens": run_lens,
}
NEVER = {
    "together": {
        "Cluster: gpu_worker_nodes.deleted_at",  # then it is one of deleted_gpu_worker_nodes
        "Cluster: driver_version",  # the reference's word for the pair, which servers send
    },
    "lens": {"ConsumerPage: data.pods"},  # null in every list
}
"""What no answer has, by the platform's own rules."""


@pytest.mark.parametrize("name", NAMES)
def test_the_emulator_gives_every_documented_field(name: str, emulator: Platform) -> None:
    answers: list[Any] = []

    def record_answer(_method: str, _path: str, answer: Any) -> Any:
        answers.append(answer)
        return answer

    emulator.reset()
    with emulator.rewrite_answers(record_answer):
        for kind in KINDS:
            if kind.platform == name and not kind.api:
                description = emulator.prepare(kind)
                if description.create is not None and "{" not in description.create.path:
                    emulator.send(description, description.create)
        COURSES[name](emulator)
    given_paths = {path for answer in answers for path in list_paths(answer)}
    missing = {
        f"{answer.model}: {field}"
        for answer in load_document(name).answers
        for field in list_leaf_paths(answer.wire_model)
        if not any(f".{_normalize_path(field)}." in f".{path}." for path in given_paths)
    }
    assert missing == NEVER.get(name, set())


def list_paths(value: Any, before: str = "") -> Iterator[str]:
    """Return the paths of a value's fields, in one spelling, without lists."""
    if isinstance(value, list):
        for item in value:
            yield from list_paths(item, before)
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from list_paths(
                inner, f"{before}.{_normalize_path(name)}" if before else _normalize_path(name)
            )
    elif value is not None:
        yield before


def _normalize_path(path: str) -> str:
    """Return `nodedata` for `nodeData` and `node_data`; Mongo's own id is our `object_id`."""
    return "objectid" if path == "_id" else path.replace("_", "").lower()
