"""Declarations with their `for_each` and `when` applied."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.lifecycle import Lifecycle
from gpuform.stacks.topology.declarations import Declaration

ALONE = ""
"""The key of the only instance of a declaration without `for_each`."""


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One resource to be. `item` is what its key stands for in `for_each`, evaluated or not."""

    declaration: Declaration
    key: str = ALONE
    item: Any = None

    @property
    def name(self) -> str:
        """The resource's name in its URN."""
        own = self.declaration.name
        return own if self.declaration.is_single else f"{own}-{self.key}"

    @property
    def address(self) -> str:
        """How expressions call it: `clusters.train.a`."""
        own = self.declaration.address
        return own if self.declaration.is_single else f"{own}.{self.key}"

    @property
    def path(self) -> tuple[str, ...]:
        """Its place among the variables of an expression."""
        own = (self.declaration.section, self.declaration.name)
        return own if self.declaration.is_single else (*own, self.key)

    @property
    def lifecycle(self) -> type[Lifecycle[Any, Any]]:
        return lifecycle_class(self.declaration.platform, self.declaration.kind)

    def property_names(self) -> tuple[str, ...]:
        """What expressions can ask it for."""
        return ("id", "urn", *self.lifecycle.property_names())


@dataclass(slots=True)
class Group:
    """The instances of a declaration by key.

    `absent` are the keys whose `when` is false. `open` says that the keys are not known yet.
    """

    declaration: Declaration
    instances: dict[str, Instance] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    open: bool = False


Groups = Mapping[str, Mapping[str, Group]]
"""By section and name."""
