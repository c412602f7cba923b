"""The lifecycle of a kind of resource: Pulumi's protocol once, typed verbs for each platform.

Platforms subclass `Lifecycle`; the engine, the plugin and Pulumi's stock host call it.
"""

from gpuform.providers.lifecycle.protocol import Lifecycle
from gpuform.providers.lifecycle.settling import INTERRUPTED

__all__ = ["INTERRUPTED", "Lifecycle"]
