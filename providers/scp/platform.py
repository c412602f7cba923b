"""Describe Samsung Cloud Platform to gpuform: its kinds, look-ups, settings and emulator.

`providers.platform` finds `PLATFORM` by the name of the package.
"""

from gpuform.providers.emulator.scp import ACCESS_KEY, SECRET_KEY
from gpuform.providers.platform import Platform, Setting

PLATFORM = Platform(
    name="scp",
    title="Samsung Cloud Platform",
    package="gpuform.providers.scp",
    lifecycles={
        "NodePool": "gpuform.providers.scp.node_pool:NodePoolLifecycle",
        "GpuNode": "gpuform.providers.scp.gpu_node:GpuNodeLifecycle",
        "Fabric": "gpuform.providers.scp.fabric:FabricLifecycle",
        "Certification": "gpuform.providers.scp.certification:CertificationLifecycle",
    },
    lookups={
        "fabrics": "gpuform.providers.scp.inventory:fabrics",
        "gpu_nodes": "gpuform.providers.scp.inventory:gpu_nodes",
        "images": "gpuform.providers.scp.inventory:images",
        "node_pools": "gpuform.providers.scp.inventory:node_pools",
        "products": "gpuform.providers.scp.inventory:products",
    },
    offers="gpuform.providers.scp.inventory:list_offers",
    settings=(
        Setting(
            "scp:accessKey",
            "SCP_TF_ACCESS_KEY",
            "Access key of Samsung Cloud Platform.",
            secret=True,
        ),
        Setting("scp:secretKey", "SCP_TF_SECRET_KEY", "Secret key of the access key.", secret=True),
        Setting(
            "scp:authToken", "SCP_TF_AUTH_TOKEN", "Token that belongs to the keys.", secret=True
        ),
        Setting("scp:accountId", "SCP_TF_ACCOUNT_ID", "Account of the requests."),
        Setting(
            "scp:defaultRegion", "SCP_TF_DEFAULT_REGION", "Region where a resource names none."
        ),
        Setting("scp:environment", "", "Environment that the region's address belongs to."),
        Setting(
            "scp:apiVersion",
            "SCP_API_VERSION",
            "Version of the API: 1.2 (the default), or 1.3, which has availability zones.",
        ),
    ),
    address="SCP_TF_ENDPOINT_OVERRIDE",
    is_priced=True,
    emulator="gpuform.providers.emulator.scp.routes:create_parts",
    emulated={
        "SCP_TF_ENDPOINT_OVERRIDE": "{url}/scp",
        "SCP_TF_ACCESS_KEY": ACCESS_KEY,
        "SCP_TF_SECRET_KEY": SECRET_KEY,
    },
)
