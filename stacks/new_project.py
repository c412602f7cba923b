"""Create new projects from the templates in `templates/`, for `gpuform new`."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gpuform import schemas
from gpuform.providers.platform import list_own_platforms, platforms
from gpuform.schemas.errors import EngineError
from gpuform.stacks.ci_requirements import EMPTY_REQUIREMENTS, REQUIREMENTS_FILE
from gpuform.stacks.engine.project import NAME, yaml_text

_TEMPLATES: Final = Path(__file__).parent / "templates"
_SCHEMA: Final = ".gpuform/topology.schema.json"
_SCHEMA_LINE: Final = f"# yaml-language-server: $schema={_SCHEMA}\n"
_MAIN: Final = """\
\"\"\"Run the topology with gpuform, so that `pulumi up` works here as well.\"\"\"

from gpuform.stacks import run

run("topology.yaml")
"""
_IGNORED: Final = """\
.gpuform/
.pulumi/
__pycache__/
"""


class ProjectExists(EngineError):
    """Raised if files exist where the project would be written."""

    help_page = "start/first-stack"


def list_templates() -> dict[str, str]:
    """Return the description of each template by name."""
    return {folder.name: _read_description(folder) for folder in sorted(_TEMPLATES.iterdir())}


def derive_project_name(directory: Path) -> str:
    """Return the folder's name as a valid project name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", directory.resolve().name).strip("-")[:100]
    return name or "project"


def render_project(template: str, name: str, description: str, *, python: bool) -> dict[str, str]:
    """Return the files of a new project: name -> text.

    `python` makes a Python program instead of a topology; an empty description is the template's.

    Raises:
        EngineError: there is no such template, or the name is not valid.
    """
    if template not in list_templates():
        similar_names = get_close_matches(template, list_templates(), n=1)
        suggestion = f"did you mean {similar_names[0]}? " if similar_names else ""
        raise EngineError(
            f"unknown template '{template}'",
            hint=f"{suggestion}`gpuform new` lists the templates",
        )
    if not NAME.fullmatch(name):
        raise EngineError(
            f"'{name}' is not a valid project name",
            hint="use 1 to 100 letters, digits, hyphens, underscores and dots: --name NAME",
        )
    folder = _TEMPLATES / template
    return {
        "Pulumi.yaml": _render_project_settings(name, description or _read_description(folder)),
        **(
            {"__main__.py": (folder / "program.py").read_text(encoding="utf-8")}
            if python
            else _render_topology(folder)
        ),
        f"tests/{template}.yaml": (folder / "tests.yaml").read_text(encoding="utf-8"),
        REQUIREMENTS_FILE: EMPTY_REQUIREMENTS,
        ".gitignore": _IGNORED,
    }


def write_project(directory: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Write the files; the folder is created if missing.

    With `force` files of these names are replaced, and others stay.

    Raises:
        ProjectExists: the folder has visible files, or one of these names, and `force` is not set.
            Nothing is written.
    """
    if not force:
        _require_empty_folder(directory)
    write_files(directory, files, force=force)


def write_files(
    directory: Path,
    files: Mapping[str, str],
    *,
    force: bool,
    hint: str = "rerun the command and pass --force to accept and create",
) -> None:
    """Write the files into a folder, which may have other files.

    `hint` is that of the error about existing files.

    Raises:
        ProjectExists: a file of these names exists, and `force` is not set. Nothing is written.
        EngineError: a file cannot be written.
    """
    if not force:
        existing_names = [name for name in files if (directory / name).exists()]
        if existing_names:
            lines = "".join(f"\n  overwrite   {name}" for name in existing_names)
            raise ProjectExists(
                f"creating this template will make changes to existing files:{lines}", hint=hint
            )
    try:
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            # With the line breaks of Windows, a shared project would differ between machines.
            (directory / name).write_text(content, encoding="utf-8", newline="\n")
    except OSError as error:
        raise EngineError(f"{error.filename} cannot be written: {error.strerror}") from error


def _require_empty_folder(directory: Path) -> None:
    """Raise ProjectExists if the path is a file, or a folder with visible files.

    A missing folder is allowed.
    """
    if directory.exists() and not directory.is_dir():
        raise ProjectExists(f"{directory} is not a folder", hint="choose another one with --dir")
    if any(_list_visible_files(directory)):
        raise ProjectExists(
            f"{directory.resolve()} is not empty",
            hint="rerun in an empty directory, pass the path to an empty directory to --dir, "
            "or use --force",
        )


def _list_visible_files(directory: Path) -> Iterator[Path]:
    """Yield the files and folders in a folder, without hidden ones; nothing without a folder."""
    if directory.is_dir():
        # A folder with nothing but `.git` counts as empty.
        yield from (path for path in directory.iterdir() if not path.name.startswith("."))


def _read_description(folder: Path) -> str:
    """Return the first comment of the template's topology."""
    first_line = (folder / "topology.yaml").read_text(encoding="utf-8").partition("\n")[0]
    return first_line.removeprefix("#").strip().removesuffix(".")


def _render_project_settings(name: str, description: str) -> str:
    """Render the Pulumi.yaml of a Python project whose state is stored in the project's folder."""
    return yaml_text.dump(
        {
            "name": name,
            "description": description,
            "runtime": "python",
            # With a backend beside the project, the first run needs no account.
            "backend": {"url": "file://."},
        }
    )


def _render_topology(folder: Path) -> dict[str, str]:
    """Return the files of a topology project by name: topology, program and JSON Schema."""
    topology = (folder / "topology.yaml").read_text(encoding="utf-8")
    return {
        "topology.yaml": _SCHEMA_LINE + topology,
        "__main__.py": _MAIN,
        _SCHEMA: _render_schema(),
    }


def link_schema(directory: Path) -> Path:
    """Write the file by which editors find the schema of topologies; return the path."""
    write_files(directory, {_SCHEMA: _render_schema()}, force=True)
    return directory / _SCHEMA


def _render_schema() -> str:
    """Return a reference to the schema of the installed release.

    With platforms of other distributions, return the complete schema.
    """
    if platforms().keys() != list_own_platforms().keys():
        from gpuform.stacks.json_schema import render_topology_schema  # noqa: PLC0415 - rarely

        return render_topology_schema()
    installed = Path(schemas.__path__[0], "topology.schema.json").resolve()
    # A copy of the schema would be outdated after the next update of gpuform.
    return json.dumps({"$ref": installed.as_uri()}) + "\n"
