"""Describe Lens to gpuform: its lifecycle, look-ups and settings."""

from gpuform.providers.platform import Platform, Setting

PLATFORM = Platform(
    name="lens",
    title="Lens",
    package="gpuform.providers.lens",
    lifecycles={"HealthGate": "gpuform.providers.lens.health_gate:HealthGateLifecycle"},
    lookups={
        "capacity": "gpuform.providers.lens.inventory:capacity",
        "get_consumers": "gpuform.providers.lens.inventory:get_consumers",
        "get_heatmap": "gpuform.providers.lens.inventory:get_heatmap",
        "get_overview": "gpuform.providers.lens.inventory:get_overview",
    },
    settings=(
        Setting("lens:url", "LENS_URL", "Address of Lens."),
        Setting("lens:token", "LENS_TOKEN", "Token of Lens, if Lens requires one.", secret=True),
    ),
    address="LENS_URL",
    needs_key=False,
    emulator="gpuform.providers.emulator.lens:create_parts",
    emulated={"LENS_URL": "{url}/lens"},
)
