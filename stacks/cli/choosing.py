"""Which stacks a command that only looks at several is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.stacks.cli.session import Session
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.multi_stack import (
    EstateError,
    Member,
    Order,
    filtered,
    find_estate,
    named,
    sequence,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The order of all stacks, and the names of the chosen ones, each after what it reads."""

    order: Order
    names: Sequence[str]

    @property
    def members(self) -> Sequence[Member]:
        """The chosen stacks."""
        return [self.order.estate.members[name] for name in self.names]

    def reads(self, name: str) -> list[str]:
        """The stacks that come before this one, by name."""
        return sorted(self.order.needs[name])


def ordered(
    session: Session, filters: Sequence[str], *, runs_programs: bool
) -> tuple[Order, set[str]]:
    """The stacks in their order, and the names of those that the flags mean.

    Raises EstateError for what is wrong with them. Where no program is run, what is wrong in one of
    them is not asked: the states tell the order.
    """
    problems, within = Diagnostics(), Diagnostics()
    order = Order.of(find_estate(Path.cwd(), session.environ, problems), within)
    if runs_programs:
        problems.extend(within)
    if problems:
        raise EstateError(f"the stacks cannot be put in order:\n{format_text(list(problems))}")
    found = filtered(order, filters)
    if session.stack is not None:
        found &= set(named(order.estate, session.stack))
    return order, found


def chosen_of(session: Session, filters: Sequence[str], problems: Diagnostics) -> Chosen:
    """What keeps stacks from being known goes to `problems`; what is in them, to the order.

    Raises EstateError for flags that mean no stack.
    """
    estate = find_estate(Path.cwd(), session.environ, problems)
    order = Order.of(estate, Diagnostics())
    if not estate.members:
        return Chosen(order, ())
    found = filtered(order, filters)
    if session.stack is not None:
        found &= set(named(estate, session.stack))
    return Chosen(order, [name for name in sequence(order.needs) if name in found])


def refuse_unknown(chosen: Chosen, problems: Diagnostics) -> None:
    """Raises EstateError with the problems where they leave no stack."""
    if problems and not chosen.order.estate.members:
        raise EstateError(f"the stacks are not known:\n{format_text(list(problems))}")
