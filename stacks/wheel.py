"""The gpuform that runs, as a wheel: for places that have no package index with it."""

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

NAME: Final = "gpuform"
FOLDER: Final = "wheels"
"""Where a project keeps it."""
_ROOMS: Final = ("docs", "schemas", "providers", "stacks")
_DATA: Final = (
    "docs/*.md",
    "docs/*/*.md",
    "docs/*/*/*.md",
    "docs/*/*/*/*.md",
    "py.typed",
    "schemas/topology.schema.json",
    "providers/plugin/schema.json",
    "stacks/*/templates/*",
    "stacks/templates/*/*",
    "stacks/workflows/*/*",
)
"""What belongs to the packages beside their modules."""
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # so that the same gpuform is the same file


def wheel_name() -> str:
    """The file's name, which says the version."""
    return f"{NAME}-{importlib.metadata.version(NAME)}-py3-none-any.whl"


def write_wheel(folder: Path) -> Path:
    """Writes it into a folder, in the place of any other version; the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.glob(f"{NAME}-*.whl"):
        other.unlink()
    files = dict(_files())
    about = f"{NAME}-{importlib.metadata.version(NAME)}.dist-info"
    files |= {f"{about}/{name}": text.encode() for name, text in _about()}
    lines = [_record(name, data) for name, data in sorted(files.items())]
    record = f"{about}/RECORD"
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    path = folder / wheel_name()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(entry, data)
    return path


def _files() -> Iterator[tuple[str, bytes]]:
    """The packages' files, wherever the rooms are: a clone has them side by side."""
    for room in _ROOMS:
        for root in map(Path, import_module(f"{NAME}.{room}").__path__):
            for path in sorted(root.rglob("*")):
                inner = Path(room) / path.relative_to(root)
                if path.is_file() and (path.suffix == ".py" or any(map(inner.match, _DATA))):
                    yield f"{NAME}/{inner.as_posix()}", path.read_bytes()


def _about() -> Iterator[tuple[str, str]]:
    found = importlib.metadata.distribution(NAME)
    yield "METADATA", str(found.read_text("METADATA") or found.read_text("PKG-INFO"))
    yield (
        "WHEEL",
        "Wheel-Version: 1.0\nGenerator: gpuform\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    groups = sorted({each.group for each in found.entry_points})
    yield (
        "entry_points.txt",
        "\n".join(
            f"[{group}]\n"
            + "".join(f"{e.name} = {e.value}\n" for e in found.entry_points.select(group=group))
            for group in groups
        ),
    )
    licence = found.read_text("licenses/LICENSE")
    if licence:
        yield "licenses/LICENSE", licence


def _record(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"
