"""Describe the AIOS clusters registry to gpuform: its lifecycles, look-ups and settings."""

from gpuform.providers.platform import Platform, Setting

PLATFORM = Platform(
    name="aios",
    title="AIOS",
    package="gpuform.providers.aios",
    lifecycles={
        "Cluster": "gpuform.providers.aios.cluster:ClusterLifecycle",
        "GpuNode": "gpuform.providers.aios.gpu_node:GpuNodeLifecycle",
    },
    lookups={"clusters": "gpuform.providers.aios.inventory:clusters"},
    settings=(
        Setting("aios:registryUrl", "AIOS_REGISTRY_URL", "Address of the clusters registry."),
        Setting("aios:parserUrl", "AIOS_PARSER_URL", "Address of the registry's parser."),
    ),
    address="AIOS_REGISTRY_URL",
    needs_key=False,
    emulator="gpuform.providers.emulator.aios.routes:create_parts",
    emulated={"AIOS_REGISTRY_URL": "{url}/aios", "AIOS_PARSER_URL": "{url}/aios"},
)
