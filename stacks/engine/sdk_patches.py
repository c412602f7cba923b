"""Patch the Pulumi SDK while a program runs, so that it does less work for each resource.

Each patch says what it saves, what was measured, and how it recognizes the SDK that it is made for.
Another SDK stays unpatched: the program runs as before, only slower. `language_host` runs programs
in `apply_patches`; `gpuform doctor` lists the patches that are inactive.

Each patch detects an SDK that it does not know, and then does nothing.

The SDK's `wait_for_rpcs` (pulumi/runtime/stack.py) waits for every outstanding output, and begins
again with all that are left each time one of them completes. Nothing is done in between, so one
wait until all are complete, or one has failed, comes to the same.

The SDK's `serialize_provider` (pulumi/dynamic/dynamic.py) wraps a method of Python's pickler at
each call and never unwraps it: after some 900 calls in a process, pickling a provider that is
defined in the program ends in a RecursionError, and each call costs more than the one before.

To read the answer about a resource, the SDK's `resolve_outputs` (pulumi/runtime/rpc.py) asks
`resource_types` (pulumi/_types.py) for the types of its properties; that makes a new class and
evaluates every annotation each time, which for a class of forty outputs is a quarter of the cost.

While several stacks are planned as one, some outputs of a stack reference are known and others are
not. The SDK's `StackReference.get_output` (pulumi/stack_reference.py) waits for all of them as one
value: with one that is unknown it takes all for unknown. `Output.__getitem__` does not.

For the trace of a resource the SDK's `_get_stack_trace` (pulumi/runtime/resource.py) has Python
check the file of every frame and read its line, which nobody asks for, and makes a path and a URI
of each. A program of thousands of resources declares them in a few places.
"""

import asyncio
import pickle
import sys
import traceback
from asyncio import ensure_future
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from inspect import unwrap
from types import FunctionType
from typing import Any, Final

from pulumi import Output, StackReference, _types
from pulumi.dynamic import dynamic
from pulumi.output import Unknown, contains_unknowns
from pulumi.runtime import resource, rpc, stack


@dataclass(frozen=True, slots=True)
class Patch:
    """One patch of the SDK: the saved work, the measured gain, and Pulumi's page about it.

    `knows_sdk` changes nothing. `apply` patches an SDK that it knows, and restores the SDK at the
    end.
    """

    name: str
    saved_work: str
    gain: str
    upstream: str
    knows_sdk: Callable[[], bool]
    apply: Callable[[], AbstractContextManager[None]]


def has_names(function: object, *names: str) -> bool:
    """Return True if the code of an SDK function uses all of the names."""
    if not isinstance(function, FunctionType):
        return False
    return set(names) <= set(unwrap(function).__code__.co_names)


_ASYNCIO = "asyncio"


class _PatchedAsyncio:
    """The asyncio module, except for the one name that says when a wait returns."""

    # Returns once all are complete or one has failed, not at every completion.
    FIRST_COMPLETED = asyncio.FIRST_EXCEPTION

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio, name)


@contextmanager
def wait_once() -> Iterator[None]:
    """Make the SDK wait for all outputs at once, not once per output, in the context.

    The wait also ends when an output fails.
    """
    setattr(stack, _ASYNCIO, _PatchedAsyncio())
    try:
        yield
    finally:
        setattr(stack, _ASYNCIO, asyncio)


def _is_wait_known() -> bool:
    """Return True if the SDK waits with the functions replaced by this patch."""
    wait_function = getattr(stack, "wait_for_rpcs", None)
    return getattr(stack, _ASYNCIO, None) is asyncio and has_names(
        wait_function, _ASYNCIO, "FIRST_COMPLETED"
    )


ONE_WAIT = Patch(
    name="one wait for all outputs",
    saved_work="a wait for every outstanding output, restarted whenever an output completes",
    gain="5000 creates that take time: 244 s become 15.6 s",
    upstream="https://github.com/pulumi/pulumi/pull/15744",
    knows_sdk=_is_wait_known,
    apply=wait_once,
)


_SERIALIZE = "serialize_provider"
_WRAPPED = ("_batch_setitems", "save_dict")


@contextmanager
def unwrap_pickler() -> Iterator[None]:
    """Remove the SDK's wrappers from Python's pickler after each serialization in the context."""
    serialize = dynamic.serialize_provider
    pickler: Any = getattr(pickle, "_Pickler")  # noqa: B009 - typeshed does not know it
    methods = {name: getattr(pickler, name) for name in _WRAPPED}

    def restore() -> None:
        for name, method in methods.items():
            setattr(pickler, name, method)

    @wraps(serialize)
    def serialize_once(provider: object) -> object:
        try:
            return serialize(provider)
        finally:
            restore()

    setattr(dynamic, _SERIALIZE, serialize_once)
    try:
        yield
    finally:
        setattr(dynamic, _SERIALIZE, serialize)
        restore()


def _is_pickling_known() -> bool:
    """Return True if the SDK pickles providers with the functions replaced by this patch."""
    pickler = getattr(pickle, "_Pickler", None)
    is_as_known = has_names(getattr(dynamic, _SERIALIZE, None), "Pickler", *_WRAPPED)
    return is_as_known and all(hasattr(pickler, name) for name in _WRAPPED)


UNWRAPPED_PICKLER = Patch(
    name="a pickler without added wrappers",
    saved_work="one more wrapper of Python's pickler for every provider that is pickled",
    gain="any number of pickled providers; without the patch, some 900 end in a RecursionError",
    upstream="https://github.com/pulumi/pulumi/issues/17803",
    knows_sdk=_is_pickling_known,
    apply=unwrap_pickler,
)


_RESOURCE_TYPES = "resource_types"


@contextmanager
def cache_property_types() -> Iterator[None]:
    """Cache the property types of resource classes while the context runs a program."""
    original = _types.resource_types
    cached_types = cache(original)

    def resource_types(resource_cls: type) -> dict[str, Any]:
        # A copy, because a caller may change the dictionary that the SDK returns.
        return dict(cached_types(resource_cls))

    setattr(_types, _RESOURCE_TYPES, resource_types)
    try:
        yield
    finally:
        setattr(_types, _RESOURCE_TYPES, original)


def _is_type_lookup_known() -> bool:
    """Return True if the SDK looks up output types with the function replaced by this patch."""
    asks = getattr(rpc, "resolve_outputs", None)
    return getattr(rpc, "_types", None) is _types and has_names(asks, "_types", _RESOURCE_TYPES)


REMEMBERED_TYPES = Patch(
    name="types of a resource class computed once",
    saved_work="a new class, with every annotation evaluated, for each resource",
    gain="1500 resources on the SDK alone: 4.4 s of processor time, without any patch 6.0 s",
    upstream="",
    knows_sdk=_is_type_lookup_known,
    apply=cache_property_types,
)


_READING = ("get_output", "require_output")
# A private method of StackReference, under its mangled name.
_SECRECY = "_StackReference__is_secret_name"


@contextmanager
def read_outputs_separately() -> Iterator[None]:
    """Make an unknown output of a stack reference leave the stack's other outputs known.

    The patch holds while the context runs a program.
    """
    originals = {name: getattr(StackReference, name) for name in _READING}
    for name, original in originals.items():
        setattr(
            StackReference,
            name,
            _read_outputs_separately(original, required=name == "require_output"),
        )
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(StackReference, name, original)


def _read_outputs_separately(
    original: Callable[[StackReference, Any], Output[Any]], *, required: bool
) -> Callable[[StackReference, Any], Output[Any]]:
    """Return a `get_output` of StackReference without a wait for other outputs of the stack.

    The returned output is unknown only if the output of this name is unknown. If the SDK's method
    `original` were used, one unknown output would make all of them unknown; it is called only for a
    name that is itself an output. With `required`, a missing output raises KeyError; otherwise it
    is None.
    """

    def get_output(stack: StackReference, name: Any) -> Output[Any]:
        if not isinstance(name, str):
            return original(stack, name)

        def select_output(outputs: Any) -> Any:
            if isinstance(outputs, Unknown):
                return outputs
            return outputs[name] if required else outputs.get(name)

        # Without `run_with_unknowns` one unknown output makes the SDK skip the function.
        value = stack.outputs.apply(select_output, run_with_unknowns=True)

        async def is_known() -> bool:
            output_value = await value.future(with_unknowns=True)
            return await value.is_known() and not contains_unknowns(output_value)

        is_secret = getattr(stack, _SECRECY)(name)
        data = (value.future(with_unknowns=True), is_known(), is_secret)
        return Output(value.resources(), *map(ensure_future, data))

    return get_output


def _is_stack_reference_known() -> bool:
    """Return True if the SDK's StackReference has the members used by this patch."""
    reads = all(
        has_names(getattr(StackReference, name, None), "all", "outputs") for name in _READING
    )
    return reads and hasattr(StackReference, _SECRECY)


KNOWN_OUTPUTS = Patch(
    name="single unknown outputs of a stack reference",
    saved_work="all outputs of a referenced stack are unknown if one is",
    gain="a plan of several stacks shows every known output",
    upstream="",
    knows_sdk=_is_stack_reference_known,
    apply=read_outputs_separately,
)


_MODULE = "traceback"
_POSITION = "_get_source_position_for_frame"


class _PatchedTraceback:
    """The traceback module, except for the one function that gets the frames."""

    def extract_stack(self) -> list[traceback.FrameSummary]:
        """Return the caller's stack, the innermost frame last, without reading source lines."""
        frames = []
        frame = sys._getframe(1)  # noqa: SLF001 - as the traceback module does
        for stack_frame, line in traceback.walk_stack(frame):
            code = stack_frame.f_code
            frames.append(
                traceback.FrameSummary(code.co_filename, line, code.co_name, lookup_line=False)
            )
        return frames[::-1]

    def __getattr__(self, name: str) -> object:
        return getattr(traceback, name)


@contextmanager
def cache_positions() -> Iterator[None]:
    """Cache the source positions of declarations while the context runs a program."""
    original = getattr(resource, _POSITION)
    position_by_place: dict[tuple[str, int | None], Any] = {}

    def get_position(frame: traceback.FrameSummary) -> Any:
        code_place = (frame.filename, frame.lineno)
        if code_place not in position_by_place:
            position_by_place[code_place] = original(frame)
        return position_by_place[code_place]

    setattr(resource, _MODULE, _PatchedTraceback())
    setattr(resource, _POSITION, get_position)
    try:
        yield
    finally:
        setattr(resource, _MODULE, traceback)
        setattr(resource, _POSITION, original)


def _is_stack_trace_known() -> bool:
    """Return True if the SDK finds stack traces with the functions replaced by this patch."""
    finds = getattr(resource, "_get_stack_trace", None)
    return (
        getattr(resource, _MODULE, None) is traceback
        and callable(getattr(resource, _POSITION, None))
        and has_names(finds, _MODULE, "extract_stack")
    )


REMEMBERED_POSITIONS = Patch(
    name="cached positions of declarations",
    saved_work="a file lookup for every frame of the program's call stack, for each resource",
    gain="a part of the time measured with REMEMBERED_TYPES; alone within the noise",
    upstream="https://github.com/pulumi/pulumi/issues/13436",
    knows_sdk=_is_stack_trace_known,
    apply=cache_positions,
)


PATCHES: Final = (
    ONE_WAIT,
    UNWRAPPED_PICKLER,
    REMEMBERED_TYPES,
    REMEMBERED_POSITIONS,
    KNOWN_OUTPUTS,
)
TRIED: Final = ("3.270.0", "3.271.0", "3.272.0")
"""The SDKs with which the tests of all patches pass."""


def find_inactive_patches() -> list[Patch]:
    """Return the patches which were not written for the installed SDK."""
    return [patch for patch in PATCHES if not patch.knows_sdk()]


@contextmanager
def apply_patches() -> Iterator[None]:
    """Apply every patch written for the installed SDK, while the context runs a program."""
    inactive_patches = find_inactive_patches()
    with ExitStack() as applied:
        for patch in PATCHES:
            if patch not in inactive_patches:
                applied.enter_context(patch.apply())
        yield
