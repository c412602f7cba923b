"""Choose the stacks of a multi-stack command by --filter and --stack.

Commands with --all call this module; it finds the workspace with `stacks/multi_stack`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuform.stacks.cli.session import Session
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.multi_stack import (
    MultiStackError,
    StackOrder,
    WorkspaceStack,
    find_workspace,
    order_workspace,
    select_by_name,
    select_stacks,
    sort_stacks,
)

if TYPE_CHECKING:
    from gpuform.stacks.review.multi_stack_status_text import StackStatus


@dataclass(frozen=True, slots=True)
class ChosenStacks:
    """The order of all stacks, and the chosen names, each after the stacks that it reads."""

    order: StackOrder
    names: Sequence[str]

    @property
    def stacks(self) -> Sequence[WorkspaceStack]:
        """Return the chosen stacks of the workspace, in their order."""
        return [self.order.workspace.stacks[name] for name in self.names]

    def list_dependencies(self, name: str) -> list[str]:
        """Return the sorted names of the stacks which come before the stack of this name."""
        return sorted(self.order.dependencies[name])


def order_stacks(
    session: Session, filters: Sequence[str], *, runs_programs: bool, applies_plan: bool = False
) -> tuple[StackOrder, set[str]]:
    """Return `order_workspace` of the current folder and of the session's --stack.

    `applies_plan` is True for the apply of a saved plan.
    """
    return order_workspace(
        Path.cwd(),
        session.environ,
        filters,
        session.stack,
        runs_programs=runs_programs,
        # A machine that applies some of a thousand stacks reads the files of these alone.
        has_plan=applies_plan and (session.stack is not None or bool(filters)),
    )


def choose_stacks(session: Session, filters: Sequence[str], problems: Diagnostics) -> ChosenStacks:
    """Return the chosen stacks, and add problems of the workspace's files to `problems`.

    Without any stack in the workspace, or with a git diff that changes none, nothing is chosen, and
    nothing is raised.

    Raises:
        MultiStackError: a flag matches no stack.
    """
    workspace = find_workspace(Path.cwd(), session.environ, problems)
    # Problems in programs are reported where a program runs; these commands run none.
    order = StackOrder.from_workspace(workspace, Diagnostics())
    if not workspace.stacks:
        return ChosenStacks(order, ())
    names = select_stacks(order, filters)
    if session.stack is not None:
        names &= set(select_by_name(workspace, session.stack))
    return ChosenStacks(order, [name for name in sort_stacks(order.dependencies) if name in names])


def require_stacks(session: Session, filters: Sequence[str], problems: Diagnostics) -> ChosenStacks:
    """Return the chosen stacks, as `choose_stacks`.

    Raises:
        MultiStackError: the workspace has problems and no stack, or a flag matches no stack.
    """
    chosen_stacks = choose_stacks(session, filters, problems)
    if problems and not chosen_stacks.order.workspace.stacks:
        raise MultiStackError(f"cannot load the stacks:\n{format_text(list(problems))}")
    return chosen_stacks


def read_statuses(
    session: Session,
    filters: Sequence[str],
    problems: Diagnostics,
    *,
    refresh: bool,
    emulate: bool,
    measures: bool = False,
) -> Iterator["StackStatus"]:
    """Read the status of each chosen stack in turn, or the problem of a stack that is unreadable.

    `measures` is as for `read_status`. Raises MultiStackError as `require_stacks`.
    """
    from gpuform.stacks.operations.status_reading import (  # noqa: PLC0415 - no other command needs it
        StatusQuery,
        read_stack_statuses,
    )

    chosen_stacks = require_stacks(session, filters, problems)
    ask = session.screen.create_passphrase_prompt()
    query = StatusQuery(
        chosen_stacks.order.workspace.root,
        session.environ,
        refresh,
        emulate,
        None if ask is None else lambda name, prompt: ask(f"{name}: {prompt}"),
        measures=measures,
    )
    return read_stack_statuses(chosen_stacks.stacks, query)
