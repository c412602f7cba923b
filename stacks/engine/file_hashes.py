"""Hash the files among a program's values exactly as the Pulumi CLI does.

The resource monitor adds the hashes to inputs and outputs, so that the state shows when the content
of a file changes. The hash of an asset is the SHA-256 of its bytes. The hash of an archive is the
SHA-256 of its file, or else of a tar of its members, which must equal Go's to the byte
("sdk/go/common/resource/archive" and "archive/tar" of the CLI's sources).
"""

import hashlib
import io
import os
import posixpath
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpuform.providers.values import Archive, Asset, PropertyMap, PropertyValue, Secret
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import convert_leaves

_ARCHIVES: Final = (".tar", ".tgz", ".tar.gz", ".zip", ".jar")
_FOLDER_OF_PULUMI: Final = ".pulumi"
"""Files and folders of this name are no part of an archive of a folder."""

_BLOCK: Final = 512
# Fields of the ustar header.
_NAME_LENGTH, _PREFIX_LENGTH = 100, 155
_FETCH_TIMEOUT_S: Final = 60.0

Member = tuple[str, bytes]


def add_file_hashes(properties: PropertyMap) -> PropertyMap:
    """Return the properties with a hash in each asset and archive, members of archives included.

    Files inside secrets count, and an existing hash is kept. Relative paths start at the current
    folder, which is the program's.

    Raises:
        EngineError: a file cannot be read, or a folder or file is no archive.
    """
    hashed: PropertyMap = convert_leaves(properties, _add_hash)
    return hashed


def _add_hash(leaf: PropertyValue) -> PropertyValue:
    """Return a file with a hash, and a secret with the hashes of the files inside."""
    if isinstance(leaf, Secret):
        return replace(leaf, value=convert_leaves(leaf.value, _add_hash))
    return _hash_file(leaf) if isinstance(leaf, Asset | Archive) else leaf


def _hash_file(file: Asset | Archive) -> Asset | Archive:
    """Return the file with a hash; an existing hash is kept."""
    if isinstance(file, Archive) and file.assets is not None:
        assets = {name: _hash_file(member) for name, member in file.assets.items()}
        file = replace(file, assets=assets)
    if file.hash:
        return file
    if isinstance(file, Asset) or _is_packed(file):
        return replace(file, hash=_compute_sha256(_read_content(file)))
    return replace(file, hash=_compute_sha256(_build_tar(_list_members(file))))


def _compute_sha256(content: bytes) -> str:
    """Return the SHA-256 digest of the content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _read_content(file: Asset | Archive) -> bytes:
    """Return the bytes of an asset's text, or of the file or URL of an asset or packed archive.

    Raises EngineError if they cannot be read.
    """
    if isinstance(file, Asset) and file.text is not None:
        return file.text.encode()
    location = file.path or file.uri or ""
    try:
        if file.path:
            return Path(file.path).read_bytes()
        url = urllib.parse.urlsplit(location)
        if url.scheme == "file":
            return Path(urllib.parse.unquote(url.path)).read_bytes()
        if url.scheme not in ("http", "https"):
            raise _build_unreadable_error(
                location, f"{url.scheme}:// is not a supported URL scheme"
            )
        with urllib.request.urlopen(location, timeout=_FETCH_TIMEOUT_S) as answer:  # noqa: S310
            return bytes(answer.read())
    except urllib.error.URLError as error:
        raise _build_unreadable_error(location, str(error.reason)) from error
    except OSError as error:
        raise _build_unreadable_error(location, error.strerror or str(error)) from error


def _build_unreadable_error(location: str, reason: str) -> EngineError:
    """Build the error for an unreadable file or URL in the program."""
    return EngineError(
        f"the program's file {location} cannot be read: {reason}",
        hint=f"Correct the path or URL. Relative paths start at {Path.cwd()}.",
    )


def _is_packed(archive: Archive) -> bool:
    """Return True if the archive's name has the ending of a packed file, such as .zip."""
    location = archive.path or urllib.parse.urlsplit(archive.uri or "").path
    return location.endswith(_ARCHIVES)


def _list_members(archive: Archive) -> Iterator[Member]:
    """Yield the files of an archive in the order of the CLI, with names inside of the archive.

    As for the CLI, an archive whose folder is a symbolic link has no files. Raises EngineError if
    the archive has no members of its own and is neither a folder nor a packed file.
    """
    if archive.assets is not None:
        for name, member in sorted(archive.assets.items()):
            if isinstance(member, Asset):
                yield name, _read_content(member)
            else:
                for inner, content in _list_members(member):
                    yield posixpath.normpath(posixpath.join(name, inner)), content
    elif _is_packed(archive):
        yield from _unpack(archive)
    elif archive.path and Path(archive.path).is_dir():
        root = Path(archive.path)
        for path in () if root.is_symlink() else _walk_files(root):
            yield path.relative_to(root).as_posix(), _read_content(Asset(path=str(path)))
    else:
        location = archive.path or archive.uri or ""
        raise _build_unreadable_error(
            location, f"it is not a folder and does not end with {', '.join(_ARCHIVES)}"
        )


def _walk_files(folder: Path) -> Iterator[Path]:
    """Yield the files of the folder in Go's order, without Pulumi's own folder.

    Folders that are symbolic links are left out.
    """
    # Go sorts names by their bytes.
    for path in sorted(folder.iterdir(), key=lambda entry: os.fsencode(entry.name)):
        if path.name == _FOLDER_OF_PULUMI:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk_files(path)
        elif not path.is_dir():
            yield path


def _unpack(archive: Archive) -> Iterator[Member]:
    """Yield the files of a zip or tar archive. Raises EngineError for a damaged one.

    Links in a tar are left out.
    """
    location = archive.path or archive.uri or ""
    file = io.BytesIO(_read_content(archive))
    try:
        if location.endswith((".zip", ".jar")):
            with zipfile.ZipFile(file) as packed:
                for info in packed.infolist():
                    if not info.is_dir():
                        yield posixpath.normpath(info.filename), packed.read(info)
            return
        with tarfile.open(
            fileobj=file, mode="r" if location.endswith(".tar") else "r:gz"
        ) as packed:
            for member in packed:
                opened = packed.extractfile(member) if member.isreg() else None
                if opened is not None:
                    yield posixpath.normpath(member.name), opened.read()
    except (zipfile.BadZipFile, tarfile.TarError, OSError) as error:
        raise _build_unreadable_error(location, str(error)) from error


def _build_tar(members: Iterable[Member]) -> bytes:
    """Return the tar of the members, byte for byte as Go's tar.

    Of two members with the same name, only the first is included.
    """
    names: set[str] = set()
    blocks: list[bytes] = []
    for name, content in members:
        if name not in names:
            names.add(name)
            blocks += [*_build_headers(name, len(content)), _pad_to_block(content)]
    # A tar ends with two blocks of zeros.
    return b"".join([*blocks, bytes(2 * _BLOCK)])


def _pad_to_block(content: bytes) -> bytes:
    """Return the content with zeros up to a full block of a tar file."""
    return content + bytes(-len(content) % _BLOCK)


def _build_headers(name: str, size: int) -> Iterator[bytes]:
    """Yield the header of a file. Before it comes a PAX header if the name does not fit the fields.

    The name fits if it is ASCII and `_split_name` finds a split.
    """
    encoded = name.encode()
    prefix, short = _split_name(encoded)
    if name.isascii() and len(short) <= _NAME_LENGTH:
        yield _build_header(short, size, prefix=prefix)
        return
    folder, _, base = name.rpartition("/")
    beside = posixpath.normpath(posixpath.join(folder, "PaxHeaders.0", base))
    record = _build_pax_record(b"path", encoded)
    short_beside = _to_ascii(beside)[:_NAME_LENGTH].rstrip(b"/")
    yield _build_header(short_beside, len(record), kind=b"x", mode=0, has_devices=False)
    yield _pad_to_block(record)
    yield _build_header(_to_ascii(name), size)


def _split_name(name: bytes) -> tuple[bytes, bytes]:
    """Split a file's name into the two fields of a tar header: `prefix` and `name`.

    A name that fits the field `name` has an empty prefix. A longer name is split at the last slash
    that leaves a prefix of at most 155 bytes. If the rest is longer than 100 bytes, or there is no
    slash, the prefix is empty and the complete name is returned.
    """
    if len(name) > _NAME_LENGTH:
        slash = name.rfind(b"/", 0, min(len(name), _PREFIX_LENGTH + 1))
        if 0 < slash <= _PREFIX_LENGTH and 0 < len(name) - slash - 1 <= _NAME_LENGTH:
            return name[:slash], name[slash + 1 :]
    return b"", name


def _to_ascii(text: str) -> bytes:
    """Return the text in ASCII; other characters are left out."""
    return text.encode("ascii", "ignore")


def _build_pax_record(key: bytes, value: bytes) -> bytes:
    """Build the record `LENGTH KEY=VALUE`; LENGTH counts also the digits of LENGTH."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def _build_header(
    name: bytes,
    size: int,
    *,
    prefix: bytes = b"",
    kind: bytes = b"0",
    mode: int = 0o600,
    has_devices: bool = True,
) -> bytes:
    """Build a header block with checksum; user, group and time are 0."""
    devices = b"0000000\0" * 2 if has_devices else bytes(16)
    start = (
        name[:_NAME_LENGTH].ljust(_NAME_LENGTH, b"\0")
        + b"%07o\0" % mode
        + b"0000000\0" * 2  # user and group
        + b"%011o\0" % size
        + b"00000000000\0"  # the time of the change
    )
    end = (kind + bytes(100) + b"ustar\x0000" + bytes(64) + devices + prefix).ljust(
        _BLOCK - len(start) - 8, b"\0"
    )
    # The checksum counts its own field as eight spaces.
    checksum = sum(start) + sum(end) + 8 * ord(" ")
    return start + b"%06o\0 " % checksum + end
