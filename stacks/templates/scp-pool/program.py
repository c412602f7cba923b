"""A pool of GPU nodes with its own fabric, on Samsung SCP."""

import pulumi

from gpuform.providers.scp import NodePool, images, products
from gpuform.stacks import is_emulated

REGION = "kr-west1"

config = pulumi.Config()
# For a real platform, set your own: gpuform config set --secret password
password = (
    config.get_secret("password", "Only4Tests!")
    if is_emulated()
    else config.require_secret("password")
)

image = next(image for image in images(REGION) if image.os_distro == "UBUNTU")
server = next(
    product for product in products("SCALE", region=REGION) if product.state == "AVAILABLE"
)

train = NodePool(
    "train",
    node_pool_id="POOL001-krw1a",
    cluster_fabric_name="train-a",
    gpu_node_name_prefix="train",
    count=config.get_int("nodes") or 6,
    image_id=image.id,
    server_type_id=server.id,
    os_user_password=password,
    # The ids of your own network.
    region_id=REGION,
    vpc_id="e58348b1bc9148e5af86500fd4ef99ca",
    subnet_id="ab313c43291e4b678f4bacffe10768ae",
)

pulumi.export("node_ids", train.node_ids)
