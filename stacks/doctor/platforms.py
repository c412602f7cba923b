"""The platforms: credentials, the way to them, and what their clocks say of ours."""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import CLOCK_VARIABLE, format_duration
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
from gpuform.stacks.doctor.findings import Finding, Level, failure
from gpuform.stacks.resource_rules import write_refusal

AREA = "platforms"
_NOTABLE_SKEW = 60.0
"""Seconds that two clocks may differ without a word: an answer's Date is a little late."""


def platforms(
    config: Mapping[str, str], environ: Mapping[str, str], used: Collection[str]
) -> Iterator[Finding]:
    """What each platform says to the credentials, all asked at once; those in use first.

    `used` are the platforms that the program or the state names: what is missing for these is a
    problem, for others nobody needs it.
    """
    settings = Settings(config=config.get, environ=environ)
    names = sorted(all_platforms(), key=lambda name: name not in used)
    with ThreadPoolExecutor(len(names), thread_name_prefix="doctor") as pool:
        answers = list(pool.map(lambda name: _asked(name, settings), names))
    clock = environ.get(CLOCK_VARIABLE, "").rstrip("/")
    for name, answer in zip(names, answers, strict=True):
        yield from _found(name, answer, in_use=name in used)
        if isinstance(answer, _Look) and not clock:
            yield from _skew(name, answer.answered.clock_ahead)
        elif isinstance(answer, _Look) and answer.answered.address != clock:
            yield _wrong_clock(name)
    for name, why in list_unusable_platforms().items():
        level = Level.PROBLEM if name in used else Level.WARNING
        yield Finding(AREA, level, f"{name} cannot be used: {why.because}", why.hint)
    silent = [
        name
        for name, answer in zip(names, answers, strict=True)
        if isinstance(answer, _Look) and not answer.tells_rights and all_platforms()[name].needs_key
    ]
    if silent:
        text = "nobody can tell whether the key may write: that shows with the first change"
        yield Finding(AREA, Level.NOTE, f"{', '.join(silent)}: {text}")


@dataclass(frozen=True, slots=True)
class _Look:
    """What a platform has answered, and what it says of the key's right to change each kind."""

    answered: ProbeAnswer
    refusals: Collection[str | None]

    @property
    def tells_rights(self) -> bool:
        return any(each is not None for each in self.refusals)


def _asked(name: str, settings: Settings) -> _Look | Exception:
    try:
        answered = probe_platform(name, settings)
        kinds = [load_lifecycle_class(name, kind) for kind in all_platforms()[name].lifecycles]
        return _Look(answered, [write_refusal(each, settings) for each in kinds])
    except Exception as error:  # noqa: BLE001 - one platform's fault is not the others'
        return error


def _found(name: str, answer: _Look | Exception, *, in_use: bool) -> Iterator[Finding]:
    if isinstance(answer, _Look):
        refused = sorted({each for each in answer.refusals if each})
        rights = "read and write" if answer.tells_rights and not refused else "read"
        needs_key = all_platforms()[name].needs_key
        accepted = f"accepts the key, which may {rights}" if needs_key else "asks for no key"
        yield Finding(AREA, Level.OK, f"{name}: {answer.answered.address} answers and {accepted}")
        for because in refused:
            level = Level.WARNING if in_use else Level.NOTE
            yield Finding(AREA, level, f"{name}: {because}", "with this key, only make plans")
    elif isinstance(answer, MissingCredentials) and not in_use:
        yield Finding(AREA, Level.NOTE, f"{name}: not used, and {answer.message}")
    elif isinstance(answer, GpuformError):
        level = Level.PROBLEM if in_use else Level.WARNING
        said = answer.message.removeprefix(f"{name}: ")
        remedy = answer.hint or "try it again later, or ask the platform's support"
        yield Finding(AREA, level, f"{name}: {_what(answer)}{said}", remedy)
    else:
        found = failure(AREA, answer)
        yield Finding(AREA, found.level, f"{name}: {found.text}", found.remedy)


def _what(error: GpuformError) -> str:
    kinds = {
        MissingCredentials: "no credentials: ",
        AuthError: "the credentials are not accepted: ",
        PermissionDenied: "the credentials may not read: ",
        Unreachable: "not reachable: ",
    }
    return kinds.get(type(error), "")


def _wrong_clock(name: str) -> Finding:
    return Finding(
        AREA,
        Level.PROBLEM,
        f"{name}: waiting goes by the clock of an emulator ({CLOCK_VARIABLE}), and this is none",
        f"unset {CLOCK_VARIABLE}",
    )


def _skew(name: str, ahead: float | None) -> Iterator[Finding]:
    """What a wrong clock would break."""
    if ahead is None or abs(ahead) < _NOTABLE_SKEW:
        return
    way = "ahead of" if ahead > 0 else "behind"
    yield Finding(
        AREA,
        Level.PROBLEM,
        f"{name}: this machine's clock is {format_duration(abs(ahead))} {way} the platform's: "
        "signed requests are refused, what a lost create has made is not known again, and leases "
        "and plans have wrong times",
        "set the clock, and keep it right (NTP)",
    )
