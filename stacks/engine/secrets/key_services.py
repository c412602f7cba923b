"""Open the key management service that a secrets provider's URL names.

`stack_secrets` calls `open_key_service`, which imports the module of the service.
"""

import importlib
import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from gpuform.stacks.engine.machine import get_pip_requirement
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
# As Go's ParseBool reads them.
_BOOLEANS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class KeyManagementService(Protocol):
    """A key in a key management service. All methods raise SecretsError, without secrets in it."""

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the ciphertext in the service's format."""

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Return the plaintext of a ciphertext from `encrypt`."""

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class KeyUrl:
    """A secrets provider's URL in parts. `key` is the host with the path, as services name keys."""

    scheme: str
    key: str
    parameters: Mapping[str, list[str]]

    @property
    def display_url(self) -> str:
        """The URL without its parameters, which may be private."""
        return f"{self.scheme}://{self.key}"

    def get_text(self, name: str) -> str | None:
        """Return the first value of a parameter, or None."""
        return self.parameters.get(name, [None])[0]

    def get_bool(self, name: str) -> bool:
        """Return True if a parameter is true; False if missing.

        Raises SecretsError if no boolean.
        """
        setting = self.get_text(name)
        if setting is None:
            return False
        if setting.lower() not in _BOOLEANS:
            raise SecretsError(
                f"{self.display_url} has {name}={setting}", hint="Write true or false."
            )
        return _BOOLEANS[setting.lower()]

    def reject_unknown_parameters(self, known: Collection[str]) -> None:
        """Raise SecretsError for a parameter missing in `known`."""
        for name in self.parameters:
            if name not in known:
                close_matches = get_close_matches(name, known, n=1)
                suggestion = f"Did you mean {close_matches[0]}? " if close_matches else ""
                known_names = (
                    f"Parameters: {', '.join(sorted(known))}."
                    if known
                    else ("This service has no parameters.")
                )
                raise SecretsError(
                    f"the secrets provider {self.display_url} has an unknown parameter: {name}",
                    hint=f"{suggestion}{known_names}",
                )


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
    return KeyUrl(parts.scheme, key, parse_qs(parts.query, keep_blank_values=True))


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
