"""Open `gs://` backends on Google Cloud Storage; called by `open_storage`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from obstore.store import GCSStore

from gpuform.stacks.engine.store.storage.addresses import Address
from gpuform.stacks.engine.store.storage.objects import Objects


def open_bucket(address: Address, environ: Mapping[str, str]) -> Objects:
    """Open the bucket of an address.

    Credentials are GOOGLE_CREDENTIALS (a key as JSON), GOOGLE_APPLICATION_CREDENTIALS, the ones of
    `gcloud auth application-default login`, or the machine's. With STORAGE_EMULATOR_HOST or the
    parameter `anonymous` none are used.

    Raises:
        BackendError: the address or the credentials cannot be used.
    """
    address.reject_unknown_parameters({"anonymous"})
    emulator = environ.get("STORAGE_EMULATOR_HOST")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    config: Any = {}
    if emulator:
        config["base_url"] = emulator.rstrip("/")
        # obstore requires a token even where no request is signed.
        config["bearer_token"] = "none"  # noqa: S105
    elif address.get_bool("anonymous"):
        config["skip_signature"] = True
    elif environ.get("GOOGLE_CREDENTIALS"):
        config["service_account_key"] = environ["GOOGLE_CREDENTIALS"]
    connect = partial(GCSStore, address.bucket, prefix=address.prefix or None, config=config)
    return Objects(connect, address.display_url, environ, emulator)
