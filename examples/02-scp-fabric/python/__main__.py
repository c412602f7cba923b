"""Two pools of Samsung SCP's GPU nodes in fabrics of their own; one node has a public address."""

import pulumi

from gpuform.providers.scp import NodePool, images, products
from gpuform.stacks import is_emulated

REGION = "kr-west1"
VENDOR_POOL = "POOL001-krw1a"
VPC_ID = "e58348b1bc9148e5af86500fd4ef99ca"
SUBNET_ID = "ab313c43291e4b678f4bacffe10768ae"

config = pulumi.Config()
password = (
    config.get_secret("password", "Only4Tests!")
    if is_emulated()
    else config.require_secret("password")
)

image = next(each for each in images(REGION) if each.os_distro == "UBUNTU")
server = next(
    each for each in products("SCALE", image.id, region=REGION) if each.state == "AVAILABLE"
)

train = NodePool(
    "train",
    node_pool_id=VENDOR_POOL,
    cluster_fabric_name="train-a",
    gpu_node_name_prefix="train",
    count=config.get_int("nodes") or 6,
    image_id=image.id,
    server_type_id=server.id,
    os_user_password=password,
    region_id=REGION,
    vpc_id=VPC_ID,
    subnet_id=SUBNET_ID,
)

serve = NodePool(
    "serve",
    node_pool_id=VENDOR_POOL,
    cluster_fabric_name=config.get("serve_in") or "serve-a",
    gpu_node_name_prefix="serve",
    nodes={
        "edge": {
            "nat_enabled": True,
            "public_ip_address_id": "0f6ea6b6b5a14b0f9d9b2f0c4d1f7a55",
        },
        "inner": {},
    },
    image_id=image.id,
    server_type_id=server.id,
    os_user_password=password,
    region_id=REGION,
    vpc_id=VPC_ID,
    subnet_id=SUBNET_ID,
)

pulumi.export("train", train.node_ids)
pulumi.export("edge", serve.gpu_nodes["edge"]["policy_nat"])
