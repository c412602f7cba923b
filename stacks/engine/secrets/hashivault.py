"""Encrypt with the transit engine of HashiCorp Vault (`hashivault://`).

`key_services` imports this module for such a URL.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import hvac
import hvac.exceptions
import requests

from gpuform.stacks.engine.secrets.passphrase import SecretsError
from gpuform.stacks.engine.secrets.stack_secrets import KeyUrl, build_service_error

_PERMISSIONS_HINT: Final = (
    "Check VAULT_ADDR, and that the token (VAULT_TOKEN, or `vault login`) may update "
    "{engine}/encrypt/{key} and {engine}/decrypt/{key}."
)
_TIMEOUT: Final = 30


def open_key(address: KeyUrl, environ: Mapping[str, str]) -> "VaultKey":
    """Open a key of the transit engine, mounted at the parameter `engine` or at `transit`.

    The server is VAULT_SERVER_URL or VAULT_ADDR, the token VAULT_SERVER_TOKEN, VAULT_TOKEN or the
    one of `vault login`. No request is sent yet. Raises SecretsError without a server.
    """
    address.reject_unknown_parameters({"engine"})
    url = environ.get("VAULT_SERVER_URL") or environ.get("VAULT_ADDR")
    if not url:
        raise SecretsError(
            f"{address.display_url} is a key of HashiCorp Vault, but the address of the Vault "
            "server is not set",
            hint="Set VAULT_ADDR to the address of the Vault server.",
        )
    token = environ.get("VAULT_SERVER_TOKEN") or environ.get("VAULT_TOKEN")
    skips = environ.get("VAULT_SKIP_VERIFY", "").lower() in ("1", "t", "true")
    client = hvac.Client(
        url=url,
        token=token or None,
        namespace=environ.get("VAULT_NAMESPACE") or None,
        timeout=_TIMEOUT,
        verify=False if skips else None,  # None: by VAULT_CACERT or VAULT_CAPATH
    )
    return VaultKey(address, client)


class VaultKey:
    """A key of Vault's transit engine."""

    def __init__(self, address: KeyUrl, client: Any) -> None:
        self._address, self._client = address, client
        self._engine = address.get_text("engine") or "transit"

    def close(self) -> None:
        """Close the connections to HashiCorp Vault."""
        self._client.adapter.close()

    def encrypt(self, plaintext: bytes) -> bytes:
        """Encrypt under the Vault key. Raises SecretsError."""
        encoded = base64.b64encode(plaintext).decode()
        method = self._client.secrets.transit.encrypt_data
        return self._call_transit("encrypt", "ciphertext", method, plaintext=encoded).encode()

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Decrypt a ciphertext by the key service. Raises SecretsError."""
        method = self._client.secrets.transit.decrypt_data
        encrypted_text = ciphertext.decode(errors="replace")
        return base64.b64decode(
            self._call_transit("decrypt", "plaintext", method, ciphertext=encrypted_text)
        )

    def _call_transit(
        self, action: str, name: str, method: Callable[..., Any], **fields: str
    ) -> str:
        """Call the transit engine and return the answer's field `name`. Raises SecretsError."""
        key = self._address.key
        hint = _PERMISSIONS_HINT.format(engine=self._engine, key=key)
        try:
            return str(method(name=key, mount_point=self._engine, **fields)["data"][name])
        except hvac.exceptions.VaultError as error:
            errors = ", ".join(error.errors or []) or type(error).__name__
            raise build_service_error(self._address, f"{action} with", errors, hint) from None
        except requests.RequestException as error:
            reason = f"Vault cannot be reached ({type(error).__name__})"
            raise build_service_error(self._address, f"{action} with", reason, hint) from None
        except (KeyError, TypeError, ValueError):
            reason = "the answer is not from Vault's transit engine"
            raise build_service_error(self._address, f"{action} with", reason, hint) from None
