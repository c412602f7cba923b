"""Examine the platforms: credentials, connections, and clock differences."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

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
from gpuform.providers.platform import list_unusable_platforms
from gpuform.providers.platform import platforms as all_platforms
from gpuform.stacks.doctor.findings import Finding, Level, build_failure
from gpuform.stacks.resource_rules import find_write_refusal

AREA = "platforms"
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
            yield _build_clock_finding(name)
    for name, unusable in list_unusable_platforms().items():
        level = Level.PROBLEM if name in used_platforms else Level.WARNING
        yield Finding(AREA, level, f"{name} cannot be used: {unusable.because}", unusable.hint)
    names_without_rights = [
        name
        for name, answer in zip(names, answers, strict=True)
        if isinstance(answer, _PlatformAnswer)
        and not answer.reports_rights
        and all_platforms()[name].needs_key
    ]
    if names_without_rights:
        message = "unknown whether the key may write: the first change shows it"
        yield Finding(AREA, Level.NOTE, f"{', '.join(names_without_rights)}: {message}")


@dataclass(frozen=True, slots=True)
class _PlatformAnswer:
    """The answer of a platform to the probe, and for each kind why its key may not write.

    A refusal is None if the platform does not report rights, and empty if the key may write.
    """

    probe: ProbeAnswer
    refusals: Collection[str | None]

    @property
    def reports_rights(self) -> bool:
        """Return True if the platform reports for any kind whether its key may write."""
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
    """Yield the findings about one answer; problems of unused platforms are warnings or notes."""
    if isinstance(answer, _PlatformAnswer):
        # Several kinds may have the same refusal: each text is shown once.
        refusals = sorted({refusal for refusal in answer.refusals if refusal})
        rights = "read and write" if answer.reports_rights and not refusals else "read"
        needs_key = all_platforms()[name].needs_key
        key_text = f"accepts the key, which may {rights}" if needs_key else "needs no key"
        yield Finding(AREA, Level.OK, f"{name}: {answer.probe.address} answers and {key_text}")
        for reason in refusals:
            level = Level.WARNING if in_use else Level.NOTE
            yield Finding(AREA, level, f"{name}: {reason}", "use this key only for plans")
    # Most projects use one platform: the others need no key.
    elif isinstance(answer, MissingCredentials) and not in_use:
        yield Finding(AREA, Level.NOTE, f"{name}: not used, and {answer.message}")
    elif isinstance(answer, GpuformError):
        level = Level.PROBLEM if in_use else Level.WARNING
        message = answer.message.removeprefix(f"{name}: ")
        remedy = answer.hint or "try again later, or contact the platform's support"
        yield Finding(AREA, level, f"{name}: {_get_error_prefix(answer)}{message}", remedy)
    else:
        finding = build_failure(AREA, answer)
        yield Finding(AREA, finding.level, f"{name}: {finding.text}", finding.remedy)


def _get_error_prefix(error: GpuformError) -> str:
    """Return words for the cause of an error, before its message; empty for other errors."""
    kinds = {
        MissingCredentials: "no credentials: ",
        AuthError: "the credentials are not accepted: ",
        PermissionDenied: "the credentials may not read: ",
        Unreachable: "not reachable: ",
    }
    return kinds.get(type(error), "")


def _build_clock_finding(name: str) -> Finding:
    """Return the problem of an emulator's clock beside a platform that is not this emulator."""
    return Finding(
        AREA,
        Level.PROBLEM,
        f"{name}: waits use the clock of an emulator ({CLOCK_VARIABLE}), and this is not one",
        f"unset {CLOCK_VARIABLE}",
    )


def _check_clock_skew(name: str, seconds_ahead: float | None) -> Iterator[Finding]:
    """Yield a problem if this machine's clock differs from the platform's; None is unknown."""
    if seconds_ahead is None or abs(seconds_ahead) < _MAX_CLOCK_SKEW_S:
        return
    direction = "ahead of" if seconds_ahead > 0 else "behind"
    yield Finding(
        AREA,
        Level.PROBLEM,
        f"{name}: this machine's clock is {format_duration(abs(seconds_ahead))} {direction} the "
        "platform's: it refuses signed requests, gpuform cannot recognize the objects of lost "
        "creates, and leases and plans have wrong times",
        "set the clock, and keep it synchronized (NTP)",
    )
