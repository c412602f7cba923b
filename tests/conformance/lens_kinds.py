"""Describe Lens's health gate for the conformance suite."""

from conformance.kind_descriptions import KindDescription, PlatformApi

from gpuform.schemas.lens import wire

# The emulated Lens watches no node: a bound of `total_nodes` says that this is meant.
_CONDITION = {"total_nodes": {"at_least": 0.0}, "faulty_nodes": {"at_most": 0.0}}
_GATE = {"condition": _CONDITION, "triggers": ["v1"]}

HEALTH_GATE = KindDescription(
    platform="lens",
    kind="HealthGate",
    import_suffix="@{total_nodes: {at_least: 0}, faulty_nodes: {at_most: 0}}",
    valid_inputs=_GATE,
    invalid_inputs=[
        ({**_GATE, "condition": {}}, "condition"),
        ({**_GATE, "condition": {"faulty_nodes": {}}}, "condition.faulty_nodes.at_least"),
        ({**_GATE, "condition": {"utilization": {"at_most": 75}}}, "condition.utilization.at_most"),
        ({**_GATE, "wait_minutes": 0}, "wait_minutes"),
        ({**_GATE, "trigger": ["v1"]}, "trigger"),
        ({"triggers": ["v1"]}, "condition"),
    ],
    listed_as="overviews",
    pending_status="faultyNodes=3",
    object_path="^/api/clusters/overview$",
    key_variable="LENS_URL",
    key_config="lens:url",
    key="{url}/lens",
    request_paths="^/api/",
    wire=wire.Envelope,
    unplanted_fields=frozenset(),
    unrelated_values=frozenset(  # inputs of these names are their bounds
        {
            *("data.totalNodes", "data.healthyNodes", "data.faultyNodes", "data.busyNodes"),
            *("data.fullyIdleNodes", "data.partiallyIdleNodes", "data.utilization"),
            *("data.allocationRate", "data.rdmaClusterStat.activePorts"),
            "data.rdmaClusterStat.totalPorts",
        }
    ),
)

KINDS = (HEALTH_GATE,)

APIS = {
    "lens": PlatformApi(
        prefix="/lens",
        headers=lambda _method, _url: {},
        not_found_answer={},
        empty_list_answer={},
        list_paths="(?!)",
    ),
}
