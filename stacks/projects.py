"""Create new projects from the templates in `templates/`, with requirements.txt and, where no
package index has it, gpuform's wheel.
"""

import base64
import hashlib
import importlib.metadata
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Final

from gpuform import schemas
from gpuform.providers.platform import list_own_platforms, platforms
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import NAME, yaml_text

_DISTRIBUTION: Final = "gpuform"
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
    return f"{_DISTRIBUTION}-{importlib.metadata.version(_DISTRIBUTION)}-py3-none-any.whl"


def write_wheel(folder: Path) -> Path:
    """Writes it into a folder, in the place of any other version; the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.glob(f"{_DISTRIBUTION}-*.whl"):
        other.unlink()
    files = dict(_files())
    about = f"{_DISTRIBUTION}-{importlib.metadata.version(_DISTRIBUTION)}.dist-info"
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
        for root in map(Path, import_module(f"{_DISTRIBUTION}.{room}").__path__):
            for path in sorted(root.rglob("*")):
                inner = Path(room) / path.relative_to(root)
                if path.is_file() and (path.suffix == ".py" or any(map(inner.match, _DATA))):
                    yield f"{_DISTRIBUTION}/{inner.as_posix()}", path.read_bytes()


def _about() -> Iterator[tuple[str, str]]:
    found = importlib.metadata.distribution(_DISTRIBUTION)
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


FILE: Final = "requirements.txt"
EMPTY: Final = f"""\
# What the program needs beside gpuform, which is on no package index: `gpuform new ci` puts its
# wheel into {FOLDER}/ and names it here.
"""
_OURS: Final = re.compile(
    rf"\s*({_DISTRIBUTION}\s*(\[[^\]]*\])?\s*([=<>~!@;#].*)?|\./{FOLDER}/{_DISTRIBUTION}-.*)"
)


def require_here(project: Path, extras: Iterable[str]) -> Iterator[Path]:
    """Has a project's requirements name the gpuform that runs, as a wheel in the project.

    What else they name stays. The files that were written. Raises EngineError.
    """
    file = project / FILE
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else EMPTY
        wheel = write_wheel(project / FOLDER)
        wanted = ",".join(extras)
        line = f"./{FOLDER}/{wheel.name}" + (f"[{wanted}]" if wanted else "")
        kept = [each for each in before.splitlines() if not _OURS.fullmatch(each)]
        file.write_text("\n".join([*kept, line]) + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise EngineError(f"{error.filename} cannot be written: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"{file} is not UTF-8 text (byte {error.start})") from error
    return iter((wheel, file))


_TEMPLATES: Final = Path(__file__).parent / "templates"
_SCHEMA: Final = ".gpuform/topology.schema.json"
_SCHEMA_LINE: Final = f"# yaml-language-server: $schema={_SCHEMA}\n"
_MAIN: Final = """\
\"\"\"Hands the topology to gpuform, so that `pulumi up` works here as well.\"\"\"

from gpuform.stacks import run

run("topology.yaml")
"""
_IGNORED: Final = """\
.gpuform/
.pulumi/
__pycache__/
"""


class ProjectExists(EngineError):
    """Something is where the project would be written."""

    help_page = "start/first-stack"


def templates() -> dict[str, str]:
    """Name -> what it makes, in a line."""
    return {folder.name: _description(folder) for folder in sorted(_TEMPLATES.iterdir())}


def project_name(directory: Path) -> str:
    """The folder's name, made valid."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", directory.resolve().name).strip("-")[:100]
    return name or "project"


def project_files(template: str, name: str, description: str, *, python: bool) -> dict[str, str]:
    """File name -> text. EngineError where there is no such template, or the name is not valid.

    `python` makes a Python program instead of a topology; an empty description is the template's.
    """
    if template not in templates():
        near = get_close_matches(template, templates(), n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise EngineError(
            f"there is no template '{template}'",
            hint=f"{meant}`gpuform new` lists the templates",
        )
    if not NAME.fullmatch(name):
        raise EngineError(
            f"'{name}' cannot be the name of a project",
            hint="use 1 to 100 letters, digits, hyphens, underscores and dots: --name NAME",
        )
    folder = _TEMPLATES / template
    return {
        "Pulumi.yaml": _settings(name, description or _description(folder)),
        **(_program(folder) if python else _topology(folder)),
        f"tests/{template}.yaml": (folder / "tests.yaml").read_text(encoding="utf-8"),
        FILE: EMPTY,
        ".gitignore": _IGNORED,
    }


def write_project(directory: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Writes the files; the folder is made where there is none.

    Without `force` ProjectExists before anything is written, where the folder has files, hidden
    ones apart, or one of these names; with it these files are replaced, and others stay.
    """
    if not force:
        _check_empty(directory)
    write_files(directory, files, force=force)


def write_files(directory: Path, files: Mapping[str, str], *, force: bool) -> None:
    """As `write_project`, into a folder that may have other files."""
    if not force:
        found = [name for name in files if (directory / name).exists()]
        if found:
            lines = "".join(f"\n  overwrite   {name}" for name in found)
            raise ProjectExists(
                f"creating this template will make changes to existing files:{lines}",
                hint="rerun the command and pass --force to accept and create",
            )
    try:
        for name, text in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise EngineError(f"{error.filename} cannot be written: {error.strerror}") from error


def _check_empty(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise ProjectExists(f"{directory} is not a folder", hint="name another one with --dir")
    if any(_visible(directory)):
        raise ProjectExists(
            f"{directory.resolve()} is not empty",
            hint="rerun in an empty directory, pass the path to an empty directory to --dir, "
            "or use --force",
        )


def _visible(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from (path for path in directory.iterdir() if not path.name.startswith("."))


def _description(folder: Path) -> str:
    """The first comment of its topology."""
    first = (folder / "topology.yaml").read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip().removesuffix(".")


def _settings(name: str, description: str) -> str:
    return yaml_text.dump(
        {
            "name": name,
            "description": description,
            "runtime": "python",
            "backend": {"url": "file://."},
        }
    )


def _program(folder: Path) -> dict[str, str]:
    return {"__main__.py": (folder / "program.py").read_text(encoding="utf-8")}


def _topology(folder: Path) -> dict[str, str]:
    text = (folder / "topology.yaml").read_text(encoding="utf-8")
    return {
        "topology.yaml": _SCHEMA_LINE + text,
        "__main__.py": _MAIN,
        _SCHEMA: _schema_reference(),
    }


def link_schema(directory: Path) -> Path:
    """Writes the file by which editors find the schema of topologies; returns its path."""
    write_files(directory, {_SCHEMA: _schema_reference()}, force=True)
    return directory / _SCHEMA


def _schema_reference() -> str:
    """A schema that is the one installed here, of this release; with other distributions'
    platforms, all of it."""
    if platforms().keys() != list_own_platforms().keys():
        from gpuform.stacks.json_schema.file_schemas import render_topology_schema  # noqa: PLC0415 - rarely

        return render_topology_schema()
    installed = Path(schemas.__path__[0], "topology.schema.json").resolve()
    return json.dumps({"$ref": installed.as_uri()}) + "\n"
