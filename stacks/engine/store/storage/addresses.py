"""Parse backend URLs, with the parameters of Pulumi and of its Go library, and open storages.

`Backend.open` calls `open_storage`, which opens a folder or one of the modules for buckets.
"""

import importlib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from gpuform.providers.context import READS_ONLY
from gpuform.stacks.engine.machine import get_pip_requirement
from gpuform.stacks.engine.store.backend_files import BackendError
from gpuform.stacks.engine.store.storage.files import Files, ReadOnlyStorage
from gpuform.stacks.engine.store.storage.protocol import Storage

_CLOUDS = {"s3": "s3", "gs": "google", "azblob": "azure"}
_SUPPORTED = (
    "Use file://DIRECTORY, file://~ for your home folder, s3://BUCKET, gs://BUCKET or "
    "azblob://CONTAINER, or the Pulumi CLI."
)
# As Go's ParseBool reads them.
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


@dataclass(frozen=True, slots=True)
class Address:
    """A bucket's URL in parts.

    `display_url` is the URL without parameters and password, for messages.
    """

    bucket: str
    prefix: str
    display_url: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def get_text(self, *names: str) -> str | None:
        """Return the value of the first given parameter, or None."""
        return next((self.parameters[name] for name in names if name in self.parameters), None)

    def get_bool(self, *names: str) -> bool:
        """Return True if the first given parameter is true, False if none is given.

        Raises:
            BackendError: the parameter is no boolean.
        """
        setting = self.get_text(*names)
        if setting is None:
            return False
        if setting.lower() not in _BOOLEANS:
            raise BackendError(
                f"the backend {self.display_url} has {names[0]}={setting}",
                hint="Write true or false.",
            )
        return _BOOLEANS[setting.lower()]

    def reject_unknown_parameters(self, known: Collection[str]) -> None:
        """Raise BackendError for a parameter that is not in `known`."""
        for name in self.parameters:
            if name not in known:
                close_matches = get_close_matches(name, known, n=1)
                suggestion = f"Did you mean {close_matches[0]}? " if close_matches else ""
                raise BackendError(
                    f"the backend {self.display_url} has an unknown parameter: {name}",
                    hint=f"{suggestion}Parameters: {', '.join(sorted(known))}.",
                )


def open_storage(url: str, environ: Mapping[str, str]) -> Storage:
    """Open the storage of a URL, read-only where the environment says so.

    Raises:
        BackendError: the URL names no usable storage, or the storage's library is not installed.
    """
    opened = _open_writable_storage(url, environ)
    return ReadOnlyStorage(opened) if environ.get(READS_ONLY) else opened


def _open_writable_storage(url: str, environ: Mapping[str, str]) -> Storage:
    """Open the folder or bucket of the URL. Raises BackendError."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme == "file":
        return Files(_find_folder(url))
    if not separator or scheme not in _CLOUDS:
        raise BackendError(
            f"gpuform does not support the backend {strip_credentials(url)} "
            f"({urlsplit(url).scheme or 'no scheme'})",
            hint=_SUPPORTED,
        )
    try:
        # Clients of buckets are an optional dependency and slow to import.
        module = importlib.import_module(f"gpuform.stacks.engine.store.storage.{_CLOUDS[scheme]}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package != "obstore":
            raise
        raise BackendError(
            f"the backend {strip_credentials(url)} requires the package {package}",
            hint=f"Install it: pip install '{get_pip_requirement('cloud')}'",
        ) from error
    opened: Storage = module.open_bucket(_parse_address(url), environ)
    return opened


def anchor_file_url(url: str, folder: Path) -> str:
    """Return the URL with a relative `file://` path made absolute from `folder`."""
    path, is_query, query = url.removeprefix("file://").partition("?")
    if not url.startswith("file://") or path.startswith(("/", "~")):
        return url
    absolute_path = os.path.normpath(folder / unquote(path))
    return f"file://{quote(absolute_path)}{is_query}{query}"


def strip_credentials(url: str) -> str:
    """Return a URL without user, password and query, which may hold keys."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


def _parse_address(url: str) -> Address:
    """Parse the URL of a bucket. Raises BackendError without a bucket or with credentials in it."""
    parts = urlsplit(url)
    parameters = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    prefix = "/".join(
        filter(None, [parts.path.strip("/"), parameters.pop("prefix", "").strip("/")])
    )
    display_url = strip_credentials(url).rstrip("/")
    if not parts.hostname or parts.username or parts.password:
        raise BackendError(
            f"the backend {display_url} has no bucket",
            hint=f"Write {parts.scheme}://BUCKET/PREFIX. Credentials do not belong in the URL.",
        )
    return Address(parts.netloc, prefix, f"{parts.scheme}://{parts.netloc}/{prefix}", parameters)


def _find_folder(url: str) -> Path:
    """Return the existing folder of a `file://` URL. Raises BackendError."""
    path = unquote(url.removeprefix("file://").partition("?")[0])
    home = path == "~" or path.startswith("~/")
    root = Path.home() / path[2:] if home else Path.cwd() / path
    if not root.is_dir():
        raise BackendError(
            f"the folder {root} of the backend {url} does not exist",
            hint="Create it, or check PULUMI_BACKEND_URL and backend.url in Pulumi.yaml.",
        )
    return root
