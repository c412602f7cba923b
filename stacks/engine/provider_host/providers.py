"""Load the providers of resources, and convert property values to and from what dynamic providers
take and return.

The lifecycles run in the engine's process, as those of dynamic resources do. Under the Pulumi CLI
each provider is a process of the plugin with these same inputs.

As Pulumi's stock host has it: doubles for numbers, `pulumi.output.Unknown` for what is not known
yet, the SDK's classes for files, a resource's id (a component's URN) for a resource.
"""

import base64
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import dill
import pulumi
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.runtime import _serialization

from gpuform.providers.errors import GpuformError, NoCredit
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.properties import to_properties
from gpuform.schemas.models import Problem
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import ResourceState, get_provider_urn
from gpuform.stacks.engine.urn import PLUGIN_PROVIDER_TYPE
from gpuform.stacks.engine.values import (
    UNKNOWN,
    Archive,
    Asset,
    PropertyMap,
    PropertyValue,
    ResourceReference,
    Secret,
    Unknown,
)


def to_provider(properties: PropertyMap) -> dict[str, Any]:
    """Properties as a provider's arguments: without nulls, but for those in lists."""
    plain = ((key, _without_markers(value)) for key, value in properties.items())
    return {key: value for key, value in plain if value is not None}


def _without_markers(value: PropertyValue) -> Any:
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Secret):
        return _without_markers(value.value)
    if isinstance(value, list):
        return [_without_markers(item) for item in value]
    if isinstance(value, dict):
        return to_provider(value)
    if isinstance(value, Unknown):
        return pulumi.output.Unknown()  # type: ignore[no-untyped-call]  # as the SDK has it
    if isinstance(value, ResourceReference):
        return value.urn if value.id is None else _without_markers(value.id)
    return _file(value) if isinstance(value, Asset | Archive) else value


def _file(file: Asset | Archive) -> pulumi.Asset | pulumi.Archive:
    if isinstance(file, Asset):
        if file.text is not None:
            return pulumi.StringAsset(file.text)
        return pulumi.FileAsset(file.path) if file.path else pulumi.RemoteAsset(file.uri or "")
    if file.assets is not None:
        return pulumi.AssetArchive({name: _file(item) for name, item in file.assets.items()})
    return pulumi.FileArchive(file.path) if file.path else pulumi.RemoteArchive(file.uri or "")


def from_provider(properties: Mapping[str, Any]) -> PropertyMap:
    """A provider's answer as properties: nulls at the top level are dropped, as on the wire.

    Raises ValueError, naming the property, for what no state can hold.
    """
    made: PropertyMap = {}
    for key, value in properties.items():
        try:
            if value is not None:
                made[str(key)] = _property(value)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"property {key!r}: {error}") from None
    return made


def _property(value: Any) -> PropertyValue:
    if isinstance(value, str):
        value.encode()  # what is not text would spoil the whole state
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list | tuple):
        return [_property(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _property(item) for key, item in value.items()}
    if isinstance(value, pulumi.output.Unknown):
        return UNKNOWN
    if isinstance(value, pulumi.Asset | pulumi.Archive):
        return _known_file(value)
    raise ValueError(f"a {type(value).__name__} is not a property value")


def _known_file(file: pulumi.Asset | pulumi.Archive) -> Asset | Archive:
    path, uri = getattr(file, "path", None), getattr(file, "uri", None)
    if isinstance(file, pulumi.Asset):
        return Asset(getattr(file, "text", None), path, uri)
    assets = getattr(file, "assets", None)
    if assets is not None:
        assets = {str(name): _known_file(item) for name, item in assets.items()}
    return Archive(assets, path, uri)


_HERE: Final = str(Path(__file__).parent)


class ProviderError(EngineError):
    """A provider refused or failed; the message is for the user.

    `cause` is what one of gpuform's lifecycles raised, redacted: of an `ApiError` it has the
    status, the platform's own code and the request id.
    """

    cause: GpuformError | None = None

    @classmethod
    def of(cls, cause: GpuformError, redacted: Callable[[str], str]) -> Self:
        """The error of a lifecycle. Its message is all of the cause's, with the hint."""
        cause.redact(redacted)
        cause.__traceback__ = cause.__context__ = None  # frames hold what is secret
        made = cls(redacted(str(cause)))
        made.cause = cause
        return made

    @property
    def shown_help_page(self) -> str | None:
        """The cause's page."""
        return super().shown_help_page if self.cause is None else self.cause.shown_help_page


class OutOfCredit(ProviderError):
    """The account has no credit left."""


@contextmanager
def user_errors(redacted: Callable[[str], str] = str) -> Iterator[None]:
    """Turns what a provider raises into a ProviderError, `redacted`.

    gpuform's lifecycles raise messages; of a program's own provider the traceback is what helps.
    """
    try:
        yield
    except (ProviderError, GeneratorExit):
        raise
    except GpuformError as error:
        kind = OutOfCredit if isinstance(error, NoCredit) else ProviderError
        raise kind.of(error, redacted) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a provider may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_HERE)]
        told = traceback.format_list(own) + traceback.format_exception_only(error)
        raise ProviderError(
            redacted("Traceback (most recent call last):\n" + "".join(told).rstrip())
        ) from None


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
        from gpuform.providers.plugin.settings import find_input_problems, list_secret_inputs  # noqa: PLC0415

        marked = values.mark_secret_outputs(inputs, {}, list_secret_inputs())
        return marked, list(find_input_problems(_plain(inputs)))

    def lifecycle(self, type_: str, reference: str) -> Lifecycle[Any, Any]:
        """The lifecycle of a type under a provider. Raises GpuformError for an unknown type."""
        from gpuform.providers.plugin.settings import get_lifecycle_by_token  # noqa: PLC0415

        key = get_provider_urn(reference), type_
        with self._lock:
            if key not in self._made:
                self._made[key] = get_lifecycle_by_token(type_).with_settings(
                    self._settings(key[0])
                )
            return self._made[key]

    def invoke(self, token: str, arguments: PropertyMap, reference: str) -> PropertyMap:
        """The answer of a function. Raises GpuformError."""
        from gpuform.providers.plugin.settings import call_function  # noqa: PLC0415

        with self._lock:
            settings = self._settings(get_provider_urn(reference))
        return from_provider(call_function(token, _plain(arguments), settings))

    def _settings(self, urn: str) -> Any:
        from gpuform.providers.plugin.settings import create_settings  # noqa: PLC0415

        return create_settings(_plain(self._inputs.get(urn, {})), self.config)


def _plain(properties: PropertyMap) -> dict[str, Any]:
    return to_properties(to_provider(properties))
