"""One resource of a stack under the provider plugin: what the Pulumi engine makes of its answers.

An object that exists and is not ready is kept, and the run fails; after an update its old inputs
stay, so that the next run tries again. What a replacement has deleted is only created by the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.described import Described
from conformance.plugin import PluginHost, PluginVerbs
from conformance.stacks import CalledStack, Declared, Kept, Result

from gpuform.providers.forms import Form
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import property_paths


@dataclass
class PluginStack(Kept):
    """A stack of the resource `thing`."""

    described: Described
    host: PluginHost
    _called: CalledStack | None = None

    def __post_init__(self) -> None:
        self._called = CalledStack(PluginVerbs(self.described.lifecycle, self.host.stub))

    @property
    def unsettled(self) -> list[dict[str, Any]]:
        """A host of Pulumi's never says that it has stored an id: the record stays till then."""
        known = self.ids | self.parts
        made = ((each, each["ids"] or [each["id"]]) for each in self.intents)
        return [intent for intent, ids in made if not known.issuperset(ids)]

    def plan(self, declared: Declared) -> Result:
        return self._stack.plan(declared)

    def up(self, declared: Declared) -> Result:
        seconds = max(
            map(property_paths.parse_duration, (declared.timeouts or {}).values()), default=0.0
        )
        self._stack.verbs = PluginVerbs(self.described.lifecycle, self.host.stub, timeout=seconds)
        before, result = self._stack.entry, self._stack.up(declared)
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
    def pending(self) -> Sequence[Any]:
        return ()

    @property
    def directory(self) -> Path:  # type: ignore[override]
        return self.host.directory

    @property
    def resources(self) -> list[ResourceState]:  # type: ignore[override]
        entry = self._stack.entry
        if entry is None:
            return []
        type_ = Form.PLUGIN.build_type(self.described.platform, self.described.kind)
        urn = f"urn:pulumi:dev::conformance::{type_}::thing"
        return [
            ResourceState(urn, True, type_, id=entry.id, inputs=entry.inputs, outputs=entry.outputs)
        ]

    @property
    def _stack(self) -> CalledStack:
        assert self._called is not None
        return self._called
