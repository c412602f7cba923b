"""The providers of dynamic resources: pickled objects of the program's own classes."""

import base64
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import dill
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.runtime import _serialization

from gpuform.stacks.engine.provider_host.provider_errors import ProviderError, user_errors


@dataclass(slots=True)
class DynamicProviders:
    """Those of one run, each loaded and configured once; for many threads.

    `config` is the stack's whole configuration in plain text under full keys.
    """

    project: str
    config: Mapping[str, str]
    _loaded: dict[str, ResourceProvider] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def provider(self, pickled: str) -> ResourceProvider:
        """The one that a resource's `__provider` holds. Raises ProviderError."""
        with self._lock:
            if pickled not in self._loaded:
                self._loaded[pickled] = self._load(pickled)
            return self._loaded[pickled]

    def _load(self, pickled: str) -> ResourceProvider:
        try:
            provider = _unpickle(pickled)
        except Exception as error:  # noqa: BLE001 - loading it runs the project's modules
            raise ProviderError(
                f"the provider of this resource cannot be loaded: {error}",
                hint="the module that defines it must be importable from the project",
            ) from None
        with user_errors():
            provider.configure(ConfigureRequest(Config(dict(self.config), self.project)))
        return provider


def _unpickle(pickled: str) -> ResourceProvider:
    """As Pulumi's host does it; the SDK has outputs and secrets in a provider unpickled by it."""

    def load() -> ResourceProvider:
        provider: ResourceProvider = dill.loads(base64.b64decode(pickled))  # noqa: S301 - its format
        return provider

    # The SDK's own name: without it a provider without outputs is still read.
    run = getattr(_serialization, "_deserialize", None)
    return load() if run is None else run(load)
