"""Store state in a bucket through obstore: Amazon S3, Google Cloud Storage, Azure Blob Storage.

Conditional writes keep two owners apart, so all three must honour If-None-Match and If-Match (or
Google's generations). Parameters of `s3://` are those of gocloud.dev's s3blob, which Pulumi uses;
credentials are found as every AWS tool finds them: variables, profiles, SSO, assumed roles,
containers and machines.
"""

import ipaddress
import re
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from gpuform.stacks.engine.machine import IGNORED_AWS_PARAMETERS
from gpuform.stacks.engine.state import Log
from gpuform.stacks.engine.store.addresses import Address
from gpuform.stacks.engine.store.bucket_runs import Lease, SegmentLog, UnsavedFile
from gpuform.stacks.engine.store.storage import (
    ABSENT,
    BackendError,
    Blob,
    BlobEntry,
    BlobVersion,
    ChangedMeanwhile,
    Exclusion,
    StorageFailed,
)

_TRIES = 8
_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_LOG_IN = "Check the credentials, or get new ones (`aws sso login`, `gcloud auth`, `az login`)."
_HINTS = {
    "AccessDenied": _LOG_IN,
    "ExpiredToken": _LOG_IN,
    "RequestTimeTooSkewed": "Set this machine's clock.",
    "NoSuchBucket": "Check the name, the region and the endpoint of the bucket.",
    "PermanentRedirect": "The bucket is in another region: add ?region=REGION.",
    "AuthorizationHeaderMalformed": "The bucket is in another region: add ?region=REGION.",
}


class Objects:
    """A storage in a bucket, under a prefix; `display_url` is its URL for messages.

    `connect` makes obstore's store from `client_options` and `retry_config`. A request is tried
    AWS_MAX_ATTEMPTS times on any cloud, as by AWS's tools. After a request that failed all the
    same, each one is tried once and for a short time: a run must end soon when its store is
    unreachable.
    """

    def __init__(
        self,
        connect: Callable[..., ObjectStore],
        display_url: str,
        environ: Mapping[str, str],
        endpoint: str | None = None,
    ) -> None:
        attempts_setting = environ.get("AWS_MAX_ATTEMPTS", "")
        tries = (
            int(attempts_setting)
            if attempts_setting.isdigit() and int(attempts_setting)
            else _TRIES
        )
        self._connect = connect
        self._is_plain = bool(endpoint and endpoint.startswith("http://"))
        self._store = self._open_store(tries, connecting=10, answering=60)
        self._has_failed = False
        self._display_url = display_url.rstrip("/")
        self._environ = environ

    def _open_store(self, tries: int, *, connecting: float, answering: float) -> ObjectStore:
        """Open the store; a request has `tries` tries, and the time limits in seconds."""
        options = {
            "connect_timeout": timedelta(seconds=connecting),
            "timeout": timedelta(seconds=answering),
            "allow_http": self._is_plain,
        }
        limits = {"max_retries": tries - 1, "retry_timeout": timedelta(seconds=answering)}
        return self._connect(client_options=options, retry_config=limits)

    def read(self, name: str) -> Blob | None:
        """Return the object, or None for a missing one.

        Raises StorageFailed, also for a missing bucket.
        """
        try:
            result = obstore.get(self._store, name)
            data = bytes(result.bytes())
        except FileNotFoundError as error:
            self._reject_missing_bucket(error)
            return None
        except (exceptions.BaseError, OSError) as error:
            self._raise_failure(name, "read", error)
        meta = result.meta
        return Blob(data, BlobVersion(meta["e_tag"], meta["version"]), meta["last_modified"])

    def write(self, name: str, data: bytes, replacing: BlobVersion | None = None) -> BlobVersion:
        """Write the object if the stored version is `replacing`; None overwrites any.

        Returns the new version, also if an earlier try of this write has stored it.

        Raises:
            ChangedMeanwhile: another version is stored.
            StorageFailed: the store refuses the request.
        """
        mode: Any = "overwrite" if replacing is None else _build_write_mode(replacing)
        try:
            done = obstore.put(self._store, name, data, mode=mode, use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            self._reject_missing_bucket(error)
            return self._find_earlier_write(name, data, error)
        except (exceptions.BaseError, OSError) as error:
            self._raise_failure(name, "written", error)
        return BlobVersion(done["e_tag"], done["version"])

    def copy(self, source: str, target: str) -> bool:
        """Copy the object in the store; return False if there is none. Raises StorageFailed."""
        try:
            obstore.copy(self._store, source, target)
        except FileNotFoundError as error:
            self._reject_missing_bucket(error)
            return False
        except (exceptions.BaseError, OSError) as error:
            self._raise_failure(source, f"copied to {target}", error)
        return True

    def delete(self, *names: str) -> None:
        """Delete the objects, as far as they exist. Raises StorageFailed."""
        try:
            if names:
                # Not every store supports the request that deletes several objects.
                obstore.delete(self._store, list(names) if len(names) > 1 else names[0])
        except FileNotFoundError as error:
            self._reject_missing_bucket(error)
            if len(names) > 1:
                for name in names:
                    self.delete(name)
        except (exceptions.BaseError, OSError) as error:
            self._raise_failure(names[0], "removed", error)

    def list_entries(self, folder: str, after: str = "") -> list[BlobEntry]:
        """List all objects below the folder with names after `after`, sorted by name.

        Raises StorageFailed.
        """
        try:
            objects = obstore.list(self._store, folder, offset=after or None).collect()
        except (exceptions.BaseError, OSError) as error:
            self._raise_failure(folder, "listed", error)
        entries = [
            BlobEntry(str(object_meta["path"]), object_meta["last_modified"])
            for object_meta in objects
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def locate(self, name: str) -> str:
        """Return the URL of the bucket's object `name`, for messages."""
        return f"{self._display_url}/{name}"

    def get_name(self, where: str) -> str | None:
        """Return the name of the bucket's object at a URL, or None for a URL of another bucket."""
        prefix = f"{self._display_url}/"
        return where.removeprefix(prefix) if where.startswith(prefix) else None

    def create_exclusion(self, name: str) -> Exclusion:
        """Create the lease for `name`, not yet taken."""
        return Lease(self, name, self._environ)

    def open_log(self, name: str, guard: Callable[[], None], unsaved: Path | None) -> Log:
        """Open the journal log in numbered objects below `name`.

        Segments that the store refuses go to the local file `unsaved`; with None, they are an
        error.
        """
        unsaved_file = UnsavedFile(unsaved, self.locate(name)) if unsaved else None
        return SegmentLog(self, name, guard, unsaved_file)

    def _find_earlier_write(self, name: str, data: bytes, error: Exception) -> BlobVersion:
        """Return the version written by an earlier try whose answer was lost.

        Raises:
            ChangedMeanwhile: the stored bytes differ.
        """
        blob = self.read(name)
        # The client repeats a request without an answer: the condition fails if the first try was
        # written after all.
        if blob is not None and blob.data == data:
            return blob.version
        raise ChangedMeanwhile(
            f"another process changed {self.locate(name)} meanwhile",
            hint="Nothing was overwritten. Run the command again.",
        ) from error

    def _reject_missing_bucket(self, error: Exception) -> None:
        """Raise StorageFailed if the error shows a missing bucket."""
        if any(sign in str(error) for sign in _MISSING_BUCKET):
            raise StorageFailed(
                f"the bucket of {self._display_url} does not exist", hint=_HINTS["NoSuchBucket"]
            ) from error

    def _raise_failure(self, name: str, done: str, error: Exception) -> NoReturn:
        """Raise StorageFailed with the store's reason.

        Later requests have short timeouts and no retries. `done` is the participle of the failed
        action, such as `read`.
        """
        self._reject_missing_bucket(error)
        if not self._has_failed:
            # A run whose store is unreachable must end soon: no more retries, and short timeouts.
            self._has_failed = True
            self._store = self._open_store(1, connecting=3, answering=10)
        code, why = _parse_error(error)
        refused = isinstance(
            error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
        )
        hint = _HINTS.get(code) or (_LOG_IN if refused else _REACH)
        raise StorageFailed(f"{self.locate(name)} cannot be {done}: {why}", hint=hint) from None


_REACH = "Check the network and the URL of the backend, and run the command again."


def _build_write_mode(replacing: BlobVersion) -> Any:
    """Build obstore's write mode: only create for ABSENT, else only replace this version."""
    if replacing == ABSENT:
        return "create"
    conditions = {"e_tag": replacing.e_tag, "version": replacing.generation}
    return {key: value for key, value in conditions.items() if value is not None}


def _parse_error(error: Exception) -> tuple[str, str]:
    """Return the store's error code and message without the URL, which may hold a signature."""
    error_text = str(error).partition("\n\nDebug source")[0]
    code = re.search(r"<Code>([^<]*)</Code>", error_text)
    message = re.search(r"<Message>([^<]*)</Message>", error_text)
    if code:
        return code[1], f"{code[1]}: {message[1]}" if message else code[1]
    line = re.sub(
        r"^.*Error performing \w+ \S+ in \S+(, after .*retry_timeout: \S+)? *- ", "", error_text
    )
    line = re.sub(r"https?://\S+", "...", line.splitlines()[0])
    region = "PermanentRedirect" if "configured region" in line else ""
    return region, re.sub(r"^Generic \w+ error: ", "", line) or type(error).__name__


_PARAMETERS: Final = IGNORED_AWS_PARAMETERS | {
    "region",
    "endpoint",
    "profile",
    "anonymous",
    "s3ForcePathStyle",
    "use_path_style",
    "disableSSL",
    "disable_https",
    "ssetype",
    "kmskeyid",
}
_CREDENTIALS_LIFETIME: Final = timedelta(minutes=5)
"""How long credentials are used before they are asked for again; botocore renews them itself."""


def open_s3_bucket(address: Address, environ: Mapping[str, str]) -> Objects:
    """Open the bucket of an address.

    Credentials are AWS_ACCESS_KEY_ID with its related variables, unless the address names a
    `profile`, else those of AWS's own files and services. With the parameter `anonymous` none are
    used.

    Raises:
        BackendError: the address or the credentials cannot be used.
    """
    address.reject_unknown_parameters(_PARAMETERS)
    endpoint = _find_endpoint(address, environ)
    profile = address.get_text("profile")
    by_path = address.get_bool("s3ForcePathStyle", "use_path_style") or "." in address.bucket
    if endpoint and not by_path:
        host = urlsplit(endpoint)
        by_path = _is_ip_address(host.hostname or "")
        if not by_path:
            # obstore does not put the bucket in front of an endpoint that it is given.
            endpoint = f"{host.scheme}://{address.bucket}.{host.netloc}"
    region = address.get_text("region") or environ.get("AWS_REGION")
    config: dict[str, Any] = {
        "virtual_hosted_style_request": not by_path,
        "region": region or environ.get("AWS_DEFAULT_REGION"),
        "endpoint": endpoint,
        "server_side_encryption": address.get_text("ssetype"),
        "sse_kms_key_id": address.get_text("kmskeyid"),
    }
    provider = None
    if address.get_bool("anonymous"):
        config["skip_signature"] = True
    elif environ.get("AWS_ACCESS_KEY_ID") and not profile:
        config["access_key_id"] = environ["AWS_ACCESS_KEY_ID"]
        config["secret_access_key"] = environ.get("AWS_SECRET_ACCESS_KEY", "")
        config["session_token"] = environ.get("AWS_SESSION_TOKEN")
    else:
        provider = _BotocoreCredentials(profile, address.display_url)
        config["region"] = config["region"] or provider.region
    set_config: Any = {name: value for name, value in config.items() if value is not None}
    connect = partial(
        S3Store,
        address.bucket,
        prefix=address.prefix or None,
        config=set_config,
        credential_provider=provider,
    )
    return Objects(connect, address.display_url, environ, endpoint)


def _find_endpoint(address: Address, environ: Mapping[str, str]) -> str | None:
    """Return the URL of another store than AWS, of the address or the environment, or None.

    A host without a scheme gets `https://`, or `http://` if the address disables TLS.
    """
    insecure = address.get_bool("disableSSL", "disable_https")
    endpoint = address.get_text("endpoint") or environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = endpoint or environ.get("AWS_ENDPOINT_URL")
    if endpoint is None or "://" in endpoint:
        return endpoint
    return f"{'http' if insecure else 'https'}://{endpoint}"


def _is_ip_address(host: str) -> bool:
    """Return True if `host` is an IP address, in front of which a bucket's name cannot stand.

    `host` is without a port, and without the brackets of IPv6.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _BotocoreCredentials:
    """Credentials from botocore: of a profile, or the first of its chain of sources."""

    def __init__(self, profile: str | None, shown: str) -> None:
        import botocore.exceptions  # noqa: PLC0415 - slow, and variables need none of it
        import botocore.session  # noqa: PLC0415

        self._shown = shown
        self._errors = botocore.exceptions.BotoCoreError
        session = botocore.session.Session(profile=profile)
        try:
            self.region: str | None = session.get_config_variable("region")
            self._credentials = session.get_credentials()
        except self._errors as error:
            raise self._build_unusable_error(str(error)) from error
        if self._credentials is None:
            raise self._build_unusable_error("none found")
        self()  # raises now for expired or misspelt credentials, not at the first request

    def __call__(self) -> Any:
        """Return the credentials in obstore's form; obstore calls this before signing."""
        try:
            frozen = self._credentials.get_frozen_credentials()
        except self._errors as error:
            raise self._build_unusable_error(str(error)) from error
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LIFETIME,
        }

    def _build_unusable_error(self, reason: str) -> BackendError:
        """Build the error for unusable credentials; `reason` ends the message."""
        return BackendError(
            f"the credentials for {self._shown} cannot be used: {reason}",
            hint="Set AWS_PROFILE or the URL's profile, run `aws sso login`, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )


def open_google_bucket(address: Address, environ: Mapping[str, str]) -> Objects:
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


# The account and address of Azurite, Microsoft's emulator.
_EMULATOR = ("devstoreaccount1", "localhost:10000")


def open_azure_bucket(address: Address, environ: Mapping[str, str]) -> Objects:
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
    """Return the URL of an Azure storage account; emulators have the account in the path."""
    local = address.get_bool("localemu")
    domain = address.get_text("domain") or (_EMULATOR[1] if local else "blob.core.windows.net")
    protocol = address.get_text("protocol") or ("http" if local else "https")
    return f"{protocol}://{domain}/{account}" if local else f"{protocol}://{account}.{domain}"


OPENERS: Final[Mapping[str, Callable[[Address, Mapping[str, str]], Objects]]] = {
    "s3": open_s3_bucket,
    "gs": open_google_bucket,
    "azblob": open_azure_bucket,
}
"""The functions that open a bucket, by the scheme of its URL."""
