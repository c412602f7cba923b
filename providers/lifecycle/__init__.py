"""Implement Pulumi's provider protocol once for every kind of resource.

Platforms subclass `Lifecycle` and write typed operations; the engine, the plugin and Pulumi's stock
host call it.
"""

from gpuform.providers.lifecycle.guarding import INTERRUPTED
from gpuform.providers.lifecycle.protocol import Lifecycle

__all__ = ["INTERRUPTED", "Lifecycle"]
