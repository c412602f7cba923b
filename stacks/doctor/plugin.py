"""Examine the provider plugin as the Pulumi CLI finds and starts it.

`gpuform plugin doctor` calls `examine_plugin`.
"""

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
from gpuform.providers.plugin.locations import (
    COMMAND,
    IGNORE_AMBIENT_VARIABLE,
    InstalledPlugin,
    find_executable,
    find_interpreter,
    find_plugin_on_path,
    find_project_plugin,
    get_plugin_version,
    get_plugins_folder,
    is_windows_path,
    list_installed_plugins,
)
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.doctor.findings import Examination, Finding, Level
from gpuform.stacks.doctor.machine_and_platforms import find_untested_cli

ANSWER_TIMEOUT_S: Final = 30.0
_INSTALL_HINT: Final = "gpuform plugin install"
_MAX_TEXT_LENGTH: Final = 300


def read_plugin_version(
    program: Path, environ: Mapping[str, str], timeout_s: float = ANSWER_TIMEOUT_S
) -> str:
    """Start a plugin, return the reported version, and end the process.

    Raises:
        GpuformError: the plugin cannot be started, prints anything before its port, ends, or does
            not answer within `timeout_s`.
    """
    with _start(program, environ) as process:
        return _request_version(_read_port(process, program, timeout_s), program, timeout_s)


@contextmanager
def _start(program: Path, environ: Mapping[str, str]) -> "Iterator[subprocess.Popen[str]]":
    """Start the plugin like the CLI, yield the process, and kill it at the end.

    Raises:
        GpuformError: the program cannot be started.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - the program that the CLI would start
            [str(program)],
            env=dict(environ),
            # The plugin must not read the user's input.
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
        # The plugin serves until it is killed, as under the CLI.
        process.kill()
        process.communicate()


def _read_port(process: "subprocess.Popen[str]", program: Path, timeout_s: float) -> int:
    """Return the port from the plugin's first line of output.

    Raises:
        GpuformError: the plugin prints nothing in time, ends, or prints anything else.
    """
    assert process.stdout  # noqa: S101 - it is a pipe
    lines: Queue[str] = Queue()
    # Reading a pipe has no timeout: a thread reads the line.
    threading.Thread(target=lambda: lines.put(_read_line(process)), daemon=True).start()
    try:
        first_line = lines.get(timeout=timeout_s)
    except Empty:
        raise GpuformError(
            f"{program} did not print its port within {timeout_s:g} s", hint=_INSTALL_HINT
        ) from None
    if not first_line:
        raise GpuformError(
            f"{program} ended before it printed its port{_read_last_error(process)}",
            hint=_INSTALL_HINT,
        )
    port_text = first_line.strip()
    if not port_text.isdecimal():
        printed = escape_invisible(port_text[:_MAX_TEXT_LENGTH])
        raise GpuformError(
            f"{program} prints before its port: {printed!r}. Pulumi reads the port from "
            "the first line",
            hint="find what prints at the start of Python there (sitecustomize.py, a .pth file, "
            "PYTHONSTARTUP), and make it print to standard error",
        )
    return int(port_text)


def _read_line(process: "subprocess.Popen[str]") -> str:
    """Wait for the next line of the process's output and return the line; empty at the end."""
    return process.stdout.readline() if process.stdout else ""


def _read_last_error(process: "subprocess.Popen[str]") -> str:
    """Return the last line of an ended process's error output, after a colon."""
    lines = process.stderr.read().strip().splitlines() if process.stderr else []
    return f": {escape_invisible(lines[-1][:_MAX_TEXT_LENGTH])}" if lines else ""


def _request_version(port: int, program: Path, timeout_s: float) -> str:
    """Return the version of the plugin on a port.

    Raises:
        GpuformError: the plugin does not answer in time.
    """
    # Plugins listen on the local interface, without encryption.
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        try:
            answer = stub.GetPluginInfo(Nothing(), timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError as error:
            details = error.details() or error.code().name
            raise GpuformError(
                f"{program} listens on port {port} but does not answer GetPluginInfo: "
                f"{escape_invisible(details[:_MAX_TEXT_LENGTH])}",
                hint=_INSTALL_HINT,
            ) from None
    return str(answer.version)


AREA: Final = "plugin"
_INSTALL_REMEDY: Final = "run `gpuform plugin install`"


@dataclass(frozen=True, slots=True)
class PluginSearch:
    """Where to look for the plugin, and how to read its version."""

    environ: Mapping[str, str]
    project: Path | None = None
    """The Pulumi.yaml of the current folder, which may name a plugin, or None."""
    windows: bool = os.name == "nt"
    read_version: Callable[[Path, Mapping[str, str]], str] = field(default=read_plugin_version)


def examine_plugin(search: PluginSearch) -> list[Finding]:
    """Return the findings about the plugin for the CLI, and about all installed ones."""
    examination = Examination()
    examination.add_findings(AREA, partial(_check_plugin, search))
    return examination.findings


def _check_plugin(search: PluginSearch) -> Iterator[Finding]:
    """Yield the findings about the plugin of the project, or else of this machine."""
    project = search.project
    plugin_folder = find_project_plugin(project) if project else None
    if project is None or plugin_folder is None:
        yield from _check_installed(search)
        return
    yield Finding(AREA, Level.NOTE, f"{project} names the plugin in {plugin_folder}")
    if not search.windows and is_windows_path(plugin_folder):
        yield _build_problem(
            f"{project} names {plugin_folder}, a Windows path",
            "write it relative to Pulumi.yaml, with /, or remove it after `gpuform plugin install`",
        )
    else:
        yield from _check_folder(project.parent / plugin_folder, search)


def _check_installed(search: PluginSearch) -> Iterator[Finding]:
    """Yield the findings about installed plugins, and about one on the PATH, which comes first."""
    plugins = get_plugins_folder(search.environ, windows=search.windows)
    installed_plugins = list_installed_plugins(plugins)
    yield from find_untested_cli(AREA, search.environ)
    for plugin in installed_plugins:
        # Pulumi's CLI marks an installation under way by a .partial file.
        if plugin.partial.exists():
            yield _build_problem(
                f"{plugin.folder} is incomplete: an installation was interrupted, and Pulumi "
                "ignores it",
                f"{_INSTALL_REMEDY}, or `gpuform plugin uninstall {plugin.version}`",
            )
    complete_plugins = [plugin for plugin in installed_plugins if not plugin.partial.exists()]
    path_plugin = find_plugin_on_path(search.environ)
    if path_plugin is not None:
        yield Finding(
            AREA,
            Level.WARNING,
            f"Pulumi uses {path_plugin} from the PATH instead of the installed plugins, and "
            "warns about it in every run",
            f"deactivate the virtualenv that contains it, or set {IGNORE_AMBIENT_VARIABLE}=true",
        )
        yield from _check_program(path_plugin, search)
    elif complete_plugins:
        *older_plugins, newest_plugin = complete_plugins  # sorted by version
        for plugin in older_plugins:
            yield Finding(
                AREA, Level.NOTE, f"{plugin.folder} also exists: Pulumi uses the newest version"
            )
        yield from _check_folder(newest_plugin.folder, search, newest_plugin)
    else:
        yield _build_problem(
            f"the plugin is not installed: {plugins} has none, and Pulumi would search the "
            "internet for one",
            _INSTALL_REMEDY,
        )


def _check_folder(
    folder: Path, search: PluginSearch, installed_plugin: InstalledPlugin | None = None
) -> Iterator[Finding]:
    """Yield the findings about the program in a plugin's folder."""
    program = find_executable(folder, windows=search.windows)
    if program is None:
        yield _build_problem(
            f"{folder} {_describe_missing_program(folder, search)}", _INSTALL_REMEDY
        )
        return
    yield from _check_program(program, search, installed_plugin)


def _describe_missing_program(folder: Path, search: PluginSearch) -> str:
    """Return why the folder has no program to start, as a predicate."""
    foreign_program = find_executable(folder, windows=not search.windows)
    if foreign_program is None:
        return f"has no {COMMAND}"
    if search.windows:
        return f"has {foreign_program.name}, but Windows only starts {COMMAND}.exe or {COMMAND}.cmd"
    return f"has {foreign_program.name}, which is for Windows, but no {COMMAND}"


def _check_program(
    program: Path, search: PluginSearch, installed_plugin: InstalledPlugin | None = None
) -> Iterator[Finding]:
    """Yield whether the program starts and has the version of this gpuform.

    `installed_plugin` is None for a program from the PATH or from Pulumi.yaml; the remedy differs.
    Raises GpuformError if the program does not answer.
    """
    python = find_interpreter(program.read_bytes())
    start_problem = next(_find_start_problems(program, python, search), None)
    if start_problem is not None:
        yield start_problem
        return
    own_version = get_plugin_version()
    reported_version = search.read_version(program, search.environ)
    try:
        plugin_version = get_plugin_version(reported_version)
    except InvalidVersion:
        yield _build_problem(
            f"{program} reports the invalid version {escape_invisible(reported_version)!r}",
            _INSTALL_REMEDY,
        )
        return
    label = f"{program} is gpuform {plugin_version}"
    if plugin_version != own_version:
        remedy = _INSTALL_REMEDY
        if installed_plugin is None:
            remedy = "use the plugin of this gpuform: activate its virtualenv, or none"
        elif installed_plugin.version not in (own_version, plugin_version):
            remedy += f", then `gpuform plugin uninstall {installed_plugin.version}`"
        elif installed_plugin.version == plugin_version:
            remedy += (
                f", then `gpuform plugin uninstall {plugin_version}` if Pulumi should not use it"
            )
        yield _build_problem(f"{label}, but this is gpuform {own_version}", remedy)
    elif installed_plugin is not None and installed_plugin.version != plugin_version:
        yield _build_problem(
            f"{label}, but its folder says {installed_plugin.version}",
            f"{_INSTALL_REMEDY}, then `gpuform plugin uninstall {installed_plugin.version}`",
        )
    else:
        yield Finding(AREA, Level.OK, f"{label}, and answers")


def _find_start_problems(
    program: Path, python: str | None, search: PluginSearch
) -> Iterator[Finding]:
    """Yield the reasons why the program cannot start."""
    if not search.windows and not os.access(program, os.X_OK):
        yield _build_problem(
            f"{program} is not executable", f"chmod u+x '{program}', or {_INSTALL_REMEDY}"
        )
    if python is None:
        return
    if not search.windows and is_windows_path(python):
        yield _build_problem(f"{program} starts {python}, a Windows path", _INSTALL_REMEDY)
    elif not Path(python).exists():
        yield _build_problem(
            f"{program} starts {python}, which does not exist: its virtualenv was moved or deleted",
            f"in the virtualenv that has gpuform now, {_INSTALL_REMEDY}",
        )


def _build_problem(message: str, remedy: str) -> Finding:
    return Finding(AREA, Level.PROBLEM, message, remedy)
