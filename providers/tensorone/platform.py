"""Describe the platform TensorOne for everything in gpuform that lists or finds platforms.

An entry point of the group `gpuform.platforms` names `PLATFORM`. The paths are imported on first
use.
"""

from gpuform.providers.emulator.tensorone import KEY
from gpuform.providers.platform import Platform, Setting

PLATFORM = Platform(
    name="tensorone",
    title="TensorOne",
    package="gpuform.providers.tensorone",
    lifecycles={"Cluster": "gpuform.providers.tensorone.cluster:ClusterLifecycle"},
    lookups={
        "clusters": "gpuform.providers.tensorone.inventory:clusters",
        "metrics": "gpuform.providers.tensorone.inventory:metrics",
        "projects": "gpuform.providers.tensorone.inventory:projects",
        "templates": "gpuform.providers.tensorone.inventory:templates",
    },
    offers="gpuform.providers.tensorone.inventory:list_offers",
    has_documented_offers=True,
    settings=(
        Setting("tensorone:apiKey", "TENSORONE_API_KEY", "API key of TensorOne.", secret=True),
    ),
    address="TENSORONE_BASE_URL",
    is_priced=True,
    emulator="gpuform.providers.emulator.tensorone.routes:create_parts",
    emulated={"TENSORONE_BASE_URL": "{url}/tensorone", "TENSORONE_API_KEY": KEY},
)
