"""Describe the platform Together for everything in gpuform that lists or finds platforms.

An entry point of the group `gpuform.platforms` names `PLATFORM`. The paths are imported on first
use.
"""

from gpuform.providers.emulator.together import ADMIN_KEY
from gpuform.providers.platform import Platform, Setting

PLATFORM = Platform(
    name="together",
    title="Together AI",
    package="gpuform.providers.together",
    lifecycles={
        "Cluster": "gpuform.providers.together.cluster:ClusterLifecycle",
        "SharedVolume": "gpuform.providers.together.shared_volume:SharedVolumeLifecycle",
        "VolumeClaim": "gpuform.providers.together.volume_claim:VolumeClaimLifecycle",
        "Certification": "gpuform.providers.together.certification:CertificationLifecycle",
    },
    lookups={
        "clusters": "gpuform.providers.together.inventory:clusters",
        "get_regions": "gpuform.providers.together.regions:get_regions",
        "volumes": "gpuform.providers.together.inventory:volumes",
    },
    offers="gpuform.providers.together.inventory:list_offers",
    settings=(Setting("together:apiKey", "TOGETHER_API_KEY", "API key of Together.", secret=True),),
    address="TOGETHER_BASE_URL",
    is_priced=True,
    emulator="gpuform.providers.emulator.together.routes:create_parts",
    emulated={"TOGETHER_BASE_URL": "{url}/together", "TOGETHER_API_KEY": ADMIN_KEY},
)
