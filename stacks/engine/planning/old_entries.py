"""Which old entry a resource of the program stands for: that of its URN, or of an alias."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.registration import Alias, Read, Registration, UrnParts, alias_urns
from gpuform.stacks.engine.state import ResourceState


@dataclass(slots=True)
class OldEntries:
    """The live entries that the last run left, and who has taken which of them.

    `seen` holds the registrations and reads of this run by URN, `renamed` the new URN of each
    entry that was found by an alias.
    """

    stack: str
    project: str
    entries: dict[str, ResourceState]
    seen: dict[str, Registration | Read] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    _used_aliases: dict[str, str] = field(default_factory=dict)

    @classmethod
    def among(cls, stack: str, project: str, base: Iterable[ResourceState]) -> "OldEntries":
        return cls(stack, project, {entry.urn: entry for entry in base if not entry.delete})

    def take(self, declared: Registration | Read) -> ResourceState | None:
        """The entry that a resource of the program stands for, None for a new one.

        Raises EngineError when another resource of this run has its URN or that entry.
        """
        first = self.seen.get(declared.urn)
        if first is not None:
            raise EngineError(
                f"two resources have the URN {declared.urn}: one from {first.place}, one from "
                f"{declared.place}",
                hint="give one of them another name",
            )
        self.seen[declared.urn] = declared
        taker = self.renamed.get(declared.urn)
        if taker is not None:
            raise EngineError(
                f"{declared.urn} is declared at {declared.place}, and {taker} already has it as "
                "an alias",
                hint="remove the alias, or give the new resource another name",
            )
        for urn in (declared.urn, *self._aliases(declared)):
            if urn in self.entries:
                if urn != declared.urn:
                    self._rename(urn, declared)
                return self.entries[urn]
        return None

    def keep_name(self, old: ResourceState, declared: Registration | Read) -> None:
        """An entry that was found by an alias is not touched: it keeps the name that it has."""
        if self.renamed.pop(old.urn, None) is not None:
            self.seen[old.urn] = declared

    def _aliases(self, declared: Registration | Read) -> Sequence[str]:
        named = UrnParts(self.stack, self.project, declared.parent, declared.type, declared.name)
        own: Sequence[Alias] = declared.aliases if isinstance(declared, Registration) else ()
        return alias_urns(named, own, self._used_aliases)

    def _rename(self, alias: str, declared: Registration | Read) -> None:
        taker = alias if alias in self.seen else self.renamed.get(alias)
        if taker is not None:
            raise EngineError(
                f"{declared.urn} has the alias {alias}, which {taker} in this program stands for "
                "already",
                hint="remove the alias, or that other resource",
            )
        self.renamed[alias] = declared.urn
        self._used_aliases[declared.urn] = alias
