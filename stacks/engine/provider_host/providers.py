"""Load the providers of resources: pickled dynamic ones, and those of gpuform's plugin form.

The lifecycles run in the engine's process, as those of dynamic resources do. Under the Pulumi CLI
each provider is a process of the plugin with these same inputs.
"""

import base64
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dill
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.runtime import _serialization

from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.properties import plain
from gpuform.schemas.models import Problem
from gpuform.stacks.engine import values
from gpuform.stacks.engine.provider_host.provider_values import (
    ProviderError,
    from_provider,
    to_provider,
    user_errors,
)
from gpuform.stacks.engine.state import ResourceState, provider_urn
from gpuform.stacks.engine.urn import PLUGIN_PROVIDER_TYPE
from gpuform.stacks.engine.values import PropertyMap


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


@dataclass(slots=True)
class PluginProviders:
    """The providers of one run, by their URNs; `config` is the stack's, plain, under full keys."""

    config: Mapping[str, str]
    _inputs: dict[str, PropertyMap] = field(default_factory=dict)
    _made: dict[tuple[str, str], Lifecycle[Any, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def know(self, entries: Iterable[ResourceState]) -> None:
        """Takes the providers among the entries of a state as they are there."""
        for entry in entries:
            if entry.type == PLUGIN_PROVIDER_TYPE and not entry.delete:
                self.configure(entry.urn, entry.inputs)

    def configure(self, urn: str, inputs: PropertyMap) -> None:
        """Gives a provider its inputs, in place of those that it had."""
        with self._lock:
            self._inputs[urn] = inputs
            self._made = {key: made for key, made in self._made.items() if key[0] != urn}

    def check(self, inputs: PropertyMap) -> tuple[PropertyMap, list[Problem]]:
        """A provider's inputs with the secret ones marked, and what is wrong with them."""
        from gpuform.providers.plugin.settings import problems, secret_inputs  # noqa: PLC0415

        marked = values.mark_secret_outputs(inputs, {}, secret_inputs())
        return marked, list(problems(_plain(inputs)))

    def lifecycle(self, type_: str, reference: str) -> Lifecycle[Any, Any]:
        """The lifecycle of a type under a provider. Raises GpuformError for an unknown type."""
        from gpuform.providers.plugin.settings import lifecycle_of  # noqa: PLC0415

        key = provider_urn(reference), type_
        with self._lock:
            if key not in self._made:
                self._made[key] = lifecycle_of(type_).using(self._settings(key[0]))
            return self._made[key]

    def invoke(self, token: str, arguments: PropertyMap, reference: str) -> PropertyMap:
        """The answer of a function. Raises GpuformError."""
        from gpuform.providers.plugin.settings import call_function  # noqa: PLC0415

        with self._lock:
            settings = self._settings(provider_urn(reference))
        return from_provider(call_function(token, _plain(arguments), settings))

    def _settings(self, urn: str) -> Any:
        from gpuform.providers.plugin.settings import settings_of  # noqa: PLC0415

        return settings_of(_plain(self._inputs.get(urn, {})), self.config)


def _plain(properties: PropertyMap) -> dict[str, Any]:
    return plain(to_provider(properties))
