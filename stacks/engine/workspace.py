"""Which stack of a project is selected, where the Pulumi CLI keeps it: both engines agree."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.stacks.engine.atomic import replace_file
from gpuform.stacks.engine.backend import full_name
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.value_json import load


def selected_stack(project: Project, environ: Mapping[str, str]) -> str | None:
    """The selected stack's short name: PULUMI_STACK, else what was selected, else None."""
    given = environ.get("PULUMI_STACK") or _read(_path(project, environ)).get("stack")
    return given.rsplit("/", 1)[-1] if isinstance(given, str) and given else None


def select_stack(project: Project, stack: str | None, environ: Mapping[str, str]) -> None:
    """Select a stack for this project's folder; None forgets the selection."""
    path = _path(project, environ)
    settings = _read(path)
    settings.pop("stack", None)
    if stack is not None:
        settings["stack"] = full_name(project.name, stack)
    try:
        if settings:
            replace_file(path, json.dumps(settings, indent=4).encode())
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise EngineError(
            f"the selected stack cannot be kept in {path}: {error.strerror}",
            hint="Name the stack with --stack, or set PULUMI_HOME to a folder you can write to.",
        ) from error


def _path(project: Project, environ: Mapping[str, str]) -> Path:
    """Pulumi's file for the project: its name holds the SHA-1 of the path of Pulumi.yaml."""
    home = environ.get("PULUMI_HOME")
    folder = Path(home) if home else Path.home() / ".pulumi"
    digest = hashlib.sha1(str(project.path).encode(), usedforsecurity=False).hexdigest()
    return folder / "workspaces" / f"{project.name}-{digest}-workspace.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # nothing is selected; a damaged file is replaced by the next selection
    return settings if isinstance(settings, dict) else {}
