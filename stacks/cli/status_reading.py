"""What `gpuform status` shows, gathered from the state, the platforms and Lens; nothing changes."""

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from gpuform.providers.actions import Settings
from gpuform.providers.call import Call
from gpuform.providers.errors import GpuformError
from gpuform.providers.intents import Intents
from gpuform.providers.lens.client import client_for, is_configured
from gpuform.providers.summary import Summary, summary_of
from gpuform.schemas.footprint import Footprint
from gpuform.stacks.cli.appraising import config_of
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.costs import cost_of, priced
from gpuform.stacks.pricing.footprints import footprint_now
from gpuform.stacks.review.names import short_type
from gpuform.stacks.review.outputs_text import shown
from gpuform.stacks.review.status_text import Monitoring, ResourceStatus, Status

READERS = 32


def status_of(stack: Stack, environ: Mapping[str, str], *, refresh: bool) -> Status:
    """The stack as its state has it, or with `refresh` as the platforms show it now."""
    config = config_of(stack)
    entries = [
        entry
        for entry in stack.snapshot.resources
        if entry.custom and entry.type != STACK_TYPE and not is_provider(entry.type)
        # An old object that waits for its deletion shows in a plan, not here.
        if not (entry.delete or entry.pending_replacement)
    ]
    book = PriceBook.read(stack.project.directory)
    found = _read(stack, config, entries) if refresh else [_stored(entry) for entry in entries]
    found = [replace(each, footprint=priced(each.footprint, book)) for each in found]
    cost = cost_of((each.name, each.footprint) for each in found)
    settings = Settings(config=config.get, environ=environ)
    monitoring = _monitoring(settings) if is_configured(settings) else None
    is_told = book.prices is not None or cost.amounts
    return Status(stack.name, found, monitoring, cost if is_told else None)


def _stored(entry: ResourceState) -> ResourceStatus:
    return _status(entry, entry.outputs)


def _read(
    stack: Stack, config: Mapping[str, str], entries: list[ResourceState]
) -> list[ResourceStatus]:
    """Each resource as its platform shows it; as stored, and why, where that cannot be had."""
    with tempfile.TemporaryDirectory() as empty:
        # The record of creates under way belongs to the runs that make them.
        intents = Intents(Path(empty))
        host = ProviderHost(
            stack.project.name,
            config,
            lambda urn, timeout: Call(urn=urn, timeout=timeout, intents=intents),
        )

        host.plugins.know(stack.snapshot.resources)

        def one(entry: ResourceState) -> ResourceStatus:
            try:
                read = host.read(
                    entry.urn, entry.id, entry.inputs, entry.outputs, provider=entry.provider
                )
            except EngineError as error:
                return _status(entry, entry.outputs, problem=str(error))
            if read is None:
                return _status(entry, {}, problem="it is gone from the platform")
            return _status(entry, read[0].outputs)

        with ThreadPoolExecutor(READERS, thread_name_prefix="status") as pool:
            return list(pool.map(one, entries))


def _status(entry: ResourceState, outputs: PropertyMap, problem: str = "") -> ResourceStatus:
    type_ = short_type(entry.type)
    platform, _, kind = type_.partition(":")
    summary = summary_of(platform, kind, shown(outputs)) if outputs else Summary()
    seen = replace(entry, outputs=outputs)
    footprint = footprint_now(seen) if outputs and not entry.external else Footprint()
    return ResourceStatus(name_of(entry.urn), type_, entry.id, summary, problem, footprint)


def _monitoring(settings: Settings) -> Monitoring:
    """What Lens tells; of what it does not tell, why."""
    client = client_for(settings)
    try:
        overview = client.overview()
        heatmap = client.heatmap()
        consumers = client.consumers()
    except GpuformError as error:
        return Monitoring(problem=str(error))
    return Monitoring(overview, heatmap, consumers)
