"""Run a stack of one resource under the provider plugin, as the Pulumi engine does.

An object that exists and is not ready is kept, and the run fails; after an update its old inputs
stay, so that the next run tries again. What a replacement has deleted is only created by the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.kind_descriptions import KindDescription
from conformance.plugin import PluginHost, PluginOperations
from conformance.stacks import CalledStack, DeclaredResource, Result, StackKnowledge

from gpuform.providers.platform import Form
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.state import ResourceState


@dataclass
class PluginStack(StackKnowledge):
    """A stack of the resource `thing`."""

    description: KindDescription
    host: PluginHost
    _called_stack: CalledStack | None = None

    def __post_init__(self) -> None:
        self._called_stack = CalledStack(
            PluginOperations(self.description.lifecycle, self.host.stub)
        )

    @property
    def unresolved_intents(self) -> list[dict[str, Any]]:
        """Return unresolved intents; Pulumi never confirms a stored id, so records stay."""
        stored_ids = self.ids | self.parts
        intents_with_ids = ((item, item["ids"] or [item["id"]]) for item in self.intents)
        return [intent for intent, ids in intents_with_ids if not stored_ids.issuperset(ids)]

    def plan(self, declared: DeclaredResource) -> Result:
        return self._stack.plan(declared)

    def apply(self, declared: DeclaredResource) -> Result:
        seconds = max(
            map(property_paths.parse_duration, (declared.timeouts or {}).values()), default=0.0
        )
        self._stack.verbs = PluginOperations(
            self.description.lifecycle, self.host.stub, timeout=seconds
        )
        before, result = self._stack.entry, self._stack.apply(declared)
        entry = self._stack.entry
        if entry is None or entry.outputs.get("ready") is not False:
            return result
        if result.operations == ["update"] and before is not None:
            self._stack.entry = replace(entry, inputs=before.inputs)
        return Result(False, result.operations, [entry.outputs["not_ready_reason"]])

    def refresh(self) -> Result:
        return self._stack.refresh()

    def destroy(self) -> Result:
        return self._stack.destroy()

    @property
    def pending_operations(self) -> Sequence[Any]:
        return ()

    @property
    def directory(self) -> Path:  # type: ignore[override]
        return self.host.directory

    @property
    def resources(self) -> list[ResourceState]:  # type: ignore[override]
        entry = self._stack.entry
        if entry is None:
            return []
        type_ = Form.PLUGIN.build_type(self.description.platform, self.description.kind)
        urn = f"urn:pulumi:dev::conformance::{type_}::thing"
        return [
            ResourceState(urn, True, type_, id=entry.id, inputs=entry.inputs, outputs=entry.outputs)
        ]

    @property
    def _stack(self) -> CalledStack:
        assert self._called_stack is not None
        return self._called_stack
