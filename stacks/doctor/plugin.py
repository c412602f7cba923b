"""Examine the provider plugin as the Pulumi CLI finds and starts it."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Final

import grpc
from google.protobuf.empty_pb2 import Empty as Nothing
from packaging.version import InvalidVersion
from pulumi.runtime.proto import provider_pb2_grpc

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin.launchers import find_interpreter
from gpuform.providers.plugin.locations import (
    COMMAND,
    IGNORE_AMBIENT_VARIABLE,
    InstalledPlugin,
    find_executable,
    find_plugin_on_path,
    find_project_plugin,
    get_plugin_version,
    get_plugins_folder,
    is_windows_path,
    list_installed_plugins,
)
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.doctor.environment import newer_cli
from gpuform.stacks.doctor.findings import Examination, Finding, Level

LIMIT_SECONDS: Final = 30.0
_INSTALL_HINT: Final = "gpuform plugin install"
_TEXT: Final = 300


def version_of(program: Path, environ: Mapping[str, str], limit: float = LIMIT_SECONDS) -> str:
    """The version that a plugin says it has; its process is ended.

    Raises GpuformError when it cannot be started, prints something before its port, ends, or does
    not answer in time.
    """
    with _started(program, environ) as process:
        return _asked(_port(process, program, limit), program, limit)


@contextmanager
def _started(program: Path, environ: Mapping[str, str]) -> "Iterator[subprocess.Popen[str]]":
    try:
        process = subprocess.Popen(  # noqa: S603 - the program that the CLI would start
            [str(program)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise GpuformError(
            f"{program} cannot be started: {error.strerror or error}", hint=_INSTALL_HINT
        ) from None
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _port(process: "subprocess.Popen[str]", program: Path, limit: float) -> int:
    assert process.stdout  # noqa: S101 - it is a pipe
    lines: Queue[str] = Queue()
    threading.Thread(target=lambda: lines.put(_line(process)), daemon=True).start()
    try:
        first = lines.get(timeout=limit)
    except Empty:
        raise GpuformError(
            f"{program} has not told its port after {limit:g} s", hint=_INSTALL_HINT
        ) from None
    if not first:
        raise GpuformError(
            f"{program} ended before it told its port{_why(process)}", hint=_INSTALL_HINT
        )
    told = first.strip()
    if not told.isdecimal():
        raise GpuformError(
            f"{program} prints before its port: {escape_invisible(told[:_TEXT])!r}. "
            "Pulumi takes the first line for the port",
            hint="find what prints when Python starts there (sitecustomize.py, a .pth file, "
            "PYTHONSTARTUP), and have it print to standard error",
        )
    return int(told)


def _line(process: "subprocess.Popen[str]") -> str:
    return process.stdout.readline() if process.stdout else ""


def _why(process: "subprocess.Popen[str]") -> str:
    """The last line of what it complained of."""
    lines = process.stderr.read().strip().splitlines() if process.stderr else []
    return f": {escape_invisible(lines[-1][:_TEXT])}" if lines else ""


def _asked(port: int, program: Path, limit: float) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asking = provider_pb2_grpc.ResourceProviderStub(channel)
        try:
            answer = asking.GetPluginInfo(Nothing(), timeout=limit, wait_for_ready=True)
        except grpc.RpcError as error:
            said = error.details() or error.code().name
            raise GpuformError(
                f"{program} listens on port {port} and does not answer GetPluginInfo: "
                f"{escape_invisible(said[:_TEXT])}",
                hint=_INSTALL_HINT,
            ) from None
    return str(answer.version)


AREA: Final = "plugin"
_INSTALL: Final = "run `gpuform plugin install`"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the plugin is looked for, and how it is asked for its version."""

    environ: Mapping[str, str]
    project: Path | None = None
    """The Pulumi.yaml of the current folder, which may name a plugin of its own."""
    windows: bool = os.name == "nt"
    ask: Callable[[Path, Mapping[str, str]], str] = field(default=version_of)


def examine_plugin(around: Surroundings) -> list[Finding]:
    """Everything about the plugin, on the PATH and installed. Changes nothing."""
    exam = Examination()
    exam.look(AREA, partial(_plugin, around))
    return exam.findings


def _plugin(around: Surroundings) -> Iterator[Finding]:
    project = around.project
    named = find_project_plugin(project) if project else None
    if project is None or named is None:
        yield from _of_machine(around)
        return
    yield Finding(AREA, Level.NOTE, f"{project} names the plugin in {named}")
    if not around.windows and is_windows_path(named):
        yield _problem(
            f"{project} names {named}, a path of Windows",
            "name it relative to Pulumi.yaml, with /, or leave it out after `gpuform plugin "
            "install`",
        )
    else:
        yield from _of_folder(project.parent / named, around)


def _of_machine(around: Surroundings) -> Iterator[Finding]:
    plugins = get_plugins_folder(around.environ, windows=around.windows)
    there = list_installed_plugins(plugins)
    yield from newer_cli(AREA, around.environ)
    for each in there:
        if each.partial.exists():
            yield _problem(
                f"{each.folder} is not finished: an installation was interrupted, and Pulumi "
                "passes it over",
                f"{_INSTALL}, or `gpuform plugin uninstall {each.version}`",
            )
    finished = [each for each in there if not each.partial.exists()]
    ambient = find_plugin_on_path(around.environ)
    if ambient is not None:
        yield Finding(
            AREA,
            Level.WARNING,
            f"Pulumi takes {ambient}, which is on the PATH, before all that is installed, and "
            "warns of it in each run",
            f"deactivate the virtualenv that has it, or set {IGNORE_AMBIENT_VARIABLE}=true",
        )
        yield from _works(ambient, around)
    elif finished:
        yield from _chosen(finished, around)
    else:
        yield _problem(
            f"the plugin is not installed: {plugins} has none, and Pulumi would look for one on "
            "the internet",
            _INSTALL,
        )


def _chosen(finished: list[InstalledPlugin], around: Surroundings) -> Iterator[Finding]:
    *others, chosen = finished
    for each in others:
        yield Finding(AREA, Level.NOTE, f"{each.folder} is there, too: Pulumi takes the newest")
    yield from _of_folder(chosen.folder, around, chosen)


def _of_folder(
    folder: Path, around: Surroundings, chosen: InstalledPlugin | None = None
) -> Iterator[Finding]:
    program = find_executable(folder, windows=around.windows)
    if program is None:
        yield _problem(f"{folder} {_lacks(folder, around)}", _INSTALL)
        return
    yield from _works(program, around, chosen)


def _lacks(folder: Path, around: Surroundings) -> str:
    """What is wrong with a folder that has nothing to start."""
    other = find_executable(folder, windows=not around.windows)
    if other is None:
        return f"has no {COMMAND}"
    if around.windows:
        return f"has {other.name}, and Windows starts {COMMAND}.exe or {COMMAND}.cmd alone"
    return f"has {other.name}, which is made for Windows, and no {COMMAND}"


def _works(
    program: Path, around: Surroundings, chosen: InstalledPlugin | None = None
) -> Iterator[Finding]:
    python = find_interpreter(program.read_bytes())
    wrong = next(_unusable(program, python, around), None)
    if wrong is not None:
        yield wrong
        return
    ours, told = get_plugin_version(), around.ask(program, around.environ)
    try:
        theirs = get_plugin_version(told)
    except InvalidVersion:
        yield _problem(f"{program} says that its version is {escape_invisible(told)!r}", _INSTALL)
        return
    place = f"{program} is gpuform {theirs}"
    if theirs != ours:
        remedy = _INSTALL
        if chosen is None:
            remedy = "take the plugin of this gpuform: activate its virtualenv, or none"
        elif chosen.version not in (ours, theirs):
            remedy += f", then `gpuform plugin uninstall {chosen.version}`"
        elif chosen.version == theirs:
            remedy += f", then `gpuform plugin uninstall {theirs}` if Pulumi shall not take it"
        yield _problem(f"{place}, and this is gpuform {ours}", remedy)
    elif chosen is not None and chosen.version != theirs:
        yield _problem(
            f"{place}, and its folder says {chosen.version}",
            f"{_INSTALL}, then `gpuform plugin uninstall {chosen.version}`",
        )
    else:
        yield Finding(AREA, Level.OK, f"{place}, and answers")


def _unusable(program: Path, python: str | None, around: Surroundings) -> Iterator[Finding]:
    """What keeps it from being started at all."""
    if not around.windows and not os.access(program, os.X_OK):
        yield _problem(f"{program} may not be executed", f"chmod u+x '{program}', or {_INSTALL}")
    if python is None:
        return
    if not around.windows and is_windows_path(python):
        yield _problem(f"{program} starts {python}, a path of Windows", _INSTALL)
    elif not Path(python).exists():
        yield _problem(
            f"{program} starts {python}, which is not there: the virtualenv that it was installed "
            "from was moved or deleted",
            f"in the environment that has gpuform now, {_INSTALL}",
        )


def _problem(text: str, remedy: str) -> Finding:
    return Finding(AREA, Level.PROBLEM, text, remedy)
