"""`gpuform validate --all`: what is wrong with several stacks, told by their files alone."""

from collections.abc import Collection, Mapping

from gpuform.schemas.reasons import nearest
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.estate.members import Member
from gpuform.stacks.estate.ordering import Order
from gpuform.stacks.estate.reading import stacks_with_settings
from gpuform.stacks.gates.file import check_gates, check_gates_over
from gpuform.stacks.topology.files import shown
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
        if not order.told[name].has_program:
            _tell_missing(member, problems)
        found = order.told[name].check(exports, problems)
        if found is not None:
            planned[name] = found
        check_gates(member.project.directory, problems)
    return planned


def _check_settings(member: Member, problems: Diagnostics) -> None:
    """A name that no settings have, beside others that some have, is probably misspelt."""
    path = member.project.settings_path(member.stack)
    others = stacks_with_settings(member.project)
    if others and not path.exists():
        message = f"there is no {path.name} for the stack {member.name}"
        near = nearest(member.stack, tuple(others))
        meant = f"did you mean {near}?" if near else f"there is {', '.join(others)}"
        hint = f"{meant}; `gpuform stack init --all` makes it"
        problems.add(member.place, "unknown-stack", message, hint)


def _tell_missing(member: Member, problems: Diagnostics) -> None:
    program = member.project.program
    why = "has neither topology.yaml nor __main__.py" if program.is_dir() else "does not exist"
    hint = "write it, or name its folder or file as `main` in Pulumi.yaml"
    place = SourcePosition(shown(member.project.path))
    problems.add(place, "program", f"there is no program: {shown(program)} {why}", hint)
