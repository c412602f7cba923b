"""The verbs of a certification, whichever platform the nodes are of.

The resource is the proof, not the test: what has tested may be removed, and the proof holds for
the machines, drivers and systems that it names.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from gpuform.providers.certifying.judging import Machine
from gpuform.providers.certifying.running import (
    Certifying,
    Tester,
    Wanted,
    known_outputs,
    remove,
    with_gaps,
)
from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import Cancelled, GpuformError, NotReady
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.records import Verdict, Verdicts
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.certification import (
    DEFAULT_WAIT_MINUTES,
    CertificationOutputs,
    CertificationPolicy,
)

DAY: Final = 86400.0

Want = TypeVar("Want", bound=CertificationPolicy)
Seen = Observed[CertificationOutputs]


@dataclass(frozen=True)
class Reach:
    """The nodes of a certification. Its functions ask for them, and raise GpuformErrors only."""

    machines: Callable[[], Sequence[Machine]]
    tester: Callable[[], Tester]
    now: Callable[[], float]


class CertificationActions(ABC, Generic[Want]):
    """What a platform's certifications have in common; a platform says how nodes are reached."""

    inputs: ClassVar[type[CertificationPolicy]]

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @abstractmethod
    def _id_of(self, inputs: Want) -> str:
        """The id of the resource."""

    @abstractmethod
    def _inputs_of(self, id_: str) -> Mapping[str, Any]:
        """What an id tells of the inputs. Raises GpuformError for what is no id."""

    @abstractmethod
    def _owner_of(self, inputs: Want) -> str:
        """By what the failures of the nodes are kept for repairs."""

    @abstractmethod
    def _number_of(self, inputs: Want) -> int:
        """How many nodes are declared."""

    @abstractmethod
    def _reach(self, context: ProviderContext, id_: str, inputs: Want) -> Reach | None:
        """The nodes; None when what they belong to is gone, which `call` is told.

        Raises NotReady when they cannot be reached yet.
        """

    def planning_problems(
        self,
        call: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        values: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> Iterator[Problem]:
        """None: the nodes may not be there yet."""
        return iter(())

    def create(self, call: ProviderContext, inputs: Want) -> str:
        """Makes nothing: the tests begin when they are waited for. Finds out whether they can."""
        id_ = self._id_of(inputs)
        self._reached(call, id_, inputs).tester().find()
        return id_

    def wait_until_ready(self, call: ProviderContext, object_id: str, inputs: Want) -> Seen:
        """Tests the nodes that are not proven. Not ready while one is not."""
        reach = self._reached(call, object_id, inputs)
        wanted = Wanted(
            what=f"certification {inputs.name}",
            categories=inputs.categories,
            every=inputs.nodes == "all",
            limit=60.0 * (inputs.wait_minutes or DEFAULT_WAIT_MINUTES),
            number=self._number_of(inputs),
        )
        try:
            certifying = Certifying(call, reach.tester(), wanted, reach.machines, reach.now)
            outputs = certifying.run()
        except NotReady as error:
            last = error.last or known_outputs(call.stored_properties)
            raise type(error)(error.reason, last=Observed({}, last)) from None
        if not outputs.ready and not call.can_store_unready:
            _forget_run(call, certifying.tester, wanted.what)
        failures = [each.model_dump() for each in outputs.failures if each.is_alone]
        Verdicts.beside(call.intents).record(
            Verdict(self._owner_of(inputs), object_id, tuple(failures))
        )
        return Observed({}, outputs)

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """What was proven, and which nodes of now that does not cover."""
        outputs = known_outputs(call.stored_properties)
        if not known_inputs:
            return self._imported(call, object_id)
        want = self._want(known_inputs)
        try:
            reach = self._reach(call, object_id, want)
            if reach is None:
                return None
            outputs = with_gaps(outputs, reach.machines(), want.categories)
        except Cancelled:
            raise
        except GpuformError as error:
            call.on_skipped_check(f"nodes of certification {want.name}: {error.message}")
        return Observed({}, outputs)

    def _imported(self, call: ProviderContext, id_: str) -> Seen | None:
        """Nothing is proven of what the state has no proof of; its id says what it is of."""
        try:
            inputs = self._inputs_of(id_)
        except GpuformError as error:
            call.on_warning(str(error))  # the id of somebody's import; nothing has it
            return None
        return Observed(inputs, CertificationOutputs(ready=False, not_ready_reason="never tested"))

    def update(
        self, call: ProviderContext, object_id: str, inputs: Want, changes: Sequence[FieldChange]
    ) -> None:
        """Sends nothing: `wait_until_ready` tests what is not proven by then."""

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Removes the last test, and what is held against the nodes."""
        want = self._want(known_inputs)
        Verdicts.beside(call.intents).forget(self._owner_of(want), object_id)
        try:
            reach = self._reach(call, object_id, want)
            if reach is None:
                return
            tester = reach.tester()
            run = tester.find()
        except Cancelled:
            raise
        except GpuformError as error:
            call.on_warning(f"certification {want.name} is forgotten, not removed: {error}")
            return
        if run is not None:
            remove(call, tester, f"certification {want.name}", run)

    def _want(self, known: Mapping[str, Any]) -> Want:
        return self.inputs.model_validate(known)  # type: ignore[return-value]

    def _reached(self, call: ProviderContext, id_: str, want: Want) -> Reach:
        found = self._reach(call, id_, want)
        if found is None:
            raise GpuformError(
                f"what certification {want.name} is of is gone, or is being deleted",
                hint="give the id of what is there: {{ clusters.NAME.id }}",
            )
        return found


def _forget_run(call: ProviderContext, tester: Tester, what: str) -> None:
    """The state will not know that this run was judged: the next one is to test anew."""
    run = tester.find()
    if run is not None:
        remove(call, tester, what, run)
