"""`gpuform validate --all`: what is wrong with several stacks, told by their files alone."""

from collections.abc import Collection, Mapping

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.estate.members import Member
from gpuform.stacks.estate.ordering import Order
from gpuform.stacks.gates.file import check_gates, check_gates_over
from gpuform.stacks.topology.planning import Planned


def check_estate(
    order: Order, names: Collection[str], problems: Diagnostics
) -> Mapping[str, Planned]:
    """Checks these stacks, and what is over all; what is wrong goes to `problems`.

    Returns what their topologies declare.
    """
    estate, exports = order.estate, order.exports()
    planned: dict[str, Planned] = {}
    if estate.file is not None:
        check_gates_over(estate.file, problems)
    for name in names:
        member = estate.members[name]
        problems.extend(order.found[name])
        _check_settings(member, problems)
        found = order.told[name].check(exports, problems)
        if found is not None:
            planned[name] = found
        check_gates(member.project.directory, problems)
    return planned


def _check_settings(member: Member, problems: Diagnostics) -> None:
    path = member.project.settings_path(member.stack)
    if not path.exists():
        message = f"there is no {path.name} for the stack {member.name}"
        hint = "make it: `gpuform stack init --all`, or name another"
        problems.add(member.place, "unknown-stack", message, hint)
