"""Open `azblob://` backends on Azure Blob Storage; called by `open_storage`."""

import shutil
from collections.abc import Mapping
from functools import partial
from typing import Any

from obstore.store import AzureStore

from gpuform.stacks.engine.store.backend_files import BackendError
from gpuform.stacks.engine.store.storage.addresses import Address
from gpuform.stacks.engine.store.storage.objects import Objects

# The account and address of Azurite, Microsoft's emulator.
_EMULATOR = ("devstoreaccount1", "localhost:10000")


def open_bucket(address: Address, environ: Mapping[str, str]) -> Objects:
    """Open the container of an address.

    The account is the parameter `storage_account` or AZURE_STORAGE_ACCOUNT; credentials are
    AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID with its related variables, the ones
    of `az login`, or the machine's.

    Raises:
        BackendError: the address or the credentials cannot be used.
    """
    address.reject_unknown_parameters({"storage_account", "domain", "protocol", "localemu"})
    local = address.get_bool("localemu")
    account = address.get_text("storage_account") or environ.get("AZURE_STORAGE_ACCOUNT")
    account = account or (_EMULATOR[0] if local else None)
    if account is None:
        raise BackendError(
            f"the backend {address.display_url} has no storage account",
            hint=f"Set AZURE_STORAGE_ACCOUNT, or write azblob://{address.bucket}?storage_account="
            "NAME.",
        )
    config: Any = {"account_name": account}
    endpoint = (
        _build_endpoint(address, account) if local or "domain" in address.parameters else None
    )
    if endpoint:
        config["endpoint"] = endpoint
    if environ.get("AZURE_STORAGE_KEY"):
        config["account_key"] = environ["AZURE_STORAGE_KEY"]
    elif environ.get("AZURE_STORAGE_SAS_TOKEN"):
        config["sas_key"] = environ["AZURE_STORAGE_SAS_TOKEN"]
    elif not environ.get("AZURE_CLIENT_ID") and shutil.which("az"):
        config["use_azure_cli"] = True
    connect = partial(AzureStore, address.bucket, prefix=address.prefix or None, config=config)
    return Objects(connect, address.display_url, environ, endpoint)


def _build_endpoint(address: Address, account: str) -> str:
    """Return the URL of the account; emulators have the account in the path."""
    local = address.get_bool("localemu")
    domain = address.get_text("domain") or (_EMULATOR[1] if local else "blob.core.windows.net")
    protocol = address.get_text("protocol") or ("http" if local else "https")
    return f"{protocol}://{domain}/{account}" if local else f"{protocol}://{account}.{domain}"
