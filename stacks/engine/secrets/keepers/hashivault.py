"""`hashivault://`: the transit engine of HashiCorp Vault."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import hvac
import requests

from gpuform.stacks.engine.secrets.keepers.opening import KeyUrl, refusal_of
from gpuform.stacks.engine.secrets.passphrase import SecretsError

_NEEDS: Final = (
    "Check VAULT_ADDR, and that the token (VAULT_TOKEN, or `vault login`) may update "
    "{engine}/encrypt/{key} and {engine}/decrypt/{key}."
)
_TIMEOUT: Final = 30


def open_key(address: KeyUrl, environ: Mapping[str, str]) -> "VaultKey":
    """A key of the transit engine; `engine` is where that is mounted if not at `transit`.

    The server is VAULT_SERVER_URL or VAULT_ADDR, the token VAULT_SERVER_TOKEN, VAULT_TOKEN or that
    of `vault login`.
    """
    address.refuse_unknown({"engine"})
    url = environ.get("VAULT_SERVER_URL") or environ.get("VAULT_ADDR")
    if not url:
        raise SecretsError(
            f"{address.shown} is a key of HashiCorp Vault, and nothing says where that is",
            hint="Set VAULT_ADDR to its address.",
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
        self._engine = address.text("engine") or "transit"

    def close(self) -> None:
        """See Keeper."""
        self._client.adapter.close()

    def encrypt(self, plaintext: bytes) -> bytes:
        """See Keeper."""
        given = base64.b64encode(plaintext).decode()
        ask = self._client.secrets.transit.encrypt_data
        return self._data("encrypt", "ciphertext", ask, plaintext=given).encode()

    def decrypt(self, ciphertext: bytes) -> bytes:
        """See Keeper."""
        ask = self._client.secrets.transit.decrypt_data
        text = ciphertext.decode(errors="replace")
        return base64.b64decode(self._data("decrypt", "plaintext", ask, ciphertext=text))

    def _data(self, what: str, name: str, ask: Callable[..., Any], **given: str) -> str:
        key = self._address.key
        needs = _NEEDS.format(engine=self._engine, key=key)
        try:
            return str(ask(name=key, mount_point=self._engine, **given)["data"][name])
        except hvac.exceptions.VaultError as error:
            told = ", ".join(error.errors or []) or type(error).__name__
            raise refusal_of(self._address, f"{what} with", told, needs) from None
        except requests.RequestException as error:
            why = f"it cannot be reached ({type(error).__name__})"
            raise refusal_of(self._address, f"{what} with", why, needs) from None
        except (KeyError, TypeError, ValueError):
            why = "its answer is not one of Vault's transit engine"
            raise refusal_of(self._address, f"{what} with", why, needs) from None
