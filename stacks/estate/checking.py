"""`gpuform validate --all`: what is wrong with several stacks, told by their files alone."""

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.estate.members import Estate
from gpuform.stacks.estate.ordering import Order
from gpuform.stacks.gates.file import check_gates


def check_estate(estate: Estate, problems: Diagnostics) -> Order:
    """The order of the stacks; what is wrong with them or between them goes to `problems`."""
    order = Order.of(estate, problems)
    exports = order.exports()
    for name, member in estate.members.items():
        order.told[name].check(exports, problems)
        check_gates(member.project.directory, problems)
    return order
