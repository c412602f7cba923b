"""Nimbus's cluster, described for gpuform's conformance suite."""

from conformance.kind_descriptions import Change, KindDescription, PlatformApi, Request

from nimbus.schemas import Cluster

_KEY = "emulator-nimbus-key"
_CLUSTER = {"name": "train", "region": "north", "gpu_type": "N100", "gpu_count": 8}

KINDS = (
    KindDescription(
        platform="nimbus",
        kind="Cluster",
        valid_inputs=_CLUSTER,
        name_field="name",
        in_place=Change(
            {**_CLUSTER, "gpu_count": 16},
            "gpu_count",
            Request("PUT", "/clusters/{id}", {"gpu_count": 16}),
        ),
        replacing=Change({**_CLUSTER, "region": "south"}, "region"),
        invalid_inputs=[
            ({**_CLUSTER, "gpu_count": 65}, "gpu_count"),
            ({**_CLUSTER, "gpu_type": "N300"}, "gpu_type"),
            ({**_CLUSTER, "name": "My Cluster"}, "name"),
            ({**_CLUSTER, "num_gpus": 8}, "num_gpus"),
        ],
        create=Request("POST", "/clusters", _CLUSTER),
        listed_as="clusters",
        control_path="nimbus/clusters",
        outside_update=Request("PUT", "/clusters/{id}", {"gpu_count": 4}),
        outside_drift={"gpu_count": 4},
        outside_delete=Request("DELETE", "/clusters/{id}"),
        pending_status="building",
        failed_status="failed",
        object_path="^/clusters/[0-9a-f-]{36}$",
        reports_creation_time=False,
        key_variable="NIMBUS_API_KEY",
        key_config="nimbus:apiKey",
        key=_KEY,
        request_paths="^/clusters",
        capacity_fault={
            "status": 409,
            "body": {"code": "full", "message": "there are no free GPUs"},
        },
        wire=Cluster,
        unplanted_fields=frozenset({"Cluster.id", "Cluster.name", "Cluster.status"}),
    ),
)

APIS = {
    "nimbus": PlatformApi(
        prefix="/nimbus",
        headers=lambda _method, _url: {"Authorization": f"Bearer {_KEY}"},
        not_found_answer={"code": "no_such_cluster", "message": "there is no such cluster"},
        empty_list_answer={"clusters": []},
        list_paths="^/clusters$",
    ),
}
