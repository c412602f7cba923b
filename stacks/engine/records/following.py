"""Records follow resources that get other URNs: intents, so that no id is lost, and the world."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from gpuform.providers.records import Intents, Records
from gpuform.providers.world import OtherWorld, record_world, world_of
from gpuform.stacks.engine.records.kept import errors_of_engine


@contextmanager
def intents_follow(source: Intents, target: Intents, names: Mapping[str, str]) -> Iterator[None]:
    """Around the writing of a state in which URNs change, old -> new; `target` is the new stack's.

    Both are kept meanwhile; in the end those of the state that was written. Raises EngineError when
    the two stacks live in different worlds.
    """
    with errors_of_engine():
        _follow_world(source.records, target.records)
    old = [intent for intent in source.all() if intent.urn in names]
    new = [replace(intent, urn=names[intent.urn]) for intent in old if intent.urn]
    for intent in new:
        target.record(intent)
    try:
        yield
    except BaseException:
        target.forget_all(new)
        raise
    source.forget_all(old)


def _follow_world(source: Records, target: Records) -> None:
    world, known = world_of(source), world_of(target)
    if world is None or world == known:
        return
    if known is not None and known.emulated != world.emulated:
        raise OtherWorld(
            "one of the two stacks lives on the emulator, the other one on real platforms",
            hint="move resources between stacks of one world",
        )
    if known is not None and known.emulator and world.emulator not in (None, "", known.emulator):
        raise OtherWorld(
            f"one stack lives on emulator {world.emulator}, the other one on {known.emulator}",
            hint="move resources between stacks of one emulator",
        )
    for platform, address in world.addresses.items():
        there = known.addresses.get(platform, address) if known else address
        if there != address:
            raise OtherWorld(
                f"one stack's objects of {platform} are at {address}, the other one's at {there}",
                hint="move resources between stacks of one world",
            )
    addresses = {**world.addresses, **(known.addresses if known else {})}
    emulator = (known and known.emulator) or world.emulator
    record_world(target, replace(world, addresses=addresses, emulator=emulator))
