"""Resources as their platforms show them now; the state stays as it is."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from gpuform.providers.calls import Call
from gpuform.providers.records import Intents, Unkept
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.stack.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import PropertyMap

READERS: Final = 32


@dataclass(frozen=True, slots=True)
class LiveResource:
    """What was read of a resource; `outputs` are None when it could not be read, or is gone.

    `problem` says why it could not be read.
    """

    outputs: PropertyMap | None
    problem: str = ""


def read_resources(
    stack: Stack, config: Mapping[str, str], entries: Sequence[ResourceState]
) -> list[LiveResource]:
    """Reads entries of the stack's state, in their order.

    `config` is the stack's in plain text, by full keys.
    """
    # The record of creates under way belongs to the runs that make them.
    intents = Intents(Unkept())
    host = ProviderHost(
        stack.project.name,
        config,
        lambda urn, timeout: Call(urn=urn, timeout=timeout, intents=intents),
    )
    host.plugins.know(stack.snapshot.resources)

    def one(entry: ResourceState) -> LiveResource:
        try:
            read = host.read(
                entry.urn, entry.id, entry.inputs, entry.outputs, provider=entry.provider
            )
        except EngineError as error:
            return LiveResource(None, error.message)
        return LiveResource(read[0].outputs if read else None)

    with ThreadPoolExecutor(READERS, thread_name_prefix="reading") as pool:
        return list(pool.map(one, entries))
