"""Choose the stacks of a multi-stack command by --filter and --stack."""

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
class ChosenStacks:
    """The order of all stacks, and the chosen names, each after the stacks that it reads."""

    order: Order
    names: Sequence[str]

    @property
    def members(self) -> Sequence[Member]:
        """Return the chosen stacks."""
        return [self.order.estate.members[name] for name in self.names]

    def list_dependencies(self, name: str) -> list[str]:
        """Return the names of the stacks that come before this one."""
        return sorted(self.order.needs[name])


def order_stacks(
    session: Session, filters: Sequence[str], *, runs_programs: bool
) -> tuple[Order, set[str]]:
    """Return the order of all stacks, and the names of the chosen ones.

    Where no program is run, problems inside of a stack's files do not count: the states have the
    order.

    Raises:
        EstateError: the stacks cannot be ordered.
    """
    problems, program_problems = Diagnostics(), Diagnostics()
    order = Order.of(find_estate(Path.cwd(), session.environ, problems), program_problems)
    if runs_programs:
        problems.extend(program_problems)
    if problems:
        raise EstateError(f"the stacks cannot be put in order:\n{format_text(list(problems))}")
    names = filtered(order, filters)
    if session.stack is not None:
        names &= set(named(order.estate, session.stack))
    return order, names


def choose_stacks(session: Session, filters: Sequence[str], problems: Diagnostics) -> ChosenStacks:
    """Return the chosen stacks, and add problems of the workspace's files to `problems`.

    Raises:
        EstateError: the flags match no stack.
    """
    estate = find_estate(Path.cwd(), session.environ, problems)
    order = Order.of(estate, Diagnostics())
    if not estate.members:
        return ChosenStacks(order, ())
    names = filtered(order, filters)
    if session.stack is not None:
        names &= set(named(estate, session.stack))
    return ChosenStacks(order, [name for name in sequence(order.needs) if name in names])


def require_any_stack(chosen: ChosenStacks, problems: Diagnostics) -> None:
    """Raise EstateError with the problems if they leave no stack."""
    if problems and not chosen.order.estate.members:
        raise EstateError(f"the stacks are not known:\n{format_text(list(problems))}")
