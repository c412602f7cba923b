"""The order in which resources are declared: what one needs comes before it."""

from collections.abc import Sequence

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.topology.checking import Checked
from gpuform.stacks.topology.instances import Instance


def in_order(resources: Sequence[Checked], problems: Diagnostics) -> list[Checked]:
    """The resources in the order of the files, each after what it needs.

    Resources that need each other go to `problems`, as the way from one back to itself.
    """
    by_instance = {each.instance: each for each in resources}
    done: dict[Instance, Checked] = {}
    for first in by_instance:
        _visit(first, by_instance, done, problems)
    return list(done.values())


def _visit(
    first: Instance,
    by_instance: dict[Instance, Checked],
    done: dict[Instance, Checked],
    problems: Diagnostics,
) -> None:
    """Not recursive: a chain may be as long as the topology."""
    path: dict[Instance, None] = {}
    rest = [(first, False)]
    while rest:
        instance, is_end = rest.pop()
        if is_end:
            del path[instance]
            done[instance] = by_instance[instance]
        elif instance in path:
            _refuse(instance, list(path), problems)
        elif instance not in done:
            path[instance] = None
            rest.append((instance, True))
            needed = [need for need in by_instance[instance].needs() if need in by_instance]
            rest += [(need, False) for need in reversed(needed)]


def _refuse(instance: Instance, path: list[Instance], problems: Diagnostics) -> None:
    circle = [*path[path.index(instance) :], instance]
    # From its first declaration on, so that one circle is told once.
    way = " -> ".join(each.address for each in circle)
    place = min(each.declaration.place for each in circle)
    hint = "take out one of these references"
    problems.add_once(place, "cycle", "", f"these need each other: {way}", hint)
