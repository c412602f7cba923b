"""One cheap look at a platform, to see whether its address, its credentials and the clock serve."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpuform.providers.actions import Settings
from gpuform.providers.http.client import ApiClient, Retry
from gpuform.providers.platforms import platforms


@dataclass(frozen=True)
class Answered:
    """A platform has answered as it should: from which address, and how far this machine's clock
    is ahead of its own, in seconds; None when it does not tell."""

    address: str
    clock_ahead: float | None = None


class Probed(Protocol):
    """What every platform's client has."""

    def probe(self) -> Answered:
        """Sends the cheapest request that needs the credentials. Raises GpuformError."""


def probe(platform: str, settings: Settings) -> Answered:
    """Looks at a platform with these settings, once.

    Raises the `GpuformError` that a run would meet: MissingCredentials, AuthError,
    PermissionDenied, Unreachable and others.
    """
    client: Probed = platforms()[platform].module("client").client_for(settings)
    return client.probe()


def ask_once(
    api: ApiClient,
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    params: Mapping[str, str] | None = None,
) -> Answered:
    """Sends one request, and never again; what it answers does not matter. Raises GpuformError."""
    api.request(method, path, body=body, params=params, retry=Retry.NEVER)
    return Answered(api.address, api.clock_ahead)
