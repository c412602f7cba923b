"""Bind a stack to its environment: the real platforms at their addresses, or an emulator.

Every lifecycle calls `enter_environment`, which records the environment of the stack's first
changing operation with the state, and refuses any other environment before a request is sent.

The path of a kubeconfig and the host of a Slurm reach other machines, with this machine's files and
keys. So a run on the emulator asks emulated schedulers only, and a plan of an agent's proposal asks
schedulers that the stack has already.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

from gpuform.providers import permissions
from gpuform.providers.context import (
    CLOCK_VARIABLE,
    ProviderContext,
    RunContext,
    find_emulator,
    get_run_context,
)
from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import platforms
from gpuform.providers.platform import platforms as all_platforms
from gpuform.providers.records import FolderRecords, Records, read_record
from gpuform.schemas.errors import EngineError
from gpuform.schemas.policies.drain import KubernetesInputs, SlurmInputs

KNOWN_SCHEDULERS_VARIABLE: Final = "GPUFORM_SCHEDULERS"
"""The schedulers that may be asked, if not all: `{"kubernetes": [...], "slurm": [...]}` as JSON."""
SECTIONS: Final = ("kubernetes", "slurm")


def require_scheduler_access(
    declared: KubernetesInputs | SlurmInputs, label: str, server: str = ""
) -> None:
    """Raise an error if this run may not ask a declared scheduler.

    On the emulator only its own scheduler may be asked, or any with `--allow real-schedulers`.
    While GPUFORM_SCHEDULERS is set, only the schedulers in it may be asked, and on the emulator no
    other than its own.

    `label` names the scheduler in messages. `server` is the scheduler's address, if known: without
    an address, a scheduler of the emulator counts as real.

    Raises:
        NotAllowed: on the emulator, the scheduler is real, and the run lacks the permission
            `real-schedulers` or GPUFORM_SCHEDULERS is set.
        GpuformError: GPUFORM_SCHEDULERS does not have this scheduler.
    """
    run = get_run_context()
    clock = run.environ.get(CLOCK_VARIABLE)
    if clock and urlsplit(server).netloc == urlsplit(clock).netloc:  # also by https
        return
    known_schedulers = run.environ.get(KNOWN_SCHEDULERS_VARIABLE)
    if clock:
        refusal = f"{label} was not asked: this run uses the emulator, but the scheduler is real"
        if known_schedulers is not None:  # who proposes may not allow it
            raise NotAllowed(refusal, hint="a plan on the real platforms asks the scheduler")
        run.require_permission(Permission.REAL_SCHEDULERS, refusal)
    elif known_schedulers is not None and not _is_known_scheduler(
        declared, json.loads(known_schedulers)
    ):
        raise GpuformError(
            f"{label} was not asked: no resource of the stack names this scheduler yet",
            hint="a person has to add the scheduler to the topology and apply it; then a "
            "proposal may name the scheduler",
        )


def find_schedulers(value: Any) -> dict[str, list[Any]]:
    """Return the schedulers that inputs declare at any depth, in the form of GPUFORM_SCHEDULERS.

    The result is `{"kubernetes": [...], "slurm": [...]}`, each list with the distinct declared
    mappings; both keys are always there.
    """
    schedulers: dict[str, list[Any]] = {name: [] for name in SECTIONS}
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            for name in SECTIONS:
                if isinstance(item.get(name), Mapping) and item[name] not in schedulers[name]:
                    schedulers[name].append(item[name])
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return schedulers


def _is_known_scheduler(declared: KubernetesInputs | SlurmInputs, known: Mapping[str, Any]) -> bool:
    """Return True if the declared scheduler is one of the known ones (GPUFORM_SCHEDULERS)."""
    if isinstance(declared, SlurmInputs):
        # How nodes are drained does not make it another Slurm.
        return any(
            SlurmInputs.model_validate(scheduler).access == declared.access
            for scheduler in known.get("slurm", ())
        )
    return any(
        KubernetesInputs.model_validate(scheduler) == declared
        for scheduler in known.get("kubernetes", ())
    )


def is_emulated(address: str, environ: Mapping[str, str]) -> bool:
    """Return True if the emulator whose clock the run follows answers at the address."""
    clock = urlsplit(environ.get(CLOCK_VARIABLE, ""))
    return bool(clock.netloc) and urlsplit(address)[:2] == clock[:2]


def are_emulated(platforms: Iterable[str] | None = None) -> bool:
    """Return True if an emulator answers this run for all of `platforms`; None: all with one.

    An unknown platform counts as not emulated.
    """
    environ = get_run_context().environ
    platform_by_name = all_platforms()
    if platforms is None:
        platforms = [name for name, platform in platform_by_name.items() if platform.emulator]
    return all(
        platform_name in platform_by_name
        and is_emulated(environ.get(platform_by_name[platform_name].address, ""), environ)
        for platform_name in platforms
    )


RECORD: Final = "world"
"""The name of the record, which is fixed by existing states."""

_lock = threading.Lock()


class WrongEnvironment(EngineError):
    """A stack's objects live in another environment than the one that would be asked."""

    help_page = "concepts/stack"


@dataclass(frozen=True)
class StackEnvironment:
    """The environment of a stack.

    Args:
        emulated: the stack is on an emulator.
        addresses: the addresses of real platforms that the stack has used, by platform.
        emulator: the identity of the emulator's data. Empty: the stack has met no emulator yet, and
            will belong to the first one. None: a record from before emulators had an identity.
    """

    emulated: bool
    addresses: Mapping[str, str] = field(default_factory=dict)
    emulator: str | None = None

    def with_address(self, platform: str, address: str) -> "StackEnvironment":
        """Return a copy of the record with the address of a platform used by the stack."""
        return replace(self, addresses={**self.addresses, platform: address})


def read_environment(records: Records) -> StackEnvironment | None:
    """Return the stack's record of its emulator or platform addresses; None before any use.

    Raises:
        GpuformError: the record is damaged.
    """
    return read_record(records, RECORD, StackEnvironment)


def record_environment(records: Records, environment: StackEnvironment) -> None:
    """Store the stack's emulator or platform addresses beside the state."""
    fields = asdict(environment)
    if environment.emulator is None:
        del fields["emulator"]
    records.write(RECORD, fields)


def find_address(platform: str, settings: Settings) -> str | None:
    """Return the URL of a platform under `settings`, or None if unknown.

    The URL has no credentials.
    """
    try:
        url: str | None = platforms()[platform].import_module("client").get_base_url(settings)
        parts = urlsplit(url or "")
    except (GpuformError, ValueError):
        return None
    # What stands before an @ may be a password.
    location = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{location}{parts.path}" if location else None


def enter_environment(context: ProviderContext, platform: str, settings: Settings) -> None:
    """Record the platform's address or emulator before a call uses the platform.

    Does nothing if the address is unknown. In a project whose state is out of reach, the records
    are those of several stacks: nothing is recorded, and only an emulator's clock for a real
    platform is refused. Warns when an old record gets the identity of its emulator.

    Raises:
        WrongEnvironment: the stack belongs to another emulator, or to another address and nothing
            permits this one (see `merge_environment`), or GPUFORM_CLOCK names an emulator's clock
            for a real platform.
        Unreachable: the emulator does not answer.
        OtherEmulator: another emulator answers than the one of GPUFORM_EMULATOR.
    """
    records = context.intents.records
    address = find_address(platform, settings)
    if address is None:
        return
    if isinstance(records, FolderRecords):
        if not is_emulated(address, settings.environ):
            refuse_foreign_clock(settings.environ, f"requests to {platform} would go to {address}")
        return
    with _lock:
        recorded = read_environment(records)
        environment = merge_environment(recorded, platform, address, settings)
        if environment != recorded:
            record_environment(records, environment)
    if (
        recorded is not None
        and recorded.emulated
        and recorded.emulator is None
        and environment.emulator
    ):
        context.on_warning(
            "the stack does not record its emulator: from now on the emulator is "
            f"{environment.emulator}"
        )


def merge_environment(
    recorded: StackEnvironment | None, platform: str, address: str, settings: Settings
) -> StackEnvironment:
    """Return the stack's record of environment, completed by a platform at an address.

    Stores nothing. `recorded` is None before the stack's first use of any platform.

    Raises:
        WrongEnvironment: the stack has used an emulator and the address is real, or the reverse;
            the stack has used the platform at another address, and neither an explicit provider nor
            `--allow new-address` permits this one; or GPUFORM_CLOCK names an emulator's clock for a
            real platform.
        Unreachable: the emulator does not answer.
        OtherEmulator: another emulator answers than the one of GPUFORM_EMULATOR.
    """
    emulated = is_emulated(address, settings.environ)
    if recorded is None:
        recorded = StackEnvironment(emulated)
    if recorded.emulated != emulated:
        raise build_wrong_environment_error(
            recorded, f"requests to {platform} would go to {address}"
        )
    if emulated:
        return merge_emulator(recorded, settings.environ)
    refuse_foreign_clock(settings.environ, f"requests to {platform} would go to {address}")
    earlier_address = recorded.addresses.get(platform, address)
    is_allowed = (
        settings.given or Permission.NEW_ADDRESS in RunContext(settings.environ).permissions
    )
    if earlier_address != address and not is_allowed:
        raise WrongEnvironment(
            f"the stack's objects of {platform} are at {earlier_address}, but requests to "
            f"{platform} would go to {address}",
            hint="correct the address; if the platform has moved: "
            f"--allow {Permission.NEW_ADDRESS}, or {permissions.VARIABLE}="
            f"{Permission.NEW_ADDRESS} in the environment",
        )
    return recorded.with_address(platform, address)


def merge_emulator(recorded: StackEnvironment, environ: Mapping[str, str]) -> StackEnvironment:
    """Return an emulated stack's record with its emulator's identity, filled in if still missing.

    The identity is the one that the emulator at GPUFORM_CLOCK reports. A record that names this
    emulator already, and a record without identity if the emulator reports none, are returned
    unchanged.

    Raises:
        WrongEnvironment: the record names another emulator than the one of this run, or this run
            follows none.
        Unreachable: the emulator does not answer.
        OtherEmulator: another emulator answers than the one of GPUFORM_EMULATOR.
    """
    identity = find_emulator(environ)
    if not recorded.emulator:
        return replace(recorded, emulator=identity) if identity else recorded
    if identity == recorded.emulator:
        return recorded
    address = environ.get(CLOCK_VARIABLE, "")
    raise WrongEnvironment(
        f"the stack lives on emulator {recorded.emulator}, but this run would use another "
        f"emulator: {identity or 'of unknown identity'} at {address}",
        hint="start the emulator with that stack's data (`gpuform emulator start --store FILE`, "
        "or --emulate in the project); if the data is lost, remove the stack: `gpuform "
        "stack rm NAME --force`",
    )


def refuse_foreign_clock(environ: Mapping[str, str], because: str) -> None:
    """Raise WrongEnvironment if GPUFORM_CLOCK names an emulator's clock for a real platform.

    An emulator's clock may be years ahead: a time to live would be over at once.

    Args:
        environ: where the clock's variable may be left over from an emulator.
        because: the evidence that the platform is real, for the message.
    """
    clock = environ.get(CLOCK_VARIABLE)
    if clock:
        raise WrongEnvironment(
            f"{because}, and {CLOCK_VARIABLE} names an emulator's clock at {clock}",
            hint=f"unset {CLOCK_VARIABLE}, which is left over from an emulator; "
            'eval "$(gpuform emulator stop)" unsets all of its variables',
        )


def build_wrong_environment_error(recorded: StackEnvironment, evidence: str) -> WrongEnvironment:
    """Return the error of a run in another environment than the stack's."""
    if recorded.emulated:
        return WrongEnvironment(
            f"the stack lives on the emulator, and {evidence}",
            hint="add --emulate, or set the variables of `gpuform emulator env`; for real "
            "platforms create another stack: `gpuform stack init NAME`",
        )
    return WrongEnvironment(
        f"the stack lives on real platforms, and {evidence}",
        hint="leave out --emulate (or the emulator's variables, GPUFORM_CLOCK among them); to "
        "try something out create another stack: `gpuform stack init NAME --emulate`",
    )


@dataclass(frozen=True, slots=True)
class Live:
    """Current measurements of an object.

    `lines` are for people; `figures` are all measurements in the platform's words, as JSON.
    """

    lines: tuple[str, ...]
    figures: Mapping[str, Any]
