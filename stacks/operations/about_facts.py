"""Collect facts for `gpuform about`: versions, machine, project, backend and stack."""

import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import NoProject, Project, find_project
from gpuform.stacks.engine.stack import find_selected_stack, get_short_name
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import Backend, get_backend_url, get_user, strip_credentials
from gpuform.stacks.engine.urn import is_listed

Sections = Mapping[str, Mapping[str, Any]]


def collect_facts(directory: Path, environ: Mapping[str, str], stack: str | None) -> Sections:
    """Return facts by section and name, without a request to a platform.

    A fact that cannot be read is an `error` in its section. Of the environment only the names of
    PULUMI_ and GPUFORM_ variables are returned. `stack` is the name of a stack, or None for the
    selected one.
    """
    sections: dict[str, dict[str, Any]] = {
        "gpuform": {
            "version": version("gpuform"),
            "pulumi_sdk": version("pulumi"),
            "python": f"{platform.python_version()} ({sys.executable})",
        },
        "host": {"os": platform.platform(), "architecture": platform.machine()},
    }
    try:
        project = find_project(directory)
    except NoProject:
        project = None
    except EngineError as error:
        project = None
        sections["project"] = {"error": error.message}
    if project is not None:
        sections["project"] = {"name": project.name, "file": str(project.path)}
    sections["backend"] = {"url": describe_user(project, environ)["url"], "user": get_user()}
    if project is not None:
        sections["stack"] = dict(_iterate_stack_facts(project, environ, stack))
    # Names only: PULUMI_CONFIG_PASSPHRASE is among these variables.
    set_variables = sorted(name for name in environ if name.startswith(("PULUMI_", "GPUFORM_")))
    sections["environment"] = {"set": set_variables}
    return sections


def describe_user(project: Project | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `user` and the backend's `url`, under the names in `pulumi whoami --json`.

    The URL has no credentials. None as `project` means that the folder has no project.
    """
    return {"user": get_user(), "url": strip_credentials(get_backend_url(environ, project))}


def _iterate_stack_facts(
    project: Project, environ: Mapping[str, str], stack: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the facts of the stack's state, or an `error` if there is no readable stack."""
    try:
        name = get_short_name(project, stack) if stack else find_selected_stack(project, environ)
    except EngineError as error:
        yield "error", error.message
        return
    if name is None:
        yield "error", "no stack is selected"
        return
    yield "name", name
    try:
        # Read without opening the stack: a report of facts asks for no passphrase.
        data = Backend.open(get_backend_url(environ, project), environ).read(project.name, name)
        latest = None if data is None else load_checkpoint(data).latest
    except EngineError as error:
        yield "error", error.message
        return
    if latest is None:
        yield "error", "the stack does not exist"
        return
    yield "resources", sum(map(is_listed, latest.get("resources") or []))
    yield "pending_operations", len(latest.get("pending_operations") or [])
    yield "last_update", (latest.get("manifest") or {}).get("time", "")
