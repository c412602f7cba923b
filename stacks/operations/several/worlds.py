"""`--emulate` for several stacks: one emulator for all that share one."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpuform.stacks.estate import Estate
from gpuform.stacks.operations.opening.emulating import emulators, shared_store


@contextmanager
def emulated(
    estate: Estate, names: Iterable[str], *, wanted: bool
) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """The variables that lead each stack's process to its emulator; none when not wanted.

    Stacks whose folders have no emulator of their own share one in the folder of all.
    """
    if not wanted:
        yield {}
        return
    folders = {name: estate.members[name].project.directory for name in names}
    stores: dict[str, Path] = {
        name: shared_store(folder, estate.root) for name, folder in folders.items()
    }
    with ExitStack() as held:
        variables = held.enter_context(emulators(sorted(set(stores.values()))))
        yield {name: variables[store] for name, store in stores.items()}
