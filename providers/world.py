"""The one world that a stack's objects live in: real platforms at their addresses, or the emulator.

The first call about a stack that is not only looked at records it, with the state; every later one
in another world is refused before it sends anything.
"""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from gpuform.providers import permissions
from gpuform.providers.actions import Settings
from gpuform.providers.calls import CLOCK_VARIABLE, Call, find_emulator
from gpuform.providers.emulated import is_emulated
from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import Permission
from gpuform.providers.platforms import platforms
from gpuform.providers.records import FolderRecords, Records, read_as

RECORD: Final = "world"
"""The name of the record."""

_lock = threading.Lock()


class OtherWorld(GpuformError):
    """A stack's objects live in another world than the one that would be asked about them."""

    page = "concepts/stack"


@dataclass(frozen=True)
class World:
    """`addresses` are those of real platforms by their names, as far as the stack has used them.

    `emulator` is the identity of the emulator's data. Empty: the stack has met no emulator yet, and
    belongs to the first one. None: a record from before emulators had an identity.
    """

    emulated: bool
    addresses: Mapping[str, str] = field(default_factory=dict)
    emulator: str | None = None

    def with_address(self, platform: str, address: str) -> "World":
        """The world once this platform is used at this address."""
        return replace(self, addresses={**self.addresses, platform: address})


def world_of(records: Records) -> World | None:
    """The world that is recorded; None for a stack that has used no platform yet."""
    return read_as(records, RECORD, World)


def record_world(records: Records, world: World) -> None:
    """Keeps it with the state."""
    fields = asdict(world)
    if world.emulator is None:
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


def enter(call: Call, platform: str, settings: Settings) -> None:
    """Record the environment that a call is about to use, or raise OtherWorld.

    Nothing is recorded where records are of several stacks: beside a project whose state is out of
    reach. The clock has to be the platform's all the same.
    """
    records = call.intents.records
    address = address_of(platform, settings)
    if address is None:
        return
    if isinstance(records, FolderRecords):
        if not is_emulated(address, settings.environ):
            refuse_foreign_clock(settings.environ, f"{platform} would be asked at {address}")
        return
    with _lock:
        known = world_of(records)
        world = agreed(known, platform, address, settings)
        if world != known:
            record_world(records, world)
    if known is not None and known.emulated and known.emulator is None and world.emulator:
        call.on_warning(
            f"the stack does not say which emulator it lives on: from now on it is {world.emulator}"
        )


def agreed(known: World | None, platform: str, address: str, settings: Settings) -> World:
    """The stack's world with this platform in it. Raises OtherWorld when it is in the other one."""
    emulated = is_emulated(address, settings.environ)
    if known is None:
        known = World(emulated)
    if known.emulated != emulated:
        raise refusal(known, f"{platform} would be asked at {address}")
    if emulated:
        return on_emulator(known, settings.environ)
    refuse_foreign_clock(settings.environ, f"{platform} would be asked at {address}")
    before = known.addresses.get(platform, address)
    is_meant = settings.given or Permission.NEW_ADDRESS in permissions.given(settings.environ)
    if before != address and not is_meant:
        raise OtherWorld(
            f"the stack's objects of {platform} are at {before}, and {platform} would be asked at "
            f"{address}",
            hint="correct the address; if the platform has moved: "
            f"--allow {Permission.NEW_ADDRESS}, or {permissions.VARIABLE}="
            f"{Permission.NEW_ADDRESS} in the environment",
        )
    return known.with_address(platform, address)


def on_emulator(known: World, environ: Mapping[str, str]) -> World:
    """Return the environment of an emulated stack once it uses the emulator of `environ`.

    Raises:
        OtherWorld: the stack lives on another emulator.
    """
    identity = find_emulator(environ)
    if not known.emulator:
        return replace(known, emulator=identity) if identity else known
    if identity == known.emulator:
        return known
    address = environ.get(CLOCK_VARIABLE, "")
    raise OtherWorld(
        f"the stack lives on emulator {known.emulator}, and this run would be on another one: "
        f"{identity or 'of unknown identity'} at {address}",
        hint="start the emulator with that stack's data (`gpuform emulator start --store FILE`, or "
        "--emulate in the project); if its data is gone: `gpuform stack rm NAME --force`",
    )


def refuse_foreign_clock(environ: Mapping[str, str], because: str) -> None:
    """Raise OtherWorld if an emulator's clock would count for a real platform.

    An emulator's clock may be years ahead: a time to live would be over at once.

    Args:
        environ: where the clock's variable may be left over from an emulator.
        because: what shows that the platform is real.
    """
    clock = environ.get(CLOCK_VARIABLE)
    if clock:
        raise OtherWorld(
            f"{because}, and {CLOCK_VARIABLE} names an emulator's clock at {clock}",
            hint=f"unset {CLOCK_VARIABLE}, which is left over from an emulator; "
            'eval "$(gpuform emulator stop)" unsets all of its variables',
        )


def refusal(known: World, because: str) -> OtherWorld:
    """The error of a run in the other world."""
    if known.emulated:
        return OtherWorld(
            f"the stack lives on the emulator, and {because}",
            hint="add --emulate, or set the variables of `gpuform emulator env`; for "
            "real platforms make another stack: `gpuform stack init NAME`",
        )
    return OtherWorld(
        f"the stack lives on real platforms, and {because}",
        hint="leave out --emulate (or the emulator's variables, GPUFORM_CLOCK among them); to try "
        "something out make another stack: `gpuform stack init NAME --emulate`",
    )
