"""Describe Nimbus to gpuform: names, settings, and the dotted paths of its parts."""

from gpuform.providers.platform import Platform, Setting

PLATFORM = Platform(
    name="nimbus",
    title="Nimbus Cloud",
    package="nimbus",
    lifecycles={"Cluster": "nimbus.cluster:ClusterLifecycle"},
    settings=(Setting("nimbus:apiKey", "NIMBUS_API_KEY", "API key of Nimbus.", secret=True),),
    address="NIMBUS_URL",
    is_priced=True,
    emulator="nimbus.emulator:create_parts",
    emulated={"NIMBUS_URL": "{url}/nimbus", "NIMBUS_API_KEY": "emulator-nimbus-key"},
)
