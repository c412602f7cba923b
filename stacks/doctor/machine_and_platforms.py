"""Examine this machine and the platforms: programs, variables, credentials, connections, clocks."""

import os
import platform
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import CLOCK_VARIABLE, create_thread_pool, format_duration
from gpuform.providers.errors import (
    AuthError,
    GpuformError,
    MissingCredentials,
    PermissionDenied,
    Unreachable,
)
from gpuform.providers.http import ProbeAnswer, probe_platform
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import VARIABLE as PERMISSIONS_VARIABLE
from gpuform.providers.platform import list_unusable_platforms
from gpuform.providers.platform import platforms as all_platforms
from gpuform.stacks.doctor.findings import Finding, Level, build_failure
from gpuform.stacks.engine.ci_job import find_ci_job
from gpuform.stacks.engine.machine import LAST_TRIED, read_cli_version
from gpuform.stacks.engine.sdk_patches import TRIED, find_inactive_patches
from gpuform.stacks.resource_rules import find_write_refusal

ENVIRONMENT = "environment"


def examine_environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about this machine's versions and variables."""
    gpuform_version, sdk_version = version("gpuform"), version("pulumi")
    system = f"{platform.system()} {platform.machine()}"
    python_version = platform.python_version()
    yield Finding(
        ENVIRONMENT,
        Level.OK,
        f"gpuform {gpuform_version}, Pulumi SDK {sdk_version}, Python {python_version} on {system}",
    )
    package_problems = list(_find_package_problems())
    package_text = "all required packages are installed in supported versions"
    yield from package_problems or [Finding(ENVIRONMENT, Level.OK, package_text)]
    yield from _find_inactive_patches(sdk_version)
    if shutil.which("git") is None:
        yield Finding(
            ENVIRONMENT,
            Level.WARNING,
            "git is not on the PATH: the history cannot record which commit was applied",
            "install git",
        )
    yield from find_untested_cli(ENVIRONMENT, environ)
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
        supported = requirement.specifier
        if installed_version and supported.contains(installed_version, prereleases=True):
            continue
        message = f"{requirement} is missing"
        if installed_version:
            installed = f"{requirement.name} {installed_version}"
            message = f"{installed} is installed, and gpuform needs {requirement}"
        remedy = f"python -m pip install '{requirement.name}{requirement.specifier}'"
        yield Finding(ENVIRONMENT, Level.PROBLEM, message, remedy)


def _find_inactive_patches(sdk_version: str) -> Iterator[Finding]:
    """Yield a note for each patch of gpuform without effect on this version of the SDK."""
    # A patch applies only to code of the SDK that gpuform has been tested with.
    for patch in find_inactive_patches():
        yield Finding(
            ENVIRONMENT,
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
            ENVIRONMENT,
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
            ENVIRONMENT,
            Level.NOTE,
            f"this is a {job.system} job: gpuform asks no questions, so `up`, `refresh` and "
            "`destroy` need --yes, --skip-preview or --plan",
        )
    if permissions := environ.get(PERMISSIONS_VARIABLE):
        yield Finding(
            ENVIRONMENT,
            Level.WARNING,
            f"{PERMISSIONS_VARIABLE} allows in every run: {permissions}",
            "unset it, and pass --allow to the run that needs it",
        )


PLATFORMS = "platforms"
_CAUSES = {
    MissingCredentials: "no credentials: ",
    AuthError: "the credentials are not accepted: ",
    PermissionDenied: "the credentials may not read: ",
    Unreachable: "not reachable: ",
}
"""The words before an error's message, by the type of the error."""
_MAX_CLOCK_SKEW_S = 60.0
"""Clock difference without a finding. The Date of an answer is always a little late."""


def examine_platforms(
    config: Mapping[str, str], environ: Mapping[str, str], used_platforms: Collection[str]
) -> Iterator[Finding]:
    """Yield the answers of all platforms to the credentials, the used platforms first.

    All platforms are asked at once. `used_platforms` are named by the program or the state: missing
    credentials are a problem for these, and only a note for others.
    """
    settings = Settings(config=config.get, environ=environ)
    names = sorted(all_platforms(), key=lambda name: name not in used_platforms)
    # One platform may take its whole timeout: asking in turn would add these up.
    with create_thread_pool(len(names), "doctor") as pool:
        answers = list(pool.map(lambda name: _probe_platform(name, settings), names))
    clock = environ.get(CLOCK_VARIABLE, "").rstrip("/")
    for name, answer in zip(names, answers, strict=True):
        yield from _describe_answer(name, answer, in_use=name in used_platforms)
        # With an emulator's clock a difference to the machine's clock is intended.
        if isinstance(answer, _PlatformAnswer) and not clock:
            yield from _check_clock_skew(name, answer.probe.clock_ahead)
        # With an emulator's clock, waits for a real platform would end at wrong times.
        elif isinstance(answer, _PlatformAnswer) and answer.probe.address != clock:
            yield Finding(
                PLATFORMS,
                Level.PROBLEM,
                f"{name}: waits use the clock of an emulator ({CLOCK_VARIABLE}), and this is not "
                "one",
                f"unset {CLOCK_VARIABLE}",
            )
    for name, unusable in list_unusable_platforms().items():
        level = Level.PROBLEM if name in used_platforms else Level.WARNING
        yield Finding(PLATFORMS, level, f"{name} cannot be used: {unusable.because}", unusable.hint)
    names_without_rights = [
        name
        for name, answer in zip(names, answers, strict=True)
        if isinstance(answer, _PlatformAnswer)
        and not answer.reports_rights
        and all_platforms()[name].needs_key
    ]
    if names_without_rights:
        message = "unknown whether the key may write: the first change shows it"
        yield Finding(PLATFORMS, Level.NOTE, f"{', '.join(names_without_rights)}: {message}")


@dataclass(frozen=True, slots=True)
class _PlatformAnswer:
    """The answer of a platform to the probe, and for each kind why its key may not write.

    A refusal is None if the platform does not report rights, and empty if the key may write.
    """

    probe: ProbeAnswer
    refusals: Collection[str | None]

    @property
    def reports_rights(self) -> bool:
        """Return True if the platform reports for any kind whether the key may write."""
        return any(refusal is not None for refusal in self.refusals)


def _probe_platform(name: str, settings: Settings) -> _PlatformAnswer | Exception:
    """Return the platform's answer to the credentials, or the error of the request."""
    try:
        probe = probe_platform(name, settings)
        lifecycles = [load_lifecycle_class(name, kind) for kind in all_platforms()[name].lifecycles]
        return _PlatformAnswer(
            probe, [find_write_refusal(lifecycle, settings) for lifecycle in lifecycles]
        )
    except Exception as error:  # noqa: BLE001 - one platform's fault is not the others'
        return error


def _describe_answer(
    name: str, answer: _PlatformAnswer | Exception, *, in_use: bool
) -> Iterator[Finding]:
    """Yield `doctor`'s findings about a platform's answer; problems of unused platforms warn."""
    if isinstance(answer, _PlatformAnswer):
        # Several kinds may have the same refusal: each text is shown once.
        refusals = sorted({refusal for refusal in answer.refusals if refusal})
        rights = "read and write" if answer.reports_rights and not refusals else "read"
        needs_key = all_platforms()[name].needs_key
        key_text = f"accepts the key, which may {rights}" if needs_key else "needs no key"
        yield Finding(PLATFORMS, Level.OK, f"{name}: {answer.probe.address} answers and {key_text}")
        for reason in refusals:
            level = Level.WARNING if in_use else Level.NOTE
            yield Finding(PLATFORMS, level, f"{name}: {reason}", "use this key only for plans")
    # Most projects use one platform: the others need no key.
    elif isinstance(answer, MissingCredentials) and not in_use:
        yield Finding(PLATFORMS, Level.NOTE, f"{name}: not used, and {answer.message}")
    elif isinstance(answer, GpuformError):
        level = Level.PROBLEM if in_use else Level.WARNING
        message = answer.message.removeprefix(f"{name}: ")
        remedy = answer.hint or "try again later, or contact the platform's support"
        cause = _CAUSES.get(type(answer), "")
        yield Finding(PLATFORMS, level, f"{name}: {cause}{message}", remedy)
    else:
        finding = build_failure(PLATFORMS, answer)
        yield Finding(PLATFORMS, finding.level, f"{name}: {finding.text}", finding.remedy)


def _check_clock_skew(name: str, seconds_ahead: float | None) -> Iterator[Finding]:
    """Yield a problem if this machine's clock differs from the platform's; None is unknown."""
    if seconds_ahead is None or abs(seconds_ahead) < _MAX_CLOCK_SKEW_S:
        return
    direction = "ahead of" if seconds_ahead > 0 else "behind"
    yield Finding(
        PLATFORMS,
        Level.PROBLEM,
        f"{name}: this machine's clock is {format_duration(abs(seconds_ahead))} {direction} the "
        "platform's: it refuses signed requests, gpuform cannot recognize the objects of lost "
        "creates, and leases and plans have wrong times",
        "set the clock, and keep it synchronized (NTP)",
    )
