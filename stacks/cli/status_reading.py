"""What `gpuform status` shows, gathered from the state, the platforms and Lens; nothing changes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuform.providers.actions import Settings
from gpuform.providers.clock import clock_from, synchronised
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.client import client_for, is_configured
from gpuform.providers.summary import Summary, summary_of
from gpuform.schemas.footprint import Footprint
from gpuform.stacks.cli.appraising import config_of
from gpuform.stacks.engine.live_reading import read_now
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.expiry.noticing import notices_of_entries
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.costs import cost_of, priced
from gpuform.stacks.pricing.footprints import footprint_now
from gpuform.stacks.review.names import short_type
from gpuform.stacks.review.outputs_text import shown
from gpuform.stacks.review.status_text import Monitoring, ResourceStatus, Status


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
    seen = _read(stack, config, entries) if refresh else [_Seen(entry) for entry in entries]
    found = [_status(each, book) for each in seen]
    there = [each.entry for each in seen if each.entry.outputs]
    notices = notices_of_entries(there, synchronised(clock_from(environ)).now())
    cost = cost_of((each.name, each.footprint) for each in found)
    settings = Settings(config=config.get, environ=environ)
    monitoring = _monitoring(settings) if is_configured(settings) else None
    is_told = book.prices is not None or cost.amounts
    return Status(stack.name, found, monitoring, cost if is_told else None, notices)


@dataclass(frozen=True, slots=True)
class _Seen:
    """An entry with the outputs last seen, and why they could not be had now."""

    entry: ResourceState
    problem: str = ""


def _read(stack: Stack, config: Mapping[str, str], entries: list[ResourceState]) -> list[_Seen]:
    """Each resource as its platform shows it; as stored, and why, where that cannot be had."""
    found = []
    for entry, seen in zip(entries, read_now(stack, config, entries), strict=True):
        if seen.problem:
            found.append(_Seen(entry, seen.problem))
        elif seen.outputs is None:
            found.append(_Seen(replace(entry, outputs={}), "it is gone from the platform"))
        else:
            found.append(_Seen(replace(entry, outputs=seen.outputs)))
    return found


def _status(seen: _Seen, book: PriceBook) -> ResourceStatus:
    entry, outputs = seen.entry, seen.entry.outputs
    type_ = short_type(entry.type)
    platform, _, kind = type_.partition(":")
    summary = summary_of(platform, kind, shown(outputs)) if outputs else Summary()
    footprint = footprint_now(entry) if outputs and not entry.external else Footprint()
    name, priced_ = name_of(entry.urn), priced(footprint, book)
    return ResourceStatus(name, type_, entry.id, summary, seen.problem, priced_)


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
