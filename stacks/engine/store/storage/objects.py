"""Store state in a bucket through obstore: Amazon S3, Google Cloud Storage, Azure Blob Storage.

The modules for the three clouds create `Objects`. Conditional writes keep two owners apart, so all
three must honour If-None-Match and If-Match (or Google's generations).
"""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import obstore
from obstore import exceptions
from obstore.store import ObjectStore

from gpuform.stacks.engine.state import Log
from gpuform.stacks.engine.store.lease import Lease
from gpuform.stacks.engine.store.segments import SegmentLog, UnsavedFile
from gpuform.stacks.engine.store.storage.protocol import (
    ABSENT,
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
        """Delete the objects that exist. Raises StorageFailed."""
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
        """Return the URL of an object, for messages."""
        return f"{self._display_url}/{name}"

    def get_name(self, where: str) -> str | None:
        """Return the name of the object at a URL, or None for another bucket's."""
        prefix = f"{self._display_url}/"
        return where.removeprefix(prefix) if where.startswith(prefix) else None

    def create_exclusion(self, name: str) -> Exclusion:
        """Create the lease that locks `name`, not yet taken."""
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
        """Raise StorageFailed if the error says that the bucket itself does not exist."""
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
