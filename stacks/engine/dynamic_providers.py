"""Load the providers of resources, and convert property values for dynamic providers.

`ProviderHost` calls this module. Lifecycles run in the engine's process, as dynamic resources do.
Under the Pulumi CLI each provider is a process of the plugin with the same inputs. Values are as in
Pulumi's stock host: doubles for numbers, `pulumi.output.Unknown` for unknown values, the SDK's
classes for files, a resource's id (a component's URN) for a resource.
"""

import base64
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Final, Self

import dill
import pulumi
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.runtime import _serialization

from gpuform.providers import values
from gpuform.providers.context import RunContext, use_run_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import (
    UNKNOWN,
    Archive,
    Asset,
    PropertyMap,
    PropertyValue,
    ResourceReference,
    Secret,
    Unknown,
)
from gpuform.schemas.errors import EngineError
from gpuform.schemas.models import Problem
from gpuform.stacks.engine.state import ResourceState, get_provider_urn
from gpuform.stacks.engine.urn import PLUGIN_PROVIDER_TYPE


def to_provider(
    properties: PropertyMap,
    create_unknown: Callable[[], Any] = pulumi.output.Unknown,
    *,
    hides_secrets: bool = False,
) -> dict[str, Any]:
    """Convert properties to a provider's arguments: without nulls, except for nulls in lists.

    `create_unknown` makes unknown values, which secrets become, too, if `hides_secrets`.
    """
    provider_values = (
        (key, _to_provider_value(value, create_unknown, hides_secrets))
        for key, value in properties.items()
    )
    return {key: value for key, value in provider_values if value is not None}


def to_plain(properties: PropertyMap, *, hides_secrets: bool = False) -> dict[str, Any]:
    """Convert properties to a lifecycle's values: as for a provider, with gpuform's UNKNOWN.

    The pickled provider of a dynamic resource is left out.
    """
    own = {key: value for key, value in properties.items() if key != PROVIDER_KEY}
    return to_provider(own, Unknown, hides_secrets=hides_secrets)


_PLAIN: Final = (str, bool, NoneType)


def _to_provider_value(
    value: PropertyValue, create_unknown: Callable[[], Any], hides_secrets: bool
) -> Any:
    """Return the value in plain form for a provider: secrets unwrapped, numbers as floats.

    A resource reference becomes its id, or its URN without one. Files become the SDK's classes;
    objects lose their null values. The other arguments are those of `to_provider`.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, int | float):
        # Under the CLI providers get 1.0, never 1: programs that rely on int would fail there.
        return float(value)
    if isinstance(value, list):
        return [_to_provider_value(item, create_unknown, hides_secrets) for item in value]
    if isinstance(value, dict):
        return to_provider(value, create_unknown, hides_secrets=hides_secrets)
    if isinstance(value, Unknown) or (hides_secrets and isinstance(value, Secret)):
        return create_unknown()
    if isinstance(value, Secret):
        return _to_provider_value(value.value, create_unknown, hides_secrets)
    if isinstance(value, ResourceReference):
        identity = value.urn if value.id is None else value.id
        return _to_provider_value(identity, create_unknown, hides_secrets)
    return _to_sdk_file(value) if isinstance(value, Asset | Archive) else value


def _to_sdk_file(file: Asset | Archive) -> pulumi.Asset | pulumi.Archive:
    """Convert an asset or archive to the SDK's class for a text, path, URL or members."""
    if isinstance(file, Asset):
        if file.text is not None:
            return pulumi.StringAsset(file.text)
        return pulumi.FileAsset(file.path) if file.path else pulumi.RemoteAsset(file.uri or "")
    if file.assets is not None:
        return pulumi.AssetArchive({name: _to_sdk_file(item) for name, item in file.assets.items()})
    return pulumi.FileArchive(file.path) if file.path else pulumi.RemoteArchive(file.uri or "")


def from_provider(properties: Mapping[str, Any]) -> PropertyMap:
    """Convert a provider's answer to properties, dropping top-level nulls, as on the wire.

    Raises:
        ValueError: names the property whose value no state can hold.
    """
    properties_by_name: PropertyMap = {}
    for key, value in properties.items():
        try:
            if value is not None:
                properties_by_name[str(key)] = _to_property(value)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"property {key!r}: {error}") from None
    return properties_by_name


def _to_property(value: Any) -> PropertyValue:
    """Convert a value of a provider's answer. Raises ValueError where no state can hold it."""
    if isinstance(value, str):
        value.encode()  # raises for half a surrogate pair, which no checkpoint can hold
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list | tuple):
        return [_to_property(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _to_property(item) for key, item in value.items()}
    if isinstance(value, pulumi.output.Unknown):
        return UNKNOWN
    if isinstance(value, pulumi.Asset | pulumi.Archive):
        return _from_sdk_file(value)
    raise ValueError(f"a {type(value).__name__} is not a valid property value")


def _from_sdk_file(file: pulumi.Asset | pulumi.Archive) -> Asset | Archive:
    """Convert the SDK's asset or archive to the engine's."""
    path, uri = getattr(file, "path", None), getattr(file, "uri", None)
    if isinstance(file, pulumi.Asset):
        return Asset(getattr(file, "text", None), path, uri)
    assets = getattr(file, "assets", None)
    if assets is not None:
        assets = {str(name): _from_sdk_file(item) for name, item in assets.items()}
    return Archive(assets, path, uri)


_OWN_FOLDER: Final = str(Path(__file__).parent)


class ProviderError(EngineError):
    """A provider refused or failed; the message is for the user.

    `cause` is what one of gpuform's lifecycles raised, redacted: of an `ApiError` it has the
    status, the platform's own code and the request id.
    """

    cause: GpuformError | None = None

    @classmethod
    def from_cause(cls, cause: GpuformError, redact: Callable[[str], str]) -> Self:
        """Create the error from a lifecycle's; the message is the redacted text with the hint.

        The `cause` itself is redacted, and loses its traceback, which holds secrets.
        """
        cause.redact(redact)
        # The frames of the traceback hold secrets in their local variables.
        cause.__traceback__ = cause.__context__ = None
        provider_error = cls(redact(str(cause)))
        provider_error.cause = cause
        return provider_error

    @property
    def shown_help_page(self) -> str | None:
        """The help page of the provider's own error, if there is one."""
        return super().shown_help_page if self.cause is None else self.cause.shown_help_page


@contextmanager
def raise_as_provider_error(redact: Callable[[str], str] = str) -> Iterator[None]:
    """Raise every exception of a provider as ProviderError, with secrets redacted.

    Errors of gpuform's lifecycles keep their message. Of a program's own provider the message is
    the traceback.
    """
    try:
        yield
    except (ProviderError, GeneratorExit):
        raise
    except GpuformError as error:
        raise ProviderError.from_cause(error, redact) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a provider may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_OWN_FOLDER)]
        lines = traceback.format_list(own) + traceback.format_exception_only(error)
        raise ProviderError(
            redact("Traceback (most recent call last):\n" + "".join(lines).rstrip())
        ) from None


@dataclass(slots=True)
class DynamicProviders:
    """The dynamic providers of one run, each loaded and configured once; safe for threads.

    `config` is the stack's complete configuration in plain text under full keys.
    """

    project: str
    config: Mapping[str, str]
    run_context: RunContext
    _loaded: dict[str, ResourceProvider] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get_provider(self, pickled: str) -> ResourceProvider:
        """Return the provider pickled in a resource's `__provider`. Raises ProviderError."""
        with self._lock:
            if pickled not in self._loaded:
                self._loaded[pickled] = self._load(pickled)
            return self._loaded[pickled]

    def _load(self, pickled: str) -> ResourceProvider:
        """Unpickle and configure the provider. Raises ProviderError."""
        try:
            provider = _unpickle(pickled)
        except Exception as error:  # noqa: BLE001 - loading it runs the project's modules
            raise ProviderError(
                f"the provider of this resource cannot be loaded: {error}",
                hint="the module that defines it must be importable from the project",
            ) from None
        with raise_as_provider_error(), use_run_context(self.run_context):
            # As the stock host: once per pickled provider, with the whole configuration of the
            # stack.
            provider.configure(ConfigureRequest(Config(dict(self.config), self.project)))
        return provider


def _unpickle(pickled: str) -> ResourceProvider:
    """Load a provider as Pulumi's host does, with outputs and secrets in the provider unwrapped."""

    def load() -> ResourceProvider:
        provider: ResourceProvider = dill.loads(base64.b64decode(pickled))  # noqa: S301 - its format
        return provider

    # A private function of the SDK, which unwraps outputs and secrets in the provider. An SDK
    # without it still loads providers that hold none.
    run = getattr(_serialization, "_deserialize", None)
    return load() if run is None else run(load)


@dataclass(slots=True)
class PluginProviders:
    """The plugin providers of one run by URN; `config` is the stack's, plain, by full key."""

    config: Mapping[str, str]
    run_context: RunContext
    _inputs: dict[str, PropertyMap] = field(default_factory=dict)
    _lifecycles: dict[tuple[str, str], Lifecycle[Any, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def configure_from_state(self, entries: Iterable[ResourceState]) -> None:
        """Store the inputs of all live plugin providers of a state.

        A provider is created when first needed.
        """
        for entry in entries:
            if entry.type == PLUGIN_PROVIDER_TYPE and not entry.delete:
                self.configure(entry.urn, entry.inputs)

    def configure(self, urn: str, inputs: PropertyMap) -> None:
        """Set the inputs of a plugin provider in place of earlier inputs."""
        with self._lock:
            self._inputs[urn] = inputs
            # Lifecycles with the old settings are created again when they are needed.
            self._lifecycles = {
                key: lifecycle for key, lifecycle in self._lifecycles.items() if key[0] != urn
            }

    def check(self, inputs: PropertyMap) -> tuple[PropertyMap, list[Problem]]:
        """Return a provider's inputs with secrets marked, and the problems of the inputs."""
        from gpuform.providers.plugin.settings import find_input_problems, list_secret_inputs  # noqa: PLC0415

        marked = values.mark_secret_outputs(inputs, {}, list_secret_inputs())
        return marked, list(find_input_problems(to_plain(inputs)))

    def get_lifecycle(self, type_: str, reference: str) -> Lifecycle[Any, Any]:
        """Return the lifecycle of a type under a provider.

        Raises GpuformError for an unknown type.
        """
        from gpuform.providers.plugin.settings import get_lifecycle_by_token  # noqa: PLC0415

        key = get_provider_urn(reference), type_
        with self._lock:
            if key not in self._lifecycles:
                self._lifecycles[key] = get_lifecycle_by_token(type_).with_settings(
                    self._create_provider_settings(key[0])
                )
            return self._lifecycles[key]

    def invoke(self, token: str, arguments: PropertyMap, reference: str) -> PropertyMap:
        """Call a function of the plugin and return the answer. Raises GpuformError."""
        from gpuform.providers.plugin.settings import call_function  # noqa: PLC0415

        with self._lock:
            settings = self._create_provider_settings(get_provider_urn(reference))
        with use_run_context(self.run_context):
            return from_provider(call_function(token, to_plain(arguments), settings))

    def _create_provider_settings(self, provider_urn: str) -> Any:
        """Return the `Settings` of a plugin provider: its inputs, completed by the configuration.

        A provider without inputs has only the stack's configuration.
        """
        from gpuform.providers.plugin.settings import create_settings  # noqa: PLC0415

        with use_run_context(self.run_context):
            return create_settings(to_plain(self._inputs.get(provider_urn, {})), self.config)
