"""The values of a topology while it is declared."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuform.stacks.document.diagnostics import Diagnostic, SourcePosition
from gpuform.stacks.engine.language_host import TopologyRun
from gpuform.stacks.engine.values import UNKNOWN
from gpuform.stacks.topology.declaring.deferred import (
    Deferred,
    Handle,
    Settled,
    is_deferred,
    joined,
    members_of,
    property_of,
    secret,
)
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.instances import Instance, ModuleInstance
from gpuform.stacks.topology.planning import Planned


class Source:
    """The source of values in a run, and what has been declared so far.

    What fails before anything is registered is kept as `failure`: then nothing but the stack is.
    """

    def __init__(self, planned: Planned, run: TopologyRun) -> None:
        self._planned, self._run = planned, run
        self._checking = planned.names.source
        self.resources: dict[Instance, Handle] = {}
        self.modules: dict[ModuleInstance, Handle] = {}
        self.stacks: dict[str, Handle] = {}
        self.failure: Exception | None = None

    def config(self, name: str) -> Any:
        """A secret as a deferred value."""
        found = self._planned.config[name]
        return secret(found.value) if found.secret else found.value

    def input(self, name: str) -> Any:
        """A topology of its own is given nothing."""
        raise AssertionError(f"the topology has an input {name}")

    def secret(self, value: Any) -> Any:
        """A deferred value."""
        return secret(value)

    def property(self, instance: Instance, name: str) -> Any:
        """A deferred value."""
        return property_of(self.resources[instance], name, preview=self._run.preview)

    def stack_output(self, reference: str, name: str) -> Any:
        """A deferred value; it fails when the other stack has none of that name."""
        handle, preview = self.stacks[reference], self._run.preview
        outputs = members_of(handle, "outputs", preview=preview)
        names = property_of(handle, "secretOutputNames", preview=preview)
        place = self._planned.topology.stack_references[reference].place

        def made() -> Settled:
            every, secrets = outputs.settled(), names.settled()
            is_secret = every.secret
            if secrets.value is not UNKNOWN and secrets.value is not None:
                is_secret = name in secrets.value
            if every.value is UNKNOWN:
                return Settled(UNKNOWN, is_secret, every.urns)
            if name not in every.value:
                raise TopologyError([_no_output(place, reference, name, every.value)])
            return Settled(every.value[name], is_secret, every.urns)

        return Deferred(made, outputs.waits)

    def lookup(self, platform: str, name: str) -> Any:
        """A Function."""
        return self._checking.lookup(platform, name)

    def about(self, name: str) -> Any:
        """The name of the `project` or `stack`."""
        return self._checking.about(name)

    def is_pending(self, value: Any) -> bool:
        """Whether it holds a deferred value."""
        return is_deferred(value)

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """A deferred value: secret, unknown and dependent as its parts are.

        What needs no resource is made at once: it may fail, and nothing has been registered yet.
        """
        found = joined(values, make, of_secret)
        if not found.waits:
            try:
                found.settled()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the run
                self.failure = self.failure or error
        return found


def _no_output(
    place: SourcePosition, reference: str, name: str, known: Mapping[str, Any]
) -> Diagnostic:
    message = f"the stack of stack_references.{reference} has no output {name}"
    hint = f"there is {', '.join(sorted(known))}" if known else "it has none at all"
    return Diagnostic(place, "reference", message, hint)
