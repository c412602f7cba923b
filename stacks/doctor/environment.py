"""Examine this machine: Python, installed packages, programs on the PATH, and variables."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from gpuform.providers.permissions import VARIABLE as PERMISSIONS_VARIABLE
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.engine.ci_job import find_ci_job
from gpuform.stacks.engine.machine import LAST_TRIED, read_cli_version
from gpuform.stacks.engine.sdk_patches import TRIED, find_inactive_patches

AREA = "environment"


def examine_environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about this machine."""
    gpuform_version, sdk_version = version("gpuform"), version("pulumi")
    system = f"{platform.system()} {platform.machine()}"
    python_version = platform.python_version()
    yield _build_ok_finding(
        f"gpuform {gpuform_version}, Pulumi SDK {sdk_version}, Python {python_version} on {system}"
    )
    package_problems = list(_find_package_problems())
    yield from package_problems or [
        _build_ok_finding("all required packages are installed in supported versions")
    ]
    yield from _find_inactive_patches(sdk_version)
    if shutil.which("git") is None:
        yield Finding(
            AREA,
            Level.WARNING,
            "git is not on the PATH: the history cannot record which commit was applied",
            "install git",
        )
    yield from find_untested_cli(AREA, environ)
    yield from _check_home(environ)
    yield from _check_variables(environ)


def find_untested_cli(area: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning if the Pulumi CLI on the PATH is newer than the last tested version."""
    version = read_cli_version(environ)
    if version is not None and version > LAST_TRIED:
        cli_version, tested_version = (".".join(map(str, parts)) for parts in (version, LAST_TRIED))
        yield Finding(
            area,
            Level.WARNING,
            f"Pulumi CLI {cli_version} is newer than {tested_version}, the last version tested "
            "with gpuform: it may store states differently, or look for plugins elsewhere",
            "compare `pulumi preview` with `gpuform preview` before a change, and check that "
            "`pulumi plugin ls` lists gpuform; `gpuform help reference/pulumi-cli` lists the "
            "tested versions",
        )


def _find_package_problems() -> Iterator[Finding]:
    """Yield a problem for each required package with a missing or an unsupported version."""
    for requirement_text in requires("gpuform") or ():
        requirement = Requirement(requirement_text)
        # Packages of extras, and of other systems or Python versions, are not required here.
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed_version = version(requirement.name)
        except PackageNotFoundError:
            installed_version = ""
        # A prerelease in the range is accepted: somebody installed it on purpose.
        if installed_version and requirement.specifier.contains(
            installed_version, prereleases=True
        ):
            continue
        message = f"{requirement} is missing"
        if installed_version:
            installed = f"{requirement.name} {installed_version}"
            message = f"{installed} is installed, and gpuform needs {requirement}"
        remedy = f"python -m pip install '{requirement.name}{requirement.specifier}'"
        yield Finding(AREA, Level.PROBLEM, message, remedy)


def _find_inactive_patches(sdk_version: str) -> Iterator[Finding]:
    """Yield a note for each patch of gpuform without effect on this version of the SDK."""
    # A patch applies only to code of the SDK that gpuform has been tested with.
    for patch in find_inactive_patches():
        yield Finding(
            AREA,
            Level.NOTE,
            f"programs with many resources run slower with Pulumi SDK {sdk_version}: in this "
            f"version gpuform does not avoid {patch.saved_work}",
            f"python -m pip install 'pulumi=={TRIED[-1]}'",
        )


def _check_home(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning if the folder of the selected stack, PULUMI_HOME, is not writable."""
    home_value = environ.get("PULUMI_HOME")
    folder = Path(home_value) if home_value else Path.home() / ".pulumi"
    # The folder may not exist yet: then the nearest existing parent must be writable.
    existing_folder = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not existing_folder.is_dir() or not os.access(existing_folder, os.W_OK):
        yield Finding(
            AREA,
            Level.WARNING,
            f"{folder} is not writable: no stack can be selected",
            "pass the stack with --stack, or set PULUMI_HOME to a writable folder",
        )


def _check_variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a note for a job of a CI system, and a warning for permissions in every run."""
    job = find_ci_job(environ)
    # A job has no terminal: a question would never be answered.
    if job is not None:
        yield Finding(
            AREA,
            Level.NOTE,
            f"this is a {job.system} job: gpuform asks no questions, so `up`, `refresh` and "
            "`destroy` need --yes, --skip-preview or --plan",
        )
    if permissions := environ.get(PERMISSIONS_VARIABLE):
        yield Finding(
            AREA,
            Level.WARNING,
            f"{PERMISSIONS_VARIABLE} allows in every run: {permissions}",
            "unset it, and pass --allow to the run that needs it",
        )


def _build_ok_finding(text: str) -> Finding:
    """Build a finding that reports no problem of the environment."""
    return Finding(AREA, Level.OK, text)
