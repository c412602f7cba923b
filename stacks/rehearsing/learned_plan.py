"""Describe what the undisturbed run of a plan has shown: requests, owners of GPUs, differences.

`worker` builds a `LearnedPlan`, from which `hazards` lists what can go wrong at which request.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import get_stack_and_project
from gpuform.stacks.rehearsing.fleet import FleetState, Owner
from gpuform.stacks.rehearsing.points import Point, PointGroup, format_address
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.testing.case_run import get_address

_NAME_PROPERTIES: Final = ("cluster_name", "cluster_fabric_name", "name")


@dataclass(frozen=True, slots=True)
class LearnedPlan:
    """What the undisturbed run has shown.

    Attributes:
        changes: the plan's changes by URN.
        groups: the requests that change something.
        owners: the owner of each resource's GPUs, by URN.
        before, after: the fleet at the start and at the end.
        samples: the fleet over the clock.
        names_stacks: whether addresses have the name of their stack.
    """

    changes: Mapping[str, ResourceChange]
    groups: Sequence[PointGroup]
    owners: Mapping[str, Owner]
    before: FleetState
    after: FleetState
    samples: Sequence[FleetState]
    names_stacks: bool = False

    def list_working_nodes(self, point: Point, owner: Owner) -> list[str]:
        """Return the owner's nodes that work before the run, after the point, and at the end."""
        nodes = set(self.after.nodes)
        for state in self.samples:
            # Of several samples of one time the last one counts: it has the point's effect.
            if state.at == point.at or state is self.before:
                nodes &= state.nodes
        return sorted(node for platform, name, node in nodes if (platform, name) == owner)

    def list_chosen(self) -> Iterator[tuple[PointGroup, Point]]:
        """Yield the points to play with their groups."""
        for group in self.groups:
            for point in group.chosen:
                yield group, point

    def count_gpus(self, urn: str) -> int:
        """Return the GPUs of a resource, before or after its change, whichever is more."""
        owner = self.owners.get(urn)
        if owner is None:
            return 0
        return max(self.before.working.get(owner, 0), self.after.working.get(owner, 0))

    def list_riskiest(self, limit: int) -> list[str]:
        """Return the URNs of at most `limit` changed resources, those that may lose most first.

        Replaced and deleted ones come before others, and then those with more GPUs.
        """
        changed = [item for item in self.changes.values() if item.action.is_change]

        def rank_change(change: ResourceChange) -> tuple[bool, int, str]:
            is_kept = change.action not in (PlanAction.REPLACE, PlanAction.DELETE)
            return is_kept, -self.count_gpus(change.urn), change.urn

        return [change.urn for change in sorted(changed, key=rank_change)[:limit]]

    def format_address(self, point: Point) -> str:
        """Return the address of a point's resource: clusters.train."""
        return format_address(point.type, point.urn, with_stack=self.names_stacks)

    def list_stack_ends(self) -> list[tuple[Point, Point]]:
        """Return the last request of each stack with the first one of the next stack."""
        points = sorted((p for group in self.groups for p in group.points), key=_get_number)
        return [
            (point, following)
            for point, following in pairwise(points)
            if get_stack_and_project(point.urn) != get_stack_and_project(following.urn)
        ]

    @property
    def has_late_deletions(self) -> bool:
        """Return True if the plan deletes something that a failure of the run would keep.

        These are resources that are declared no longer, and clusters that are replaced create
        first.
        """
        replaced: set[str] = set()
        for point in sorted((p for group in self.groups for p in group.points), key=_get_number):
            if point.op is Op.DELETE or (point.op is Op.DELETE_REPLACED and point.urn in replaced):
                return True
            if point.op is Op.CREATE_REPLACEMENT:
                replaced.add(point.urn)
        return False

    def is_after_deletion(self, point: Point) -> bool:
        """Return True if the same resource has lost an object or nodes before this request."""
        return any(
            other.urn == point.urn
            and other.number < point.number
            and (other.op is Op.DELETE_REPLACED or other.method == "DELETE")
            for group in self.groups
            for other in group.points
        )


def _get_number(point: Point) -> int:
    return point.number


def find_owners(resources: Sequence[ResourceState], owners: set[Owner]) -> dict[str, Owner]:
    """Return the cluster or fabric of each resource with GPUs, by URN."""
    owners_by_urn: dict[str, Owner] = {}
    for resource in resources:
        kind = find_kind(resource.type)
        if kind is None or resource.delete:
            continue
        for name in _NAME_PROPERTIES:
            owner = (kind[0], str(resource.outputs.get(name) or resource.inputs.get(name) or ""))
            if owner in owners:
                owners_by_urn.setdefault(resource.urn, owner)
    return owners_by_urn


def find_urns_by_owner(
    learned: LearnedPlan, dependencies: Mapping[str, set[str]]
) -> dict[Owner, frozenset[str]]:
    """Return the resources of each owner, with all resources that they depend on."""
    urns: dict[Owner, frozenset[str]] = {}
    for urn, owner in learned.owners.items():
        owner_urns, pending = set(urns.get(owner, ())), [urn]
        while pending:
            current = pending.pop()
            if current not in owner_urns:
                owner_urns.add(current)
                pending += dependencies.get(current, ())
        urns[owner] = frozenset(owner_urns)
    return urns


def find_prices(plan: Plan) -> dict[str, tuple[str, float]]:
    """Return currency and price of a GPU-hour by platform, of the dearest GPUs in the plan."""
    prices: dict[str, tuple[str, float]] = {}
    for change in plan.changes:
        for usage in filter(None, (change.before, change.after)):
            for expense in usage.expenses:
                if expense.what == "gpus" and expense.hourly and expense.amount:
                    price = (expense.currency, expense.hourly / expense.amount)
                    dearest_price = prices.get(expense.platform)
                    if dearest_price is None or price[1] > dearest_price[1]:
                        prices[expense.platform] = price
    return prices


def list_differences(plan: Plan, rehearsed: Plan) -> tuple[str, ...]:
    """Return where the emulator plans another action than the plan, in words."""
    rehearsed_actions = {change.urn: change.action for change in rehearsed.changes}
    lines = []
    for change in plan.changes:
        action = rehearsed_actions.pop(change.urn, PlanAction.SAME)
        if action != change.action and (action.is_change or change.action.is_change):
            address = get_address(change.type, change.urn)
            lines.append(f"{address}: the plan says {change.action}, the emulator plans {action}")
    by_urn = {change.urn: change for change in rehearsed.changes}
    for urn, action in rehearsed_actions.items():
        if action.is_change:
            address = get_address(by_urn[urn].type, urn)
            lines.append(f"{address}: the plan has no change, the emulator plans {action}")
    return tuple(sorted(lines))
