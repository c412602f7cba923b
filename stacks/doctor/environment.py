"""This machine: Python, the installed packages, programs on the PATH, what variables say."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from gpuform.providers.permissions import VARIABLE as PERMISSIONS_VARIABLE
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.engine.machine import LAST_TRIED, find_ci_job, read_cli_version
from gpuform.stacks.engine.sdk_patches import TRIED, find_inactive_patches

AREA = "environment"


def environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    """What every project on this machine meets."""
    ours, sdk = version("gpuform"), version("pulumi")
    system = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    yield _ok(f"gpuform {ours}, Pulumi SDK {sdk}, Python {python} on {system}")
    wrong = list(_packages())
    yield from wrong or [_ok("every package that gpuform needs is there, in its range")]
    yield from _patches(sdk)
    if shutil.which("git") is None:
        yield Finding(
            AREA,
            Level.WARNING,
            "git is not on the PATH: the history cannot tell which commit was applied",
            "install git",
        )
    yield from newer_cli(AREA, environ)
    yield from _home(environ)
    yield from _variables(environ)


def newer_cli(area: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning where the Pulumi CLI of PATH is newer than the last one that was tried."""
    version = read_cli_version(environ)
    if version is not None and version > LAST_TRIED:
        newer, tried = (".".join(map(str, each)) for each in (version, LAST_TRIED))
        yield Finding(
            area,
            Level.WARNING,
            f"Pulumi CLI {newer} is newer than {tried}, the last one tried with gpuform: it may "
            "keep states otherwise, or look for plugins elsewhere",
            "compare `pulumi preview` with `gpuform preview` before a change, and see whether "
            "`pulumi plugin ls` lists gpuform; `gpuform help reference/pulumi-cli` says what was "
            "tried",
        )


def _packages() -> Iterator[Finding]:
    """Packages that are missing, or of another version than gpuform is made for."""
    for text in requires("gpuform") or ():
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            found = ""
        if found and requirement.specifier.contains(found, prereleases=True):
            continue
        told = f"{requirement} is missing"
        if found:
            told = f"{requirement.name} {found} is installed, and gpuform needs {requirement}"
        remedy = f"python -m pip install '{requirement.name}{requirement.specifier}'"
        yield Finding(AREA, Level.PROBLEM, told, remedy)


def _patches(sdk: str) -> Iterator[Finding]:
    """What gpuform does not spare this SDK, which is written in another way than those it knows."""
    for patch in find_inactive_patches():
        yield Finding(
            AREA,
            Level.NOTE,
            f"programs of many resources are slower with Pulumi SDK {sdk}, which gpuform does not "
            f"know: it is not spared {patch.saved_work}",
            f"python -m pip install 'pulumi=={TRIED[-1]}'",
        )


def _home(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Where the selected stack is kept."""
    given = environ.get("PULUMI_HOME")
    folder = Path(given) if given else Path.home() / ".pulumi"
    nearest = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        yield Finding(
            AREA,
            Level.WARNING,
            f"{folder} cannot be written: no stack can be selected",
            "name the stack with --stack, or set PULUMI_HOME to a folder that you can write to",
        )


def _variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    job = find_ci_job(environ)
    if job is not None:
        yield Finding(
            AREA,
            Level.NOTE,
            f"this is a job of {job.system}: nothing is asked, so `up`, `refresh` and `destroy` "
            "need --yes, --skip-preview or --plan",
        )
    if allowed := environ.get(PERMISSIONS_VARIABLE):
        yield Finding(
            AREA,
            Level.WARNING,
            f"{PERMISSIONS_VARIABLE} permits in every run: {allowed}",
            "unset it, and give --allow to the run that is meant",
        )


def _ok(text: str) -> Finding:
    return Finding(AREA, Level.OK, text)
