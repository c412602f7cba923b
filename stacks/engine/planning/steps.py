"""What the engine does to one resource, decided by the step generator and done by the executor."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuform.schemas.plan import ResourceChange
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider
from gpuform.stacks.engine.values import equal


class Op(StrEnum):
    """Pulumi's names of the operations."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPLACE = "replace"
    CREATE_REPLACEMENT = "create-replacement"
    DELETE_REPLACED = "delete-replaced"
    READ = "read"
    READ_REPLACEMENT = "read-replacement"
    DISCARD = "discard"
    DISCARD_REPLACED = "discard-replaced"
    IMPORT = "import"
    REFRESH = "refresh"
    REMOVE_PENDING_REPLACE = "remove-pending-replace"

    @property
    def is_logical(self) -> bool:
        """Whether people count it: a replacement is one change, not three."""
        return self not in _PHYSICAL_ONLY


_PHYSICAL_ONLY = frozenset(
    {
        Op.CREATE_REPLACEMENT,
        Op.DELETE_REPLACED,
        Op.READ_REPLACEMENT,
        Op.DISCARD_REPLACED,
        Op.REMOVE_PENDING_REPLACE,
    }
)


_EFFECTS = {
    Op.CREATE: "create",
    Op.UPDATE: "update",
    Op.IMPORT: "import",
    Op.REPLACE: "replace",
    Op.CREATE_REPLACEMENT: "replace",
    Op.READ_REPLACEMENT: "replace",
    Op.DELETE: "delete",
    Op.DELETE_REPLACED: "delete",
    Op.DISCARD: "forget",
    Op.DISCARD_REPLACED: "forget",
    Op.REMOVE_PENDING_REPLACE: "forget",
}
_FOUND = {Op.UPDATE: "refresh", Op.DELETE: "forget"}
"""What a refresh does to the state, by what it turned out to be."""


@dataclass(slots=True)
class Step:
    """One operation on one resource.

    `old` is its entry in the last state, `new` the entry that the step will leave; a delete has no
    `new`, a create no `old`. `keys` are the properties that force a replacement, `diffs` those
    that change, both top-level. `change` is what people are shown. `result_op` is what a refresh
    turned out to be (same, update or delete). `retain`: its object is not deleted, because of
    `retain_on_delete` or because it goes with the resource of its `deleted_with`. `skipped`: a
    create that is not done, because it is not among the targets; the program sees unknown outputs.
    `after`: a step of another resource's that comes first, and without which this one may not be.
    """

    op: Op
    urn: str
    old: ResourceState | None = None
    new: ResourceState | None = None
    keys: Sequence[str] = ()
    diffs: Sequence[str] = ()
    change: ResourceChange | None = None
    result_op: Op | None = None
    retain: bool = False
    skipped: bool = False
    after: "Step | None" = None

    @property
    def state(self) -> ResourceState:
        """The entry that stands for the resource: the new one where there is one."""
        state = self.new or self.old
        if state is None:
            raise AssertionError("a step has an old or a new state")
        return state

    @property
    def shown_op(self) -> Op:
        """The operation that people are told and that is counted."""
        return self.result_op or self.op

    @property
    def is_spared(self) -> bool:
        """Whether this deletion only forgets the entry: no provider is called."""
        old = self.state
        return self.retain or old.external or not old.custom or is_provider(old.type)

    @property
    def effect(self) -> str:
        """What it does to an object of the stack's, as a plan's bound counts it; empty: nothing.

        A replacement is "replace" and, of the old object, "delete".
        """
        if self.state.type == STACK_TYPE or is_provider(self.state.type):
            return ""
        if self.op in (Op.DELETE, Op.DELETE_REPLACED) and self.is_spared:
            return "forget"
        if self.op is Op.REFRESH:
            return _FOUND.get(self.shown_op, "")
        return _EFFECTS.get(self.op, "")

    @property
    def says_nothing_new(self) -> bool:
        """Whether a read found what the last one had found."""
        return (
            self.op is Op.READ
            and self.old is not None
            and equal(self.old.outputs, self.state.outputs)
        )
