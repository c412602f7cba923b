"""Describe Lens to gpuform: its lifecycle, look-ups and settings."""

from gpuform.providers.platform import Platform, Setting

PLATFORM = Platform(
    name="lens",
    title="Lens",
    package="gpuform.providers.lens",
    lifecycles={"HealthGate": "gpuform.providers.lens.health_gate:HealthGateLifecycle"},
    lookups={
        "capacity": "gpuform.providers.lens.lookups:capacity",
        "get_consumers": "gpuform.providers.lens.lookups:get_consumers",
        "get_heatmap": "gpuform.providers.lens.lookups:get_heatmap",
        "get_overview": "gpuform.providers.lens.lookups:get_overview",
    },
    settings=(
        Setting("lens:url", "LENS_URL", "Address of Lens."),
        Setting("lens:token", "LENS_TOKEN", "Token of Lens, if Lens requires one.", secret=True),
    ),
    address="LENS_URL",
    needs_key=False,
    emulator="gpuform.providers.emulator.lens.routes:create_parts",
    emulated={"LENS_URL": "{url}/lens"},
)
