"""Lets a program know those outputs of another stack that are known.

While several stacks are planned as one, some outputs of a stack reference are known and others are
not. The SDK's `StackReference.get_output` (pulumi/stack_reference.py) waits for all of them as one
value: with one that is unknown it takes all for unknown. `Output.__getitem__` does not.
"""

from asyncio import ensure_future
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pulumi import Output, StackReference
from pulumi.output import Unknown, contains_unknowns

from gpuform.stacks.engine.sdk_patches.patch import Patch, uses

_READING = ("get_output", "require_output")
_SECRECY = "_StackReference__is_secret_name"


@contextmanager
def know_each_output() -> Iterator[None]:
    """For the length of a program."""
    originals = {name: getattr(StackReference, name) for name in _READING}
    for name, original in originals.items():
        setattr(StackReference, name, _one_by_one(original, required=name == "require_output"))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(StackReference, name, original)


def _one_by_one(
    original: Callable[[StackReference, Any], Output[Any]], *, required: bool
) -> Callable[[StackReference, Any], Output[Any]]:
    def output_of(stack: StackReference, name: Any) -> Output[Any]:
        if not isinstance(name, str):
            return original(stack, name)

        def picked(outputs: Any) -> Any:
            if isinstance(outputs, Unknown):
                return outputs
            return outputs[name] if required else outputs.get(name)

        value = stack.outputs.apply(picked, run_with_unknowns=True)

        async def is_known() -> bool:
            found = await value.future(with_unknowns=True)
            return await value.is_known() and not contains_unknowns(found)

        is_secret = getattr(stack, _SECRECY)(name)
        data = (value.future(with_unknowns=True), is_known(), is_secret)
        return Output(value.resources(), *map(ensure_future, data))

    return output_of


def _knows_sdk() -> bool:
    reads = all(uses(getattr(StackReference, name, None), "all", "outputs") for name in _READING)
    return reads and hasattr(StackReference, _SECRECY)


KNOWN_OUTPUTS = Patch(
    name="the outputs of another stack, one by one",
    spares="taking all outputs of another stack for unknown where one is",
    gain="a plan of several stacks says what is known",
    upstream="",
    knows_sdk=_knows_sdk,
    applied=know_each_output,
)
