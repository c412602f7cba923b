"""Backend URLs: which storage they name, in the words of Pulumi and of its Go library."""

import importlib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from gpuform.providers.context import READS_ONLY
from gpuform.stacks.engine.machine import requirement
from gpuform.stacks.engine.store.backend_files import BackendError
from gpuform.stacks.engine.store.storage.files import Files, ReadingOnly
from gpuform.stacks.engine.store.storage.protocol import Storage

_CLOUDS = {"s3": "s3", "gs": "google", "azblob": "azure"}
_SUPPORTED = (
    "Use file://DIRECTORY, file://~ for your home folder, s3://BUCKET, gs://BUCKET or "
    "azblob://CONTAINER, or the Pulumi CLI."
)
_TRUTHS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


@dataclass(frozen=True, slots=True)
class Address:
    """A bucket's URL in parts. `shown` has neither parameters nor a password."""

    bucket: str
    prefix: str
    shown: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def text(self, *names: str) -> str | None:
        """The first of these parameters that is there."""
        return next((self.parameters[name] for name in names if name in self.parameters), None)

    def truth(self, *names: str) -> bool:
        """Whether one of these parameters is true; BackendError for what is neither."""
        given = self.text(*names)
        if given is None:
            return False
        if given.lower() not in _TRUTHS:
            raise BackendError(
                f"the backend {self.shown} has {names[0]}={given}", hint="Write true or false."
            )
        return _TRUTHS[given.lower()]

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raises BackendError for a parameter that would have no effect."""
        for name in self.parameters:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                meant = f"Did you mean {near[0]}? " if near else ""
                raise BackendError(
                    f"the backend {self.shown} has a parameter that is not known: {name}",
                    hint=f"{meant}There are: {', '.join(sorted(known))}.",
                )


def open_storage(url: str, environ: Mapping[str, str]) -> Storage:
    """The storage of a URL. BackendError when there is none, or its library is not installed."""
    opened = _opened(url, environ)
    return ReadingOnly(opened) if environ.get(READS_ONLY) else opened


def _opened(url: str, environ: Mapping[str, str]) -> Storage:
    scheme, separator, _ = url.partition("://")
    if separator and scheme == "file":
        return Files(_folder_of(url))
    if not separator or scheme not in _CLOUDS:
        raise BackendError(
            f"the backend {without_credentials(url)} is of a kind that gpuform cannot use "
            f"({urlsplit(url).scheme or 'no scheme'})",
            hint=_SUPPORTED,
        )
    try:
        module = importlib.import_module(f"gpuform.stacks.engine.store.storage.{_CLOUDS[scheme]}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package != "obstore":
            raise
        raise BackendError(
            f"the backend {without_credentials(url)} needs the package {package}",
            hint=f"Install it: pip install '{requirement('cloud')}'",
        ) from error
    opened: Storage = module.open_bucket(_address(url), environ)
    return opened


def anchor(url: str, folder: Path) -> str:
    """The URL, the path of a relative `file://` one taken from this folder."""
    path, is_query, query = url.removeprefix("file://").partition("?")
    if not url.startswith("file://") or path.startswith(("/", "~")):
        return url
    whole = os.path.normpath(folder / unquote(path))
    return f"file://{quote(whole)}{is_query}{query}"


def without_credentials(url: str) -> str:
    """A URL as it may be shown: what stands before an @ is a password, a query may hold keys."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


def _address(url: str) -> Address:
    parts = urlsplit(url)
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    prefix = "/".join(filter(None, [parts.path.strip("/"), given.pop("prefix", "").strip("/")]))
    shown = without_credentials(url).rstrip("/")
    if not parts.hostname or parts.username or parts.password:
        raise BackendError(
            f"the backend {shown} names no bucket",
            hint=f"Write {parts.scheme}://BUCKET/PREFIX. Credentials do not belong into the URL.",
        )
    return Address(parts.netloc, prefix, f"{parts.scheme}://{parts.netloc}/{prefix}", given)


def _folder_of(url: str) -> Path:
    path = unquote(url.removeprefix("file://").partition("?")[0])
    home = path == "~" or path.startswith("~/")
    root = Path.home() / path[2:] if home else Path.cwd() / path
    if not root.is_dir():
        raise BackendError(
            f"the backend {url} names the folder {root}, which does not exist",
            hint="Create it, or check PULUMI_BACKEND_URL and backend.url in Pulumi.yaml.",
        )
    return root
