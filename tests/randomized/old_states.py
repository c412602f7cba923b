"""Random states made by hand, in all the conditions that interrupted and failed runs leave.

The live entries stand for objects that exist: each state is created together with its platform.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from hypothesis import strategies as st
from pulumi.dynamic.dynamic import serialize_provider
from randomized.memory_platform import OUTSIDE, TYPE, Machines, MemoryPlatform
from randomized.programs import GROUP_TYPE, PROJECT, STACK
from randomized.strategies import SECRET, VARIABLES, draw_chance

from gpuform.providers.values import PropertyMap, Secret
from gpuform.stacks.engine.state import PendingOperation, ResourceState, Snapshot
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, PROVIDER_TYPE_PREFIX, STACK_TYPE, make_urn

ROOT = make_urn(STACK, PROJECT, "", STACK_TYPE, f"{PROJECT}-{STACK}")
PROVIDER_TYPE = PROVIDER_TYPE_PREFIX + DYNAMIC_PACKAGE
PROVIDER = make_urn(STACK, PROJECT, "", PROVIDER_TYPE, "default")

CONDITIONS = ("plain", "plain", "plain", "half replaced", "external", "not ready", "tainted")
_FLAGS = ("protect", "retain_on_delete")


@dataclass(frozen=True)
class PlannedEntry:
    """An entry to create; the entries that it refers to are planned before it.

    `old` has a flag, or "", for each object of the same URN that is pending deletion.
    """

    variable: str
    custom: bool
    condition: str
    parent: str = ""
    uses: dict[str, str] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    deleted_with: str = ""
    replace_with: str = ""
    flags: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    creating: bool = False


@st.composite
def planned_states(draw: st.DrawFn, most: int = 7) -> list[PlannedEntry]:
    """Draw the plans of some entries; empty for a new stack."""
    variables = draw(st.lists(st.sampled_from(VARIABLES), unique=True, max_size=most))
    planned: list[PlannedEntry] = []
    for variable in variables:
        planned.append(draw(_planned_entries(variable, planned)))
    return planned


@st.composite
def _planned_entries(
    draw: st.DrawFn, variable: str, earlier: Sequence[PlannedEntry]
) -> PlannedEntry:
    custom = not draw_chance(draw, 12)
    groups = [p.variable for p in earlier if not p.custom]
    machines = [p.variable for p in earlier if p.custom]
    some = st.lists(st.sampled_from(machines), max_size=2, unique=True) if machines else st.just([])
    keys = draw(st.lists(st.sampled_from(["uses", "rack", "slot"]), unique=True, max_size=2))
    values = st.fixed_dictionaries(
        {},
        optional={
            "size": st.sampled_from([1.0, 2.0]),
            "rack": st.sampled_from("xy"),
            "slot": st.sampled_from("xy"),
            "lazy": st.sampled_from([1.0, 2.0]),
            "token": st.just(Secret(f"{SECRET}-1")),
        },
    )
    return PlannedEntry(
        variable,
        custom,
        draw(st.sampled_from(CONDITIONS)) if custom else "plain",
        parent=draw(st.sampled_from(groups)) if groups and draw(st.booleans()) else "",
        uses={k: draw(st.sampled_from(machines)) for k in keys} if machines and custom else {},
        properties=draw(values) if custom else {},
        after=tuple(draw(some)),
        deleted_with=draw(st.sampled_from(machines)) if machines and draw_chance(draw, 10) else "",
        replace_with=draw(st.sampled_from(machines)) if machines and draw_chance(draw, 10) else "",
        flags=tuple(flag for flag in _FLAGS if draw_chance(draw, 10)),
        old=tuple(draw(st.lists(st.sampled_from(["", *_FLAGS]), max_size=2))) if custom else (),
        creating=custom and draw_chance(draw, 8),
    )


@dataclass
class _StateBuilder:
    platform: MemoryPlatform
    provider: str
    entries: list[ResourceState] = field(default_factory=list)
    pending: list[PendingOperation] = field(default_factory=list)
    live: dict[str, ResourceState] = field(default_factory=dict)

    def add(self, planned: PlannedEntry) -> None:
        entry = self._build_entry(planned)
        if planned.custom:
            self._create_object(entry, planned.condition)
        self.live[planned.variable] = entry
        self.entries.append(entry)
        for flag in planned.old:
            waiting = replace(entry, delete=True, pending_replacement=False, external=False)
            waiting = replace(waiting, taint=False, **{flag: True} if flag else {})
            self._create_object(waiting, "plain")
            self.entries.append(waiting)
        if planned.creating:
            creating = replace(entry, id="", outputs={}, external=False, pending_replacement=False)
            self.pending.append(PendingOperation(creating, "creating"))

    def _build_entry(self, planned: PlannedEntry) -> ResourceState:
        uses = {key: self.live[name] for key, name in planned.uses.items()}
        inputs = {**planned.properties, **{k: e.outputs["address"] for k, e in uses.items()}}
        parent = self.live[planned.parent].urn if planned.parent else ROOT
        type_ = TYPE if planned.custom else GROUP_TYPE
        dependencies = {self.live[name].urn for name in planned.after} | {
            e.urn for e in uses.values()
        }
        return ResourceState(
            make_urn(STACK, PROJECT, parent, type_, planned.variable),
            planned.custom,
            type_,
            inputs={"__provider": Secret(self.provider), **inputs} if planned.custom else inputs,
            parent=parent,
            dependencies=sorted(dependencies),
            property_dependencies={key: [entry.urn] for key, entry in uses.items()},
            provider=f"{PROVIDER}::p-1" if planned.custom else "",
            deleted_with=self.live[planned.deleted_with].urn if planned.deleted_with else "",
            replace_with=[self.live[planned.replace_with].urn] if planned.replace_with else [],
            **dict.fromkeys(planned.flags, True),
        )

    def _create_object(self, entry: ResourceState, condition: str) -> None:
        if condition == "external":
            entry.external, entry.id = True, OUTSIDE[0]
            entry.protect = entry.retain_on_delete = False
        else:
            entry.id = self.platform.create(_unwrap_inputs(entry.inputs))
        entry.outputs = {**entry.inputs, "address": self.platform.objects[entry.id]["address"]}
        if condition == "half replaced":
            entry.pending_replacement = True
            del self.platform.objects[entry.id]
        entry.init_errors = ["still booting"] if condition == "not ready" else []
        entry.taint = condition == "tainted"


def create_state(
    planned: Sequence[PlannedEntry], platform: MemoryPlatform, provider: str = ""
) -> Snapshot:
    """Create the planned state, and its objects on the platform.

    `provider` is the pickled provider of its machines; by default that of the platform in memory.
    """
    planting = _StateBuilder(platform, provider or _serialize_provider())
    if planned:
        planting.entries += [
            ResourceState(ROOT, False, STACK_TYPE),
            ResourceState(PROVIDER, True, PROVIDER_TYPE, id="p-1"),
        ]
    for entry in planned:
        planting.add(entry)
    return Snapshot(
        f"organization/{PROJECT}/{STACK}", planting.entries, pending_operations=planting.pending
    )


@cache
def _serialize_provider() -> str:
    return serialize_provider(Machines())


def _unwrap_inputs(inputs: PropertyMap) -> dict[str, Any]:
    return {
        key: value.value if isinstance(value, Secret) else value
        for key, value in inputs.items()
        if key != "__provider"
    }
