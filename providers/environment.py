"""Bind a stack to its environment: the real platforms at their addresses, or an emulator.

Every lifecycle enters through `enter`, which refuses another environment than the stack's.

The first call about a stack that is not only looked at records it, with the state; every later one
in another world is refused before it sends anything.

A kubeconfig's path and the host of a Slurm reach through this machine to others, with its files and
its keys. So a run on the emulator asks emulated schedulers alone, and a plan of what an agent
proposes asks those that the stack has already.
"""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

from gpuform.providers import permissions
from gpuform.providers.context import CLOCK_VARIABLE, ProviderContext, find_emulator
from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import platforms
from gpuform.providers.platform import platforms as all_platforms
from gpuform.providers.records import FolderRecords, Records, read_as
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.schemas.slurm import SlurmInputs

KNOWN_VARIABLE: Final = "GPUFORM_SCHEDULERS"
"""The schedulers that may be asked, when not all may: `{"kubernetes": [...], "slurm": [...]}` as
JSON, each as a topology declares it."""
SECTIONS: Final[Mapping[str, type[KubernetesInputs | SlurmInputs]]] = {
    "kubernetes": KubernetesInputs,
    "slurm": SlurmInputs,
}


def require_asked(declared: KubernetesInputs | SlurmInputs, what: str, server: str = "") -> None:
    """Raises GpuformError when a declared scheduler may not be asked.

    `what` it is, for the message; `server` is its address, where it has one.
    """
    clock = os.environ.get(CLOCK_VARIABLE)
    if clock and urlsplit(server).netloc == urlsplit(clock).netloc:  # also by https
        return
    known = os.environ.get(KNOWN_VARIABLE)
    if clock:
        refusal = f"{what} is not asked: this run is on the emulator, and the scheduler is not"
        if known is not None:  # who proposes may not allow it
            raise NotAllowed(refusal, hint="a plan against the platforms asks it")
        permissions.require(Permission.REAL_SCHEDULERS, refusal)
    elif known is not None and not _is_known(declared, json.loads(known)):
        raise GpuformError(
            f"{what} is not asked: the stack has no resource yet that names this scheduler",
            hint="a person puts it into the topology and applies that; a proposal may name it then",
        )


def schedulers_in(value: Any) -> dict[str, list[Any]]:
    """The schedulers that inputs declare at any depth, as `KNOWN_VARIABLE` has them."""
    found: dict[str, list[Any]] = {name: [] for name in SECTIONS}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            for name in SECTIONS:
                if isinstance(each.get(name), Mapping) and each[name] not in found[name]:
                    found[name].append(each[name])
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return found


def _is_known(declared: KubernetesInputs | SlurmInputs, known: Mapping[str, Any]) -> bool:
    name = "slurm" if isinstance(declared, SlurmInputs) else "kubernetes"
    model = SECTIONS[name]
    return any(model.model_validate(each) == declared for each in known.get(name, ()))


def is_emulated(address: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether an emulator answers there: the one whose clock this process follows."""
    clock = urlsplit((os.environ if environ is None else environ).get(CLOCK_VARIABLE, ""))
    return bool(clock.netloc) and urlsplit(address)[:2] == clock[:2]


def are_emulated(
    platforms: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> bool:
    """Whether an emulator answers for all of them; without `platforms`, for all that have one."""
    environ = os.environ if environ is None else environ
    known = all_platforms()
    if platforms is None:
        platforms = [name for name, platform in known.items() if platform.emulator]
    return all(
        each in known and is_emulated(environ.get(known[each].address, ""), environ)
        for each in platforms
    )


RECORD: Final = "world"
"""The name of the record."""

_lock = threading.Lock()


class WrongEnvironment(GpuformError):
    """A stack's objects live in another world than the one that would be asked about them."""

    help_page = "concepts/stack"


@dataclass(frozen=True)
class StackEnvironment:
    """`addresses` are those of real platforms by their names, as far as the stack has used them.

    `emulator` is the identity of the emulator's data. Empty: the stack has met no emulator yet, and
    belongs to the first one. None: a record from before emulators had an identity.
    """

    emulated: bool
    addresses: Mapping[str, str] = field(default_factory=dict)
    emulator: str | None = None

    def with_address(self, platform: str, address: str) -> "StackEnvironment":
        """The world once this platform is used at this address."""
        return replace(self, addresses={**self.addresses, platform: address})


def read_environment(records: Records) -> StackEnvironment | None:
    """The world that is recorded; None for a stack that has used no platform yet."""
    return read_as(records, RECORD, StackEnvironment)


def record_environment(records: Records, environment: StackEnvironment) -> None:
    """Keeps it with the state."""
    fields = asdict(environment)
    if environment.emulator is None:
        del fields["emulator"]
    records.write(RECORD, fields)


def address_of(platform: str, settings: Settings) -> str | None:
    """The address that a platform would be asked at; None where that is not known."""
    try:
        url: str | None = platforms()[platform].module("client").address(settings)
        parts = urlsplit(url or "")
    except (GpuformError, ValueError):
        return None
    # What stands before an @ may be a password.
    place = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{place}{parts.path}" if place else None


def enter(context: ProviderContext, platform: str, settings: Settings) -> None:
    """Record the environment that a call is about to use, or raise WrongEnvironment.

    Nothing is recorded where records are of several stacks: beside a project whose state is out of
    reach. The clock has to be the platform's all the same.
    """
    records = context.intents.records
    address = address_of(platform, settings)
    if address is None:
        return
    if isinstance(records, FolderRecords):
        if not is_emulated(address, settings.environ):
            refuse_foreign_clock(settings.environ, f"{platform} would be asked at {address}")
        return
    with _lock:
        known = read_environment(records)
        environment = agreed(known, platform, address, settings)
        if environment != known:
            record_environment(records, environment)
    if known is not None and known.emulated and known.emulator is None and environment.emulator:
        context.on_warning(
            "the stack does not say which emulator it lives on: from now on it is "
            f"{environment.emulator}"
        )


def agreed(
    known: StackEnvironment | None, platform: str, address: str, settings: Settings
) -> StackEnvironment:
    """Return the stack's environment with this platform in it.

    Raises:
        WrongEnvironment: the stack is in another environment.
    """
    emulated = is_emulated(address, settings.environ)
    if known is None:
        known = StackEnvironment(emulated)
    if known.emulated != emulated:
        raise refusal(known, f"{platform} would be asked at {address}")
    if emulated:
        return on_emulator(known, settings.environ)
    refuse_foreign_clock(settings.environ, f"{platform} would be asked at {address}")
    before = known.addresses.get(platform, address)
    is_meant = settings.given or Permission.NEW_ADDRESS in permissions.given(settings.environ)
    if before != address and not is_meant:
        raise WrongEnvironment(
            f"the stack's objects of {platform} are at {before}, and {platform} would be asked at "
            f"{address}",
            hint="correct the address; if the platform has moved: "
            f"--allow {Permission.NEW_ADDRESS}, or {permissions.VARIABLE}="
            f"{Permission.NEW_ADDRESS} in the environment",
        )
    return known.with_address(platform, address)


def on_emulator(known: StackEnvironment, environ: Mapping[str, str]) -> StackEnvironment:
    """Return the environment of an emulated stack once it uses the emulator of `environ`.

    Raises:
        WrongEnvironment: the stack lives on another emulator.
    """
    identity = find_emulator(environ)
    if not known.emulator:
        return replace(known, emulator=identity) if identity else known
    if identity == known.emulator:
        return known
    address = environ.get(CLOCK_VARIABLE, "")
    raise WrongEnvironment(
        f"the stack lives on emulator {known.emulator}, and this run would be on another one: "
        f"{identity or 'of unknown identity'} at {address}",
        hint="start the emulator with that stack's data (`gpuform emulator start --store FILE`, or "
        "--emulate in the project); if its data is gone: `gpuform stack rm NAME --force`",
    )


def refuse_foreign_clock(environ: Mapping[str, str], because: str) -> None:
    """Raise WrongEnvironment if an emulator's clock would count for a real platform.

    An emulator's clock may be years ahead: a time to live would be over at once.

    Args:
        environ: where the clock's variable may be left over from an emulator.
        because: what shows that the platform is real.
    """
    clock = environ.get(CLOCK_VARIABLE)
    if clock:
        raise WrongEnvironment(
            f"{because}, and {CLOCK_VARIABLE} names an emulator's clock at {clock}",
            hint=f"unset {CLOCK_VARIABLE}, which is left over from an emulator; "
            'eval "$(gpuform emulator stop)" unsets all of its variables',
        )


def refusal(known: StackEnvironment, because: str) -> WrongEnvironment:
    """The error of a run in the other world."""
    if known.emulated:
        return WrongEnvironment(
            f"the stack lives on the emulator, and {because}",
            hint="add --emulate, or set the variables of `gpuform emulator env`; for "
            "real platforms make another stack: `gpuform stack init NAME`",
        )
    return WrongEnvironment(
        f"the stack lives on real platforms, and {because}",
        hint="leave out --emulate (or the emulator's variables, GPUFORM_CLOCK among them); to try "
        "something out make another stack: `gpuform stack init NAME --emulate`",
    )


@dataclass(frozen=True, slots=True)
class Live:
    """`lines` say it for people; `figures` are all of it, in the platform's words, as JSON has
    them."""

    lines: tuple[str, ...]
    figures: Mapping[str, Any]
