"""The default providers of dynamic and of Pulumi's own resources: entries of the state.

That of dynamic resources holds the stack's whole configuration under full keys, strings all of
them. Their ids are kept from run to run because every resource refers to one.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from gpuform.stacks.engine import input_diff
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.step_executor import StepExecutor
from gpuform.stacks.engine.steps import Op, Step
from gpuform.stacks.engine.urn import PROVIDER_TYPE_PREFIX, make_urn
from gpuform.stacks.engine.values import PropertyMap


@dataclass(slots=True)
class DefaultProvider:
    """Registers the provider entry of a package when the first resource needs it."""

    package: str
    stack: str
    project: str
    config: PropertyMap
    olds: Mapping[str, ResourceState]
    _reference: str = ""

    @property
    def urn(self) -> str:
        return make_urn(self.stack, self.project, "", self._type, "default")

    @property
    def _type(self) -> str:
        return PROVIDER_TYPE_PREFIX + self.package

    @property
    def is_registered(self) -> bool:
        """Whether a resource of this run needed it."""
        return bool(self._reference)

    def reference(self, executor: StepExecutor) -> str:
        """`<urn>::<id>`, what resources carry; the entry is in the state afterwards."""
        if not self._reference:
            step = self._step()
            executor.run([step])
            self._reference = f"{self.urn}::{step.state.id}"
        return self._reference

    def _step(self) -> Step:
        old = self.olds.get(self.urn)
        new = ResourceState(self.urn, True, self._type, inputs=dict(self.config))
        new.outputs = dict(self.config)
        if old is None:
            new.id = str(uuid.uuid4())
            return Step(Op.CREATE, self.urn, None, new)
        new.id = old.id
        diffs = input_diff.changed_keys(old.inputs, new.inputs)
        return Step(Op.UPDATE if diffs else Op.SAME, self.urn, old, new, diffs=diffs)
