"""What the keys of a run may not do, asked before its first step, once for each platform."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import all_kinds, lifecycle_class
from gpuform.schemas.plan import PlanAction, ResourceChange
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.urn import name_of, type_of
from gpuform.stacks.lifecycles import lifecycle_of, write_refusal
from gpuform.stacks.operations.opening.worlds import config_of

_WRITING: Final = frozenset({"create", "update", "replace", "delete"})
"""The effects of steps that a platform is asked for."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Rights:
    """The keys of one run."""

    settings: Settings

    @classmethod
    def of(cls, stack: Stack, environ: Mapping[str, str]) -> Self:
        return cls(Settings(config=config_of(stack).get, environ=environ))

    @property
    def are_limited(self) -> bool:
        """Whether some kind of resource may not be changed: then nothing is done without a plan."""
        return any(write_refusal(lifecycle_class(*each), self.settings) for each in all_kinds())

    def require(self, outcome: Outcome) -> None:
        """Raises EngineError when what a preview found may not be done.

        Plans alone can be made with any key, as in a pull request: then nothing is asked.
        """
        refused: dict[str, list[str]] = {}
        unsent = {each.urn for each in outcome.planned if _is_unsent(each)}
        for urn, effects in outcome.effects.items():
            if urn in unsent or not _WRITING & set(effects):
                continue
            lifecycle = lifecycle_of(type_of(urn))
            if lifecycle is not None and (because := write_refusal(lifecycle, self.settings)):
                refused.setdefault(because, []).append(name_of(urn))
        if refused:
            raise EngineError("; ".join(_told(refused)), hint="nothing of it was begun")


def _told(refused: Mapping[str, list[str]]) -> Iterator[str]:
    for because, names in refused.items():
        more = len(names) - _SHOWN
        listed = ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"{because}. This changes {listed}"


def _is_unsent(change: ResourceChange) -> bool:
    """Whether an update only records something, or goes on waiting."""
    is_update = change.action is PlanAction.UPDATE
    return is_update and not any(each.is_sent for each in change.changes)
