"""Test that gpuform sends what the unchanged PyPI client sends for the same values.

Each supported call of the SDK is sent with every parameter that it has.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any, get_args, get_type_hints

import httpx
import pytest
from platforms.documented import load_document
from platforms.sending import ID, URL
from platforms.together_sdk import SdkCall, list_sdk_calls, list_typed_dicts
from together import Together

from gpuform.providers.errors import GpuformError
from gpuform.providers.together.client import TogetherClient
from gpuform.schemas.changes import compute_changes
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs

Values = Mapping[str, Any]

SAMPLES = {
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "issuer_url": "https://issuer.test",
    "gpu_burn_duration": 30,
    "mode": "REMEDIATION_MODE_REBOOT_VM",
    "reservation_start_time": "2026-03-01T08:00:00Z",
    "reservation_end_time": "2026-03-31T08:00:00Z",
}
"""Values of parameters that are more than any text, number or switch."""
REPAIR = {"cluster_id": ID, "instance_id": ID, "remediation_id": ID}


def _update_cluster(client: TogetherClient, values: Values) -> None:
    fixed = {"cluster_name": "x", "region": "x", "gpu_type": "x", "billing_type": "RESERVED"}
    before = {**fixed, "num_gpus": 16}
    # The type of an add-on is declared, and not sent.
    add_ons = [{**add_on, "add_on_type": "dashboard"} for add_on in values["add_ons"]]
    after = {**fixed, **values, "add_ons": add_ons}
    cluster_id = after.pop("cluster_id")
    inputs = ClusterInputs.model_validate(after)
    changes = compute_changes(ClusterInputs, before, inputs.dump_declared())
    client.update_cluster(cluster_id, inputs, changes)


SENDERS: Mapping[str, Callable[[TogetherClient, Values], object]] = {
    "clusters.create": lambda it, v: it.create_cluster(ClusterInputs.model_validate(v)),
    "clusters.retrieve": lambda it, v: it.get_cluster(v["cluster_id"]),
    "clusters.update": _update_cluster,
    "clusters.list": lambda it, v: it.list_clusters(v["project_id"]),
    "clusters.delete": lambda it, v: it.delete_cluster(v["cluster_id"]),
    "clusters.list_regions": lambda it, v: it.list_regions(),
    "clusters.storage.create": lambda it, v: it.create_volume(SharedVolumeInputs(**v)),
    "clusters.storage.retrieve": lambda it, v: it.get_volume(v["volume_id"]),
    "clusters.storage.update": lambda it, v: it.update_volume(
        v["volume_id"],
        SharedVolumeInputs(volume_name="x", region="x", size_tib=v["size_tib"]),
    ),
    "clusters.storage.list": lambda it, v: it.list_volumes(v["project_id"]),
    "clusters.storage.delete": lambda it, v: it.delete_volume(v["volume_id"]),
    "clusters.remediations.create": lambda it, v: it.create_remediation(
        v["cluster_id"], v["instance_id"], ID, _get_mode(v), v["reason"]
    ),
    "clusters.remediations.retrieve": lambda it, v: it.get_remediation(**v),
    "clusters.remediations.approve": lambda it, v: it.approve_remediation(
        **{name: v[name] for name in REPAIR}, mode=_get_mode(v), comment=v["comment"]
    ),
    "clusters.remediations.reject": lambda it, v: it.reject_remediation(**v),
    "clusters.remediations.cancel": lambda it, v: it.cancel_remediation(**v),
}
"""How gpuform's client sends each supported call, with the values of the SDK's parameters."""
OWN_QUERY = {"clusters.remediations.create": {"remediation_id": ID}}
"""What the SDK sends only by `extra_query`: the id that makes a second request harmless."""


def _get_mode(values: Values) -> str:
    return str(values["mode"]).removeprefix("REMEDIATION_MODE_")


def build_sample(call: SdkCall) -> dict[str, Any]:
    """Return a value for every parameter of a call."""
    return {
        name: _build_value(name, hint)
        for name, hint in get_type_hints(call.method).items()
        if any(path.split(".")[0] == name for path in call.parameters)
    }


def _build_value(name: str, annotation: Any) -> Any:
    if name in SAMPLES:
        return SAMPLES[name]
    typed_dicts = [*list_typed_dicts(annotation)]
    if typed_dicts:
        value = {
            field: _build_value(field, hint)
            for typed_dict in typed_dicts
            for field, hint in get_type_hints(typed_dict).items()
        }
        return [value] if "Iterable" in str(annotation) else value
    types = [*_list_all_types(annotation)]
    literals = [item for item in types if isinstance(item, str)]
    if literals:
        return literals[0]
    plain: dict[type, Any] = {bool: True, int: 8, str: ID}
    return next(value for kind, value in plain.items() if kind in types)


def _list_all_types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in get_args(annotation):
        yield from _list_all_types(argument)


def capture_request(send: Callable[[httpx.MockTransport], object]) -> dict[str, Any]:
    """Return the one request that `send` sends over a transport."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(404, json={"error": {"message": "not found"}})

    send(httpx.MockTransport(answer))
    (request,) = requests
    return {
        "call": f"{request.method} {request.url.path}",
        "query": dict(request.url.params),
        "body": json.loads(request.content or b"null"),
    }


def _send_by_sdk(call: SdkCall, values: Values, transport: httpx.MockTransport) -> None:
    with httpx.Client(transport=transport) as http_client:
        client = Together(api_key="key", base_url=URL, max_retries=0, http_client=http_client)
        method = reduce(getattr, call.name.split("."), client)
        with suppress(Exception):  # the answer is none of the call's
            method(**values, extra_query=OWN_QUERY.get(call.name))


def _send_by_gpuform(call: SdkCall, values: Values, transport: httpx.MockTransport) -> None:
    client = TogetherClient(f"{URL}/v1", "key", transport)
    with suppress(GpuformError):
        SENDERS[call.name](client, values)
    client.close()


SUPPORTED_CALLS = {call["sdk"] for call in load_document("together").content["calls"]}


def test_every_supported_call_has_a_sender() -> None:
    assert SENDERS.keys() == SUPPORTED_CALLS


@pytest.mark.parametrize(
    "call",
    [call for call in list_sdk_calls() if call.name in SUPPORTED_CALLS],
    ids=lambda c: c.name,
)
def test_gpuform_sends_what_the_official_client_sends(call: SdkCall) -> None:
    values = build_sample(call)
    sent = capture_request(lambda transport: _send_by_gpuform(call, values, transport))
    assert sent == capture_request(lambda transport: _send_by_sdk(call, values, transport))
