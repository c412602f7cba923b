"""Require gpuform in a project for the jobs of CI: by name from an index, or as a wheel in git.

`gpuform new ci` calls `choose_requirements` and writes the result. With a name, `uv` writes a lock
file with the version and the hash of each package. A gpuform that was not installed from an index
is written into the project as a wheel: on an index, anybody could publish another package under its
name and version.
"""

import base64
import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuform.schemas.errors import EngineError

_DISTRIBUTION: Final = "gpuform"
WHEEL_FOLDER: Final = "wheels"
"""The folder of the wheel in a project."""
_PACKAGES: Final = ("docs", "schemas", "providers", "stacks")
_DATA_PATTERNS: Final = (
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
"""The packages' files beside the modules."""
_FILE_TIME: Final = (1980, 1, 1, 0, 0, 0)  # ZIP's earliest time


def build_wheel_name() -> str:
    """Return the file name of the wheel, which contains the version."""
    return f"{_DISTRIBUTION}-{importlib.metadata.version(_DISTRIBUTION)}-py3-none-any.whl"


def write_with_line_breaks(file: Path, text: str) -> None:
    """Write a text into a file with the line breaks that the file has; a new one gets `\\n`.

    Raises:
        OSError: the file cannot be read or written.
    """
    existing_bytes = file.read_bytes() if file.exists() else b""
    line_break = "\r\n" if b"\r\n" in existing_bytes else "\n"
    file.write_text(text, encoding="utf-8", newline=line_break)


def write_wheel(folder: Path) -> Path:
    """Write the wheel into a folder, in place of any other version; return the path.

    Equal versions give equal bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.glob(f"{_DISTRIBUTION}-*.whl"):
        other.unlink()
    files = dict(_iterate_package_files())
    metadata_folder = f"{_DISTRIBUTION}-{importlib.metadata.version(_DISTRIBUTION)}.dist-info"
    files |= {
        f"{metadata_folder}/{name}": content.encode() for name, content in _iterate_metadata()
    }
    lines = [_render_record_line(name, data) for name, data in sorted(files.items())]
    record_path = f"{metadata_folder}/RECORD"
    # The wheel format lists RECORD itself without digest and length.
    files[record_path] = "".join([*lines, f"{record_path},,\n"]).encode()
    path = folder / build_wheel_name()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, data in sorted(files.items()):
            # A fixed time and mode, so that the same gpuform gives the same bytes.
            entry = zipfile.ZipInfo(name, _FILE_TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(entry, data)
    return path


def _iterate_package_files() -> Iterator[tuple[str, bytes]]:
    """Yield the packages' files, wherever the packages are: a clone has them side by side."""
    for package in _PACKAGES:
        for root in map(Path, import_module(f"{_DISTRIBUTION}.{package}").__path__):
            for path in sorted(root.rglob("*")):
                package_path = Path(package) / path.relative_to(root)
                if path.is_file() and (
                    path.suffix == ".py" or any(map(package_path.match, _DATA_PATTERNS))
                ):
                    yield f"{_DISTRIBUTION}/{package_path.as_posix()}", path.read_bytes()


def _iterate_metadata() -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files in the wheel's `.dist-info` folder, except RECORD."""
    distribution = importlib.metadata.distribution(_DISTRIBUTION)
    # A clone in editable mode has an .egg-info folder, which has PKG-INFO instead.
    yield "METADATA", str(distribution.read_text("METADATA") or distribution.read_text("PKG-INFO"))
    yield (
        "WHEEL",
        "Wheel-Version: 1.0\nGenerator: gpuform\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    groups = sorted({entry_point.group for entry_point in distribution.entry_points})
    yield (
        "entry_points.txt",
        "\n".join(
            f"[{group}]\n"
            + "".join(
                f"{entry_point.name} = {entry_point.value}\n"
                for entry_point in distribution.entry_points.select(group=group)
            )
            for group in groups
        ),
    )
    licence = distribution.read_text("licenses/LICENSE")
    if licence:
        yield "licenses/LICENSE", licence


def _render_record_line(name: str, data: bytes) -> str:
    """Render the line of a file in the wheel's RECORD: name, SHA-256 and size."""
    # The wheel format wants URL-safe base64, without padding.
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


REQUIREMENTS_FILE: Final = "requirements.txt"
LOCK_FILE: Final = "requirements.lock"
UPGRADE_COMMAND: Final = "gpuform new ci --upgrade"
EMPTY_REQUIREMENTS: Final = """\
# Packages that the program needs. `gpuform new ci` adds gpuform itself, for the jobs of CI.
"""
_GPUFORM_LINE: Final = re.compile(
    rf"\s*({_DISTRIBUTION}\s*(\[[^\]]*\])?\s*([=<>~!@;#].*)?|\./{WHEEL_FOLDER}/{_DISTRIBUTION}-.*)"
)


class NotLocked(EngineError):
    """Raised if `uv` cannot lock the requirements of a project with hashes."""

    help_page = "start/upgrade"


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements of a project with gpuform, before they are written.

    `lock` None means that gpuform is a wheel in the project. `vendor_reason` says why, if nobody
    has asked for a wheel, and `remedy` what to do if locking has failed.
    """

    text: str
    lock: str | None = None
    vendor_reason: str | None = None
    remedy: str | None = None

    def write(self, project: Path) -> list[Path]:
        """Write the files, remove files of the other way to install, and return the written files.

        Raises:
            EngineError: a file cannot be written.
        """
        requirements, lock = project / REQUIREMENTS_FILE, project / LOCK_FILE
        try:
            if self.lock is None:
                if lock.is_file() and UPGRADE_COMMAND in lock.read_text(encoding="utf-8"):
                    lock.unlink()
                written = [write_wheel(project / WHEEL_FOLDER), requirements]
            else:
                _remove_wheels(project / WHEEL_FOLDER)
                write_with_line_breaks(lock, self.lock)
                written = [requirements, lock]
            write_with_line_breaks(requirements, self.text)
        except OSError as error:
            raise EngineError(f"{error.filename} cannot be written: {error.strerror}") from error
        return written


def choose_requirements(
    project: Path, extras: Iterable[str], environ: Mapping[str, str], *, vendor: bool | None = None
) -> Requirements:
    """Return the requirements of a project with the running gpuform; other requirements stay.

    With `vendor` gpuform is a wheel in the project, and without it a name that `uv` locks. None
    locks a gpuform that was installed from an index, and falls back on the wheel.

    Raises:
        NotLocked: `vendor` is False, and `uv` is missing or cannot lock the requirements.
        EngineError: requirements.txt cannot be read.
    """
    suffix = f"[{extra_names}]" if (extra_names := ",".join(extras)) else ""
    version = importlib.metadata.version(_DISTRIBUTION)
    vendored = _require(project, f"./{WHEEL_FOLDER}/{build_wheel_name()}{suffix}")
    if vendor:
        return Requirements(vendored)
    if vendor is None and not _is_installed_from_index():
        reason = f"{_DISTRIBUTION} {version} was not installed from a package index"
        return Requirements(vendored, vendor_reason=reason)
    requirements = _require(project, f"{_DISTRIBUTION}{suffix}=={version}")
    try:
        return Requirements(requirements, _compile_lock(project, requirements, environ))
    except NotLocked as error:
        if vendor is not None:
            raise
        return Requirements(vendored, vendor_reason=error.message, remedy=error.hint)


def _require(project: Path, line: str) -> str:
    """Return the text of a project's requirements with `line` as the line for gpuform."""
    file = project / REQUIREMENTS_FILE
    try:
        requirements = file.read_text(encoding="utf-8") if file.exists() else EMPTY_REQUIREMENTS
    except OSError as error:
        raise EngineError(f"{error.filename} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"{file} is not UTF-8 text (byte {error.start})") from error
    other_lines = [
        other_line
        for other_line in requirements.splitlines()
        if not _GPUFORM_LINE.fullmatch(other_line)
    ]
    return "\n".join([*other_lines, line]) + "\n"


def _is_installed_from_index() -> bool:
    """Return whether an installer found the running gpuform by name on an index."""
    distribution = importlib.metadata.distribution(_DISTRIBUTION)
    # PEP 610: an installer writes direct_url.json for a path, a URL and a repository alone.
    return bool(distribution.read_text("INSTALLER")) and not distribution.read_text(
        "direct_url.json"
    )


def _compile_lock(project: Path, requirements: str, environ: Mapping[str, str]) -> str:
    """Return requirements.lock for the text of requirements, by `uv`, with hashes.

    The index is the one of uv's own settings. Pins of an existing lock file stay where they can.

    Raises:
        NotLocked: `uv` is missing or fails, or a package has no hash.
    """
    program = _find_uv(environ)
    # Jobs run another Python and another system than the machine that writes the lock file.
    oldest_python = importlib.metadata.metadata(_DISTRIBUTION)["Requires-Python"].lstrip(">=")
    arguments = [
        *("pip", "compile", "-", "--quiet", "--no-annotate"),
        *("--universal", "--python-version", oldest_python, "--python", sys.executable),
        # No address of an index in git, whatever uv's settings say.
        *("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"),
        *("--custom-compile-command", UPGRADE_COMMAND),
    ]
    with TemporaryDirectory() as folder:
        lock = Path(folder, LOCK_FILE)
        if (project / LOCK_FILE).is_file():
            shutil.copyfile(project / LOCK_FILE, lock)
        ended = subprocess.run(  # noqa: S603 - uv, with fixed arguments
            [program, *arguments, "--output-file", lock],
            input=requirements,
            cwd=project,
            env=environ,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if ended.returncode:
            raise NotLocked(
                f"{project / REQUIREMENTS_FILE} cannot be locked: {_flatten(ended.stderr)}",
                hint="check the index in uv's settings (UV_DEFAULT_INDEX or uv.toml; uv does not "
                "read pip's), or keep a wheel in git: --vendor",
            )
        locked_requirements = lock.read_text(encoding="utf-8")
    _require_hashes(locked_requirements)
    return locked_requirements


def _find_uv(environ: Mapping[str, str]) -> str:
    """Return the `uv` which runs gpuform (`uvx`), else from the PATH, else beside Python.

    Raises:
        NotLocked: there is none.
    """
    beside_python = Path(sys.executable).parent
    programs = (
        environ.get("UV"),  # set by `uvx` and `uv run`
        shutil.which("uv", path=environ.get("PATH")),
        shutil.which("uv", path=beside_python),
    )
    program = next(filter(None, programs), None)
    if program is None:
        raise NotLocked(
            "uv is not installed, which writes requirements.lock",
            hint="install it: pip install uv; or keep a wheel in git: --vendor",
        )
    return program


def find_unlocked(project: Path) -> list[str]:
    """List the packages in a project's requirements.txt missing in its requirements.lock.

    Without a lock file the list is empty.

    Raises:
        OSError: a file cannot be read.
    """
    if not (project / LOCK_FILE).is_file() or not (project / REQUIREMENTS_FILE).is_file():
        return []
    required, locked = (
        set(_iterate_names((project / name).read_text(encoding="utf-8")))
        for name in (REQUIREMENTS_FILE, LOCK_FILE)
    )
    return sorted(required - locked)


def _iterate_names(requirements: str) -> Iterator[str]:
    """Yield the normalized names of required packages; flags, files and URLs have none."""
    for line in requirements.splitlines():
        try:
            yield canonicalize_name(Requirement(line.partition(" #")[0].rstrip("\\ ")).name)
        except InvalidRequirement:
            continue


def _require_hashes(lock: str) -> None:
    """Raise NotLocked if a requirement of a lock file has no hash, such as a repository's."""
    logical_lines = re.sub(r"\s*\\\n\s*", " ", lock).splitlines()
    for line in logical_lines:
        if line and not line.startswith("#") and "--hash=" not in line:
            raise NotLocked(
                f"{REQUIREMENTS_FILE}: {line} has no hash",
                hint="require a release of it from an index, or keep a wheel in git: --vendor",
            )


_MARKS_OF_UV: Final = re.compile("[\u00d7\u2570\u2500\u25b6\u2502]")


def _flatten(message: str) -> str:
    """Return a message of uv in one line, without marks, with the name of the read file."""
    message = message.replace("`-`", f"`{REQUIREMENTS_FILE}`")
    return re.sub(r"\s+", " ", _MARKS_OF_UV.sub(" ", message)).strip()


def _remove_wheels(folder: Path) -> None:
    """Remove gpuform's wheels from a folder, and the folder if nothing else is there."""
    for wheel in folder.glob(f"{_DISTRIBUTION}-*.whl"):
        wheel.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
