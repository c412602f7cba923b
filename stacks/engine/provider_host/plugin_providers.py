"""The providers of gpuform's resources in plugin form: the default one, and explicit ones.

The lifecycles run in the engine's process, as those of dynamic resources do. Under the Pulumi CLI
each provider is a process of the plugin with these same inputs.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.properties import plain
from gpuform.schemas.models import Problem
from gpuform.stacks.engine import values
from gpuform.stacks.engine.provider_host.provider_values import from_provider, to_provider
from gpuform.stacks.engine.state import ResourceState, provider_urn
from gpuform.stacks.engine.urn import PLUGIN_PROVIDER_TYPE
from gpuform.stacks.engine.values import PropertyMap


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
        from gpuform.providers.plugin.tokens import lifecycle_of  # noqa: PLC0415

        key = provider_urn(reference), type_
        with self._lock:
            if key not in self._made:
                self._made[key] = lifecycle_of(type_).using(self._settings(key[0]))
            return self._made[key]

    def invoke(self, token: str, arguments: PropertyMap, reference: str) -> PropertyMap:
        """The answer of a function. Raises GpuformError."""
        from gpuform.providers.plugin import functions  # noqa: PLC0415

        with self._lock:
            settings = self._settings(provider_urn(reference))
        return from_provider(functions.answer(token, _plain(arguments), settings))

    def _settings(self, urn: str) -> Any:
        from gpuform.providers.plugin.settings import settings_of  # noqa: PLC0415

        return settings_of(_plain(self._inputs.get(urn, {})), self.config)


def _plain(properties: PropertyMap) -> dict[str, Any]:
    return plain(to_provider(properties))
