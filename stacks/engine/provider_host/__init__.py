"""Run providers in the engine's process, as Pulumi's own hosts run them in theirs.

Planning and the step executor call `ProviderHost`; it calls dynamic providers and gpuform's
lifecycles.
"""

from gpuform.stacks.engine.provider_host.host import (
    Created,
    Diff,
    PropertyFailure,
    ProviderHost,
)
from gpuform.stacks.engine.provider_host.providers import ProviderError, to_plain, to_provider

__all__ = [
    "Created",
    "Diff",
    "PropertyFailure",
    "ProviderError",
    "ProviderHost",
    "to_plain",
    "to_provider",
]
