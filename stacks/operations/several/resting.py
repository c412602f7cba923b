"""What the stacks cost of which no plan is made: a budget over all counts them as they are."""

from collections.abc import Iterator, Mapping

from gpuform.schemas.errors import UserError
from gpuform.schemas.plan import StackCost
from gpuform.stacks.engine.store import read_sealed
from gpuform.stacks.engine.urn import is_noise, name_of
from gpuform.stacks.estate import Estate, Member
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.costs import cost_of, priced
from gpuform.stacks.pricing.footprints import footprint_now


def resting_costs(
    estate: Estate, planned: Mapping[str, object], environ: Mapping[str, str]
) -> Iterator[tuple[str, StackCost]]:
    """By name, the cost of each stack that is not planned, by its last state."""
    for name, member in estate.members.items():
        if name not in planned:
            try:
                yield name, _cost(member, environ)
            except UserError as error:
                yield name, StackCost(unknown=(f"cannot be read: {error.message}",))


def _cost(member: Member, environ: Mapping[str, str]) -> StackCost:
    workspace = member.workspace(environ)
    if not workspace.backend.exists(member.project.name, member.stack):
        return StackCost()
    state = read_sealed(workspace.backend, member.project.name, member.stack)
    book = PriceBook.read(member.project.directory)
    there = [
        entry
        for entry in state.snapshot.resources
        if entry.custom and not (entry.external or entry.delete or is_noise(entry.type))
    ]
    return cost_of((name_of(each.urn), priced(footprint_now(each), book)) for each in there)
