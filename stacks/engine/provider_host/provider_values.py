"""Convert property values to what dynamic providers take and return, and the errors that they
raise.

As Pulumi's stock host has it: doubles for numbers, `pulumi.output.Unknown` for what is not known
yet, the SDK's classes for files, a resource's id (a component's URN) for a resource.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pulumi

from gpuform.providers.errors import GpuformError, NoCredit
from gpuform.stacks.engine.errors import EngineError
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
    plain = ((key, _plain(value)) for key, value in properties.items())
    return {key: value for key, value in plain if value is not None}


def _plain(value: PropertyValue) -> Any:
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Secret):
        return _plain(value.value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return to_provider(value)
    if isinstance(value, Unknown):
        return pulumi.output.Unknown()  # type: ignore[no-untyped-call]  # as the SDK has it
    if isinstance(value, ResourceReference):
        return value.urn if value.id is None else _plain(value.id)
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
