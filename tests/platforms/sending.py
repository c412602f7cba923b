"""List what each method of a platform's client sends, at the end of its wire."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx
from conformance.together_kinds import CLUSTER, SHARED_VOLUME
from support.platforms.scp_document import CREATE

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.client import LensClient
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.client.connection import Connection
from gpuform.providers.scp.client.credentials import Credentials
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.providers.together.client import TogetherClient
from gpuform.schemas.aios.updates import UpdateRequest
from gpuform.schemas.scp import wire
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs

URL: Final = "http://platform.test"
ID: Final = "the-id"
"""Stands for `{...}` in a documented path."""

Client = Any
Calls = Mapping[str, Callable[[Client], object]]

_CREATE: Final = wire.CreateGpuNodes(
    **{
        **CREATE,
        "cluster_fabric_details": wire.ClusterFabricDetails(**CREATE["cluster_fabric_details"]),
        "server_details": tuple(
            wire.ServerDetails(**details) for details in CREATE["server_details"]
        ),
        "tags": (),
    }
)
_CLUSTER: Final = ClusterInputs.model_validate(CLUSTER.valid_inputs)
_VOLUME: Final = SharedVolumeInputs.model_validate(SHARED_VOLUME.valid_inputs)

CALLS: Final[Mapping[str, Calls]] = {
    "together": {
        "create_cluster": lambda it: it.create_cluster(_CLUSTER),
        "list_clusters": lambda it: it.list_clusters(),
        "get_cluster": lambda it: it.get_cluster(ID),
        "update_cluster": lambda it: it.update_cluster(ID, _CLUSTER, []),
        "delete_cluster": lambda it: it.delete_cluster(ID),
        "create_volume": lambda it: it.create_volume(_VOLUME),
        "list_volumes": lambda it: it.list_volumes(),
        "get_volume": lambda it: it.get_volume(ID),
        "update_volume": lambda it: it.update_volume(ID, _VOLUME),
        "delete_volume": lambda it: it.delete_volume(ID),
        "list_regions": lambda it: it.list_regions(),
        "get_remediation": lambda it: it.get_remediation(ID, ID, ID),
        "create_remediation": lambda it: it.create_remediation(ID, ID, "id", "REBOOT_VM", "why"),
        "approve_remediation": lambda it: it.approve_remediation(ID, ID, ID),
        "reject_remediation": lambda it: it.reject_remediation(ID, ID, ID),
        "cancel_remediation": lambda it: it.cancel_remediation(ID, ID, ID),
        "send_probe": lambda it: it.send_probe(),
        "may_write": lambda it: it.may_write(),
    },
    "scp": {
        "create_nodes": lambda it: it.create_nodes(_CREATE),
        "list_nodes": lambda it: it.list_nodes(),
        "get_node": lambda it: it.get_node(ID),
        "delete_nodes": lambda it: it.delete_nodes([ID]),
        "start_nodes": lambda it: it.start_nodes([ID]),
        "stop_nodes": lambda it: it.stop_nodes([ID]),
        "lock_node": lambda it: it.lock_node(ID),
        "unlock_node": lambda it: it.unlock_node(ID),
        "assign_nat": lambda it: it.assign_nat(ID, "ip"),
        "release_nat": lambda it: it.release_nat(ID),
        "modify_members": lambda it: it.modify_members(ID, "other", [ID]),
        "get_fabric": lambda it: it.get_fabric(ID),
        "list_fabrics": lambda it: it.list_fabrics(),
        "list_images": lambda it: it.list_images("kr-west1"),
        "list_products": lambda it: it.list_products(),
        "list_node_pools": lambda it: it.list_node_pools(),
        "send_probe": lambda it: it.send_probe(),
    },
    "tensorone": {
        "create": lambda it: it.create({}),
        "list_clusters": lambda it: it.list_clusters(),
        "list_clusters_with_age": lambda it: it.list_clusters_with_age(),
        "get_cluster": lambda it: it.get_cluster(ID),
        "update": lambda it: it.update(ID, {}),
        "start": lambda it: it.start(ID, {}),
        "stop": lambda it: it.stop(ID),
        "delete": lambda it: it.delete(ID, {}),
        "send_probe": lambda it: it.send_probe(),
    },
    "aios": {
        "get_cluster": lambda it: it.get_cluster(ID),
        "query_clusters": lambda it: it.query_clusters({}),
        "create_by_parser": lambda it: it.create_by_parser({}),
        "create_directly": lambda it: it.create_directly({}),
        "update_cluster": lambda it: it.update_cluster(ID, UpdateRequest({})),
        "delete_cluster": lambda it: it.delete_cluster(ID),
        "send_probe": lambda it: it.send_probe(),
    },
    "lens": {
        "get_overview": lambda it: it.get_overview(),
        "list_consumers": lambda it: it.list_consumers(),
        "get_heatmap": lambda it: it.get_heatmap(),
        "send_probe": lambda it: it.send_probe(),
    },
}
"""Every method of a client that sends something."""

SILENT: Final = frozenset(
    {
        "close",
        "lock_record",
        "get_node_listing",
        "get_poll_schedule",
        "get_last_answer",
        "require_address",
        "rhythm",
    }
)
"""Methods that send nothing of their own, beside those that return a shared listing."""


def list_methods(client: type) -> Iterator[str]:
    """Return the names of a client's methods that may send a request."""
    for name, var in vars(client).items():
        is_listing = name.startswith("shared_") or name.endswith("_listing")
        is_method = callable(var) and not name.startswith("_") and not is_listing
        if is_method and name not in SILENT:
            yield name


def list_sent_calls(platform: str, method: str) -> list[str]:
    """Return the calls of a method, with `{}` for the id of an object."""
    sent_calls: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1" if platform == "tensorone" else "")
        sent_calls.append(f"{request.method} {path.replace(ID, '{}')}")
        return httpx.Response(404, json={"error": "there is nothing here"})

    client = _build_client(platform, httpx.MockTransport(answer))
    with suppress(GpuformError):
        CALLS[platform][method](client)
    client.close()
    return sent_calls


def _build_client(platform: str, transport: httpx.BaseTransport) -> Client:
    match platform:
        case "together":
            return TogetherClient(URL, "key", transport)
        case "scp":
            keys = Credentials("AK", "SK", base_url=URL)
            return ScpClient(Connection(keys, transport=transport))
        case "tensorone":
            return TensorOneClient(URL, "key", transport)
        case "aios":
            return AiosClient(URL, URL, transport)
    return LensClient(URL, None, transport)
