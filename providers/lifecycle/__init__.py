"""Implement Pulumi's provider protocol once for every kind of resource.

Platforms subclass `Lifecycle`, and write typed operations and `KindHooks`; the engine, the plugin
and Pulumi's stock host call it.
"""

from gpuform.providers.lifecycle.guarding import INTERRUPTED
from gpuform.providers.lifecycle.protocol import Lifecycle
from gpuform.providers.lifecycle.traits import KindHooks

__all__ = ["INTERRUPTED", "KindHooks", "Lifecycle"]
