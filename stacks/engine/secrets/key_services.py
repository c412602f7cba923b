"""Open the key management service that a secrets provider's URL names.

`stack_secrets` calls `open_key_service`, which imports the module of the service.
"""

import importlib
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from gpuform.stacks.engine.machine import UrlWithParameters, get_pip_requirement
from gpuform.stacks.engine.secrets.passphrase import SecretsError

SERVICES: Final[Mapping[str, str]] = {
    "awskms": "AWS KMS",
    "azurekeyvault": "Azure Key Vault",
    "gcpkms": "Google Cloud KMS",
    "hashivault": "HashiCorp Vault",
}
"""The services' names by the scheme of their URLs."""

_LIBRARIES: Final = {
    "awskms": "botocore",
    "azurekeyvault": "azure-identity and azure-keyvault-keys",
    "gcpkms": "google-auth[requests]",
    "hashivault": "hvac",
}
_OWN_PACKAGE: Final = "gpuform"


class KeyManagementService(Protocol):
    """A key in a key management service. All methods raise SecretsError, without secrets in it."""

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the ciphertext in the service's format."""

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Return the plaintext of a ciphertext from `encrypt`."""

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class KeyUrl(UrlWithParameters):
    """A key's URL in parts. `key` is the host with the path, as services name keys."""

    kind = "secrets provider"
    error = SecretsError

    scheme: str
    key: str


def is_key_url(provider: str) -> bool:
    """Return True if `provider` has the scheme of a key management service, valid or not."""
    return provider.partition("://")[0] in SERVICES and "://" in provider


def parse_key_url(url: str) -> KeyUrl:
    """Parse a URL. Raises SecretsError if it names no key."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    key = posixpath.normpath(f"{parts.netloc}{path}").lstrip("/") if parts.netloc or path else ""
    if key in ("", "."):
        raise SecretsError(
            f"the secrets provider {parts.scheme}:// does not name a key",
            hint=f"Write {_EXAMPLES.get(parts.scheme, parts.scheme + '://KEY')}",
        )
    parameters = parse_qs(parts.query, keep_blank_values=True)
    return KeyUrl(f"{parts.scheme}://{key}", parameters, parts.scheme, key)


_EXAMPLES: Final = {
    "awskms": "awskms://alias/NAME?region=REGION, or awskms:///ARN",
    "azurekeyvault": "azurekeyvault://VAULT.vault.azure.net/keys/NAME",
    "gcpkms": "gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K",
    "hashivault": "hashivault://NAME",
}


def open_key_service(url: str, environ: Mapping[str, str]) -> KeyManagementService:
    """Open the key at a URL; only AWS roles need a request for this.

    Raises:
        SecretsError: the URL is wrong, there are no credentials, or the service's library is not
            installed.
    """
    address = parse_key_url(url)
    if address.scheme not in SERVICES:
        raise SecretsError(f"{address.scheme}:// is not the URL of a key management service")
    try:
        module = importlib.import_module(f"gpuform.stacks.engine.secrets.{address.scheme}")
    except ModuleNotFoundError as error:
        # A missing module of gpuform's own is an error of gpuform, not a missing library.
        if (error.name or _OWN_PACKAGE).partition(".")[0] == _OWN_PACKAGE:
            raise
        raise SecretsError(
            f"{SERVICES[address.scheme]} requires {_LIBRARIES[address.scheme]}, which is not "
            "installed",
            hint=f"Install gpuform with its extra `{address.scheme}`: "
            f"pip install '{get_pip_requirement(address.scheme)}'",
        ) from None
    opened: KeyManagementService = module.open_key(address, environ)
    return opened


def build_service_error(address: KeyUrl, action: str, reason: str, hint: str) -> SecretsError:
    """Build the error of a service: `reason` in the service's words, `hint` says what to check."""
    service = SERVICES[address.scheme]
    return SecretsError(f"{service} cannot {action} the key {address.key}: {reason}", hint=hint)
