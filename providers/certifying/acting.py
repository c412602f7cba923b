"""The verbs of a certification, whichever platform the nodes are of.

The resource is the proof, not the test: what has tested may be removed, and the proof holds for
the machines, drivers and systems that it names.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from gpuform.providers.actions import Observed, Settings
from gpuform.providers.calls import Call
from gpuform.providers.certifying.judging import Machine
from gpuform.providers.certifying.running import (
    Certifying,
    Tester,
    Wanted,
    known_outputs,
    remove,
    with_gaps,
)
from gpuform.providers.errors import Cancelled, GpuformError, NotReady
from gpuform.providers.records import Verdict, Verdicts
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.certification import (
    WAIT_MINUTES,
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
    def _id_of(self, want: Want) -> str:
        """The id of the resource."""

    @abstractmethod
    def _inputs_of(self, id_: str) -> Mapping[str, Any]:
        """What an id tells of the inputs. Raises GpuformError for what is no id."""

    @abstractmethod
    def _owner_of(self, want: Want) -> str:
        """By what the failures of the nodes are kept for repairs."""

    @abstractmethod
    def _number_of(self, want: Want) -> int:
        """How many nodes are declared."""

    @abstractmethod
    def _reach(self, call: Call, id_: str, want: Want) -> Reach | None:
        """The nodes; None when what they belong to is gone, which `call` is told.

        Raises NotReady when they cannot be reached yet.
        """

    def planning_problems(self, call: Call, values: Mapping[str, Any]) -> Iterator[Problem]:  # noqa: ARG002 - the shape of Actions
        """None: the nodes may not be there yet."""
        return iter(())

    def create(self, call: Call, want: Want) -> str:
        """Makes nothing: the tests begin when they are waited for. Finds out whether they can."""
        id_ = self._id_of(want)
        self._reached(call, id_, want).tester().find()
        return id_

    def settle(self, call: Call, id_: str, want: Want) -> Seen:
        """Tests the nodes that are not proven. Not ready while one is not."""
        reach = self._reached(call, id_, want)
        wanted = Wanted(
            what=f"certification {want.name}",
            categories=want.categories,
            every=want.nodes == "all",
            limit=60.0 * (want.wait_minutes or WAIT_MINUTES),
            number=self._number_of(want),
        )
        try:
            certifying = Certifying(call, reach.tester(), wanted, reach.machines, reach.now)
            outputs = certifying.run()
        except NotReady as error:
            last = error.last or known_outputs(call.known)
            raise type(error)(error.reason, last=Observed({}, last)) from None
        if not outputs.ready and not call.keeps_unready:
            _forget_run(call, certifying.tester, wanted.what)
        failures = [each.model_dump() for each in outputs.failures if each.is_alone]
        Verdicts.beside(call.intents).record(Verdict(self._owner_of(want), id_, tuple(failures)))
        return Observed({}, outputs)

    def read(self, call: Call, id_: str, known: Mapping[str, Any]) -> Seen | None:
        """What was proven, and which nodes of now that does not cover."""
        outputs = known_outputs(call.known)
        if not known:
            return self._imported(call, id_)
        want = self._want(known)
        try:
            reach = self._reach(call, id_, want)
            if reach is None:
                return None
            outputs = with_gaps(outputs, reach.machines(), want.categories)
        except Cancelled:
            raise
        except GpuformError as error:
            call.on_unchecked(f"nodes of certification {want.name}: {error.message}")
        return Observed({}, outputs)

    def _imported(self, call: Call, id_: str) -> Seen | None:
        """Nothing is proven of what the state has no proof of; its id says what it is of."""
        try:
            inputs = self._inputs_of(id_)
        except GpuformError as error:
            call.on_warning(str(error))  # the id of somebody's import; nothing has it
            return None
        return Observed(inputs, CertificationOutputs(ready=False, not_ready_reason="never tested"))

    def update(self, call: Call, id_: str, want: Want, changes: Sequence[FieldChange]) -> None:
        """Sends nothing: `settle` tests what is not proven by then."""

    def delete(self, call: Call, id_: str, known: Mapping[str, Any]) -> None:
        """Removes the last test, and what is held against the nodes."""
        want = self._want(known)
        Verdicts.beside(call.intents).forget(self._owner_of(want), id_)
        try:
            reach = self._reach(call, id_, want)
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

    def _reached(self, call: Call, id_: str, want: Want) -> Reach:
        found = self._reach(call, id_, want)
        if found is None:
            raise GpuformError(
                f"what certification {want.name} is of is gone, or is being deleted",
                hint="give the id of what is there: {{ clusters.NAME.id }}",
            )
        return found


def _forget_run(call: Call, tester: Tester, what: str) -> None:
    """The state will not know that this run was judged: the next one is to test anew."""
    run = tester.find()
    if run is not None:
        remove(call, tester, what, run)
