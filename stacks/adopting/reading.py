"""Asks the platforms what the objects are: all of them by the same few lists."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuform.providers.actions import Settings
from gpuform.providers.calls import Call, clock_from, serving
from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Intents, Unkept
from gpuform.stacks.adopting.chosen import ImportChoice
from gpuform.stacks.engine.errors import EngineError

READERS = 256
MOST_TOLD = 10


@dataclass(frozen=True, slots=True)
class Found:
    """An object as its platform shows it.

    `inputs` are what a program would declare of it; `outputs` all that there is to know.
    """

    wanted: ImportChoice
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


def read(wanted: Sequence[ImportChoice], settings: Settings) -> list[Found]:
    """Each object. Raises EngineError with what is wrong with all of them."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="import") as pool:
        # The record of creates under way belongs to the runs that make them.
        intents, began = Intents(Unkept()), time.monotonic()

        def call() -> Call:
            return Call(clock=clock_from(os.environ), intents=intents, as_of=began)

        one = partial(_read, settings=settings, new_call=call)
        found = list(pool.map(one, wanted))
    problems = [each for each in found if isinstance(each, str)]
    if problems:
        more = len(problems) - MOST_TOLD
        told = [*problems[:MOST_TOLD], *([f"and {more} more"] if more > 0 else [])]
        raise EngineError("\n".join(told), hint="check the ids, and whose credentials are used")
    return [each for each in found if isinstance(each, Found)]


def _read(wanted: ImportChoice, settings: Settings, new_call: Callable[[], Call]) -> Found | str:
    lifecycle = lifecycle_class(wanted.platform, wanted.kind)
    settings = replace(settings, region=wanted.region or settings.region)
    try:
        with serving(new_call()):
            found = lifecycle.using(settings).read(wanted.id, {})
    except GpuformError as error:
        return f"{wanted}: {error}"
    if not found.id:
        return f"{wanted}: the platform has no such object"
    return Found(wanted, found.inputs or {}, found.outs or {})
