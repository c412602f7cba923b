"""What there is to draw: the resources of a state, or those of a plan, and the fabrics between.

Nothing here holds a secret: of values only those that are in the clear are shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.catalog import Summary, summarize_resource
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.state import ResourceState, find_dependency_urns
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, is_noise, is_urn, name_of
from gpuform.stacks.review.value_text import counted, short_type, shown

_PARTS: Final = ("GpuNode", "NodePool")
"""The kinds that are drawn inside the cluster that they belong to."""
_OTHERS: Final = "other"


@dataclass(frozen=True, slots=True)
class Thing:
    """One resource, or one fabric that resources share.

    `type` is short: `together:Cluster`. `inside` and `needs` are keys of other things; `action` is
    what a plan does to it, None where no plan is drawn.
    """

    key: str
    type: str
    name: str
    facts: tuple[str, ...] = ()
    gpus: int = 0
    inside: str = ""
    needs: frozenset[str] = field(default_factory=frozenset)
    action: PlanAction | None = None

    @property
    def platform(self) -> str:
        """Whose it is, for the outermost boxes."""
        if self.type == short_type(MODULE_TYPE):
            return "modules"
        platform, separator, _ = self.type.partition(":")
        return platform if platform and separator and platform != "dynamic" else _OTHERS

    @property
    def is_resource(self) -> bool:
        return is_urn(self.key)

    @property
    def kind(self) -> str:
        return self.type.rpartition(":")[2]


def things_of_state(entries: Iterable[ResourceState]) -> list[Thing]:
    """What a state holds, without old objects that wait for their deletion."""
    live = [entry for entry in entries if _is_shown(entry)]
    return _connected([_of_entry(entry) for entry in live], _fabrics_of(live))


def things_of_plan(plan: Plan, entries: Iterable[ResourceState] = ()) -> list[Thing]:
    """What a plan tells of, with what happens to it, and what else the stack's state holds."""
    live = {e.urn: e for e in entries if _is_shown(e)}
    found: dict[str, Thing] = {}
    for change in plan.changes:
        if not _is_hidden(change.type):
            found.setdefault(change.urn, _of_change(change, live.get(change.urn)))
    # A preview's JSON leaves out what stays as it is.
    for urn, entry in live.items():
        found.setdefault(urn, _of_entry(entry))
    fabrics = _fabrics_of(live.values())
    for change in plan.changes:
        for each in change.changes:
            if each.path == _FABRIC and isinstance(each.after, str):
                fabrics[change.urn] = each.after
    return _connected(list(found.values()), fabrics)


def _is_shown(entry: ResourceState) -> bool:
    return not (entry.delete or entry.pending_replacement or _is_hidden(entry.type))


def _is_hidden(type_: str) -> bool:
    return is_noise(type_) or type_ == STACK_REFERENCE_TYPE


def _of_entry(entry: ResourceState) -> Thing:
    type_, values = short_type(entry.type), _values(entry)
    summary = _summary(type_, values)
    size = counted(summary.gpus, "GPU") if summary.gpus else ""
    unready = "not ready" if summary.ready is False else ""
    facts = (*_where(values), size, summary.state, unready, "protected" if entry.protect else "")
    return Thing(
        key=entry.urn,
        type=type_,
        name=name_of(entry.urn),
        facts=tuple(fact for fact in facts if fact),
        gpus=summary.gpus,
        inside=entry.parent,
        needs=frozenset(find_dependency_urns(entry, provider=False) - {entry.parent}),
    )


def _of_change(change: ResourceChange, entry: ResourceState | None) -> Thing:
    """A thing as a plan leaves it; what goes, or stays as it is, is drawn as it was."""
    if entry is not None and change.action in (PlanAction.DELETE, PlanAction.SAME):
        return replace(_of_entry(entry), action=change.action)
    values = {each.path: each.after for each in change.changes if not each.secret}
    facts = [*_where({**(_values(entry) if entry else {}), **values})]
    facts += [f"-{counted(change.gpus_removed, 'GPU')}"] if change.gpus_removed else []
    facts += [f"+{counted(change.gpus_added, 'GPU')}"] if change.gpus_added else []
    return Thing(
        key=change.urn,
        type=short_type(change.type),
        name=change.name,
        facts=tuple(fact for fact in facts if fact),
        gpus=(change.gpus_added or 0) - (change.gpus_removed or 0),
        inside=change.parent,
        # A preview's JSON does not tell what needs what.
        needs=frozenset(
            change.dependencies or (find_dependency_urns(entry, provider=False) if entry else ())
        ),
        action=change.action,
    )


def _values(entry: ResourceState) -> dict[str, Any]:
    """What a state has, with what was declared of what has never become ready."""
    return {**_clear(entry.inputs), **_clear(entry.outputs)}


def _where(values: Mapping[str, Any]) -> tuple[str, str]:
    return _text(values, "region", "region_id"), _text(values, "gpu_type")


def _clear(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values, without those that are secret as a whole."""
    plain = shown({key: value for key, value in properties.items() if key != "__provider"})
    return {key: value for key, value in plain.items() if value != MASK}


def _summary(type_: str, values: Mapping[str, Any]) -> Summary:
    platform, _, kind = type_.partition(":")
    return summarize_resource(platform, kind, values) if values else Summary()


def _text(values: Mapping[str, Any], *names: str) -> str:
    return next((v for name in names if isinstance(v := values.get(name), str) and v != MASK), "")


_FABRIC: Final = "cluster_fabric_name"


def _fabrics_of(entries: Iterable[ResourceState]) -> dict[str, str]:
    """The fabric that each resource names, by URN."""
    found = ((entry.urn, _text(_clear(entry.inputs), _FABRIC)) for entry in entries)
    return {urn: name for urn, name in found if name}


def _connected(things: list[Thing], fabrics: Mapping[str, str]) -> list[Thing]:
    """The things in what they belong to, and with the fabrics that they are in."""
    by_key = {thing.key: thing for thing in things}
    made = {
        (thing.platform, fabrics[thing.key]): thing.key
        for thing in things
        if thing.kind == "Fabric" and thing.key in fabrics
    }
    found: dict[str, Thing] = {}
    for thing in things:
        fabric = fabrics.get(thing.key)
        needed = {key for key in thing.needs if key in by_key}
        if fabric and thing.kind != "Fabric":
            key = made.setdefault((thing.platform, fabric), f"fabric {thing.platform} {fabric}")
            if key not in by_key:
                found.setdefault(key, Thing(key, f"{thing.platform}:Fabric", fabric))
            needed.add(key)
        inside = thing.inside if thing.inside in by_key else _cluster_of(thing, by_key)
        found[thing.key] = replace(thing, inside=inside, needs=frozenset(needed - {inside}))
    return list(found.values())


def _cluster_of(thing: Thing, by_key: Mapping[str, Thing]) -> str:
    """The one cluster of its platform that a part of a cluster needs."""
    if thing.kind not in _PARTS:
        return ""
    clusters = [
        key
        for key in thing.needs
        if key in by_key and by_key[key].type == f"{thing.platform}:Cluster"
    ]
    return clusters[0] if len(clusters) == 1 else ""
