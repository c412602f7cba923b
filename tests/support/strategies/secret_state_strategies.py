"""Hypothesis strategies of states that hold secrets of any shape at any path."""

from hypothesis import strategies as st

from gpuform.providers.values import PropertyMap, PropertyValue, Secret
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE

PLANTED = "pl4nted"
NUMBER = 918273.0
CONFIGURED = "configured-s3cret"
STACK = ResourceState("urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev", False, STACK_TYPE)
TYPE = "pulumi-python:dynamic/gpuform."
ENDPOINT = "https://endpoint-of-train.example"

TEXTS = st.sampled_from(
    [
        PLANTED,
        f"prefix-{PLANTED}",
        f"postgres://user:{PLANTED}@{ENDPOINT}/db",
        f"{ENDPOINT}{PLANTED}id-of-data",
        f"id-of-data/{PLANTED}",
        f"{CONFIGURED}-{PLANTED}",
        f"{{{{ {PLANTED} }}}}\r\n",
    ]
)
AMBIGUOUS_VALUES = st.sampled_from(
    [ENDPOINT, f"{ENDPOINT}://id-of-data", "us-central-8", CONFIGURED, None]
)
"""Values that are secret at one path and in the clear at another, or that show nothing."""
KEYS = st.sampled_from(["a", "region", PLANTED, f"{PLANTED} key"])
SECRET_CONTENTS = st.recursive(
    TEXTS | AMBIGUOUS_VALUES | st.sampled_from([NUMBER, True, 8.0]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)
SECRETS = SECRET_CONTENTS.map(Secret)
PLAIN_VALUES = st.sampled_from(
    [ENDPOINT, "id-of-data", "us-central-8", 8.0, f"to {CONFIGURED}", CONFIGURED, f"x{PLANTED}x"]
)
VALUES = st.recursive(
    SECRETS | PLAIN_VALUES,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "region"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def build_resource(
    kind: str, name: str, inputs: PropertyMap, outputs: PropertyMap, *dependencies: str
) -> ResourceState:
    urn = f"urn:pulumi:dev::demo::{TYPE}{kind}::{name}"
    all_outputs = {**inputs, **outputs}
    entry = ResourceState(
        urn, True, TYPE + kind, id=f"id-of-{name}", inputs=inputs, outputs=all_outputs
    )
    entry.parent, entry.dependencies = STACK.urn, list(dependencies)
    return entry


@st.composite
def states(
    draw: st.DrawFn, values: st.SearchStrategy[PropertyValue] = VALUES
) -> list[ResourceState]:
    """Draw a state: a volume, a cluster with secrets, one with secret variables, and outputs."""
    data = build_resource(
        "together:SharedVolume",
        "data",
        {"volume_name": draw(st.just("data") | TEXTS.map(Secret)), "region": "us-central-8",
         "size_tib": draw(st.sampled_from([5.0, Secret(5.0), Secret(NUMBER)]))},
        {"status": "available"},
    )  # fmt: skip
    train = build_resource(
        "together:Cluster",
        "train",
        {"cluster_name": "train", "region": "us-central-8", "gpu_type": "H100_SXM",
         "num_gpus": 8.0, "driver_version": "CUDA_12_6_560", "billing_type": "ON_DEMAND"},
        {"kube_config": Secret(draw(TEXTS)), "project_id": ENDPOINT},
    )  # fmt: skip
    train.outputs["driver_version"] = draw(st.just("CUDA_12_6_560") | TEXTS.map(Secret))
    environment = draw(
        st.dictionaries(KEYS.filter(str.isalnum), TEXTS | st.just("id-of-data"), max_size=3)
    )
    dev = build_resource(
        "tensorone:Cluster",
        "dev",
        {"name": "dev", "gpu_type": "A100", "project_id": "p", "gpu_count": 1.0,
         "storage_gb": 50.0, "region": "us-west-2",
         "environment_variables": Secret(environment)},
        {},
        data.urn,
    )  # fmt: skip
    dev.property_dependencies = {"environment_variables": [data.urn]}
    stack = ResourceState(STACK.urn, False, STACK_TYPE)
    stack.outputs = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3))
    stack.outputs["planted"] = Secret(PLANTED)
    return [stack, data, train, dev]
