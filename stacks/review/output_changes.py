"""The outputs of a stack that a run changes, as the plan has them."""

from collections.abc import Iterator
from typing import Any

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import OutputChange
from gpuform.stacks.engine.values import (
    UNKNOWN,
    PropertyMap,
    PropertyValue,
    Secret,
    contains_unknown,
    unwrap,
)
from gpuform.stacks.review.outputs_text import differs, shown


def output_changes(before: PropertyMap, after: PropertyMap) -> Iterator[OutputChange]:
    """One for each output that comes, changes or goes, by name.

    It is secret when all of it is; a secret inside one is masked in its place.
    """
    for name in sorted({*before, *after}):
        if differs(name, before, after):
            action = Action.UPDATE if name in before else Action.ADD
            old, new = before.get(name), after.get(name)
            yield OutputChange(
                name=name,
                action=action if name in after else Action.DELETE,
                before=_plain(old),
                after=_plain(new),
                unknown=contains_unknown(new),
                secret=isinstance(old, Secret) or isinstance(new, Secret),
            )


def _plain(value: PropertyValue) -> Any:
    return None if unwrap(value) is UNKNOWN else shown(value)
