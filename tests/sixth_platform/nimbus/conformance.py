"""Nimbus's cluster, described for gpuform's conformance suite."""

from conformance.described import Change, Described, Request, Room

from nimbus.schemas import Cluster

_KEY = "emulator-nimbus-key"
_CLUSTER = {"name": "train", "region": "north", "gpu_type": "N100", "gpu_count": 8}

KINDS = (
    Described(
        platform="nimbus",
        kind="Cluster",
        good=_CLUSTER,
        name_field="name",
        in_place=Change(
            {**_CLUSTER, "gpu_count": 16},
            "gpu_count",
            Request("PUT", "/clusters/{id}", {"gpu_count": 16}),
        ),
        replacing=Change({**_CLUSTER, "region": "south"}, "region"),
        bad=[
            ({**_CLUSTER, "gpu_count": 65}, "gpu_count"),
            ({**_CLUSTER, "gpu_type": "N300"}, "gpu_type"),
            ({**_CLUSTER, "name": "My Cluster"}, "name"),
            ({**_CLUSTER, "num_gpus": 8}, "num_gpus"),
        ],
        create=Request("POST", "/clusters", _CLUSTER),
        listed_as="clusters",
        control="nimbus/clusters",
        behind=Request("PUT", "/clusters/{id}", {"gpu_count": 4}),
        drift={"gpu_count": 4},
        delete_behind=Request("DELETE", "/clusters/{id}"),
        pending="building",
        failed="failed",
        own="^/clusters/[0-9a-f-]{36}$",
        tells_age=False,
        key_variable="NIMBUS_API_KEY",
        key_config="nimbus:apiKey",
        key=_KEY,
        paths="^/clusters",
        shortage={"status": 409, "body": {"code": "full", "message": "there are no free GPUs"}},
        wire=Cluster,
        meant=frozenset({"Cluster.id", "Cluster.name", "Cluster.status"}),
    ),
)

ROOMS = {
    "nimbus": Room(
        prefix="/nimbus",
        headers=lambda _method, _url: {"Authorization": f"Bearer {_KEY}"},
        gone={"code": "no_such_cluster", "message": "there is no such cluster"},
        empty={"clusters": []},
        lists="^/clusters$",
    ),
}
