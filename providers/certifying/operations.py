"""Implement the operations of a certification for every platform.

`lifecycle` calls them; Together and Samsung subclass `CertificationOperations`. The resource is the
evidence, not the test: the test may be removed, and the evidence holds for the machines, drivers
and operating systems that it names.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from gpuform.providers.certifying.runs import (
    CertificationRequest,
    CertificationRunner,
    NodeTester,
    parse_known_outputs,
    parse_valid_outputs,
    remove_run,
    update_gaps,
)
from gpuform.providers.certifying.verdicts import CertifiableNode
from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import Cancelled, GpuformError, NotReady
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.records import RecordedVerdict, Verdicts
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.policies.certification import (
    DEFAULT_WAIT_MINUTES,
    CertificationOutputs,
    CertificationPolicy,
)

DAY_S: Final = 86400.0

InputsT = TypeVar("InputsT", bound=CertificationPolicy)
ObservedCertification = Observed[CertificationOutputs]


@dataclass(frozen=True)
class NodeAccess:
    """How many nodes are declared, and functions that ask for them and raise only GpuformErrors.

    `get_time` returns the platform's time, in unix seconds.
    """

    declared_count: int
    list_machines: Callable[[], Sequence[CertifiableNode]]
    create_tester: Callable[[], NodeTester]
    get_time: Callable[[], float]


class CertificationOperations(ABC, Generic[InputsT]):
    """The operations that all platforms share; a platform implements how its nodes are reached."""

    inputs: ClassVar[type[CertificationPolicy]]

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @abstractmethod
    def _get_id(self, inputs: InputsT) -> str:
        """Return the id of the resource."""

    @abstractmethod
    def _parse_id(self, object_id: str) -> Mapping[str, Any]:
        """Return the inputs in an id.

        Raises:
            GpuformError: the text is no id of a certification.
        """

    @abstractmethod
    def _get_verdict_owner(self, inputs: InputsT) -> str:
        """Return the key under which the nodes' failures are recorded for repairs."""

    @abstractmethod
    def _create_node_access(
        self, context: ProviderContext, object_id: str, inputs: InputsT
    ) -> NodeAccess | None:
        """Return access to the nodes; None, with a warning, if the object of the nodes is gone.

        Raises:
            NotReady: the nodes cannot be reached yet.
        """

    def create(self, context: ProviderContext, inputs: InputsT) -> str:
        """Return the id after checking access to nodes and tester; the wait runs the tests.

        Raises:
            GpuformError: the object of the nodes is gone, the tester is missing, or somebody else
                has a run of this name.
        """
        object_id = self._get_id(inputs)
        # Fails here, before other resources are created, if the tester is missing or its name is
        # taken.
        self._require_nodes(context, object_id, inputs).create_tester().find_run()
        return object_id

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: InputsT
    ) -> ObservedCertification:
        """Test the nodes without evidence, wait for the results, and return the outputs.

        Failed, untested or missing nodes are no error: the outputs then have `ready: false` with
        the reason. Failures of single nodes are recorded, so that a repair of the nodes can use
        them. If the outputs are not ready and the host cannot store an unready resource, the run is
        removed, so that the next attempt tests again.

        Raises:
            NotReady: the tests take too long, and the error has the outputs with the evidence so
                far; or the nodes cannot be reached yet.
            GpuformError: the object of the nodes is gone, or nodes or tester cannot be asked.
        """
        nodes = self._require_nodes(context, object_id, inputs)
        request = CertificationRequest(
            label=f"certification {inputs.name}",
            categories=inputs.categories,
            tests_all_nodes=inputs.nodes == "all",
            timeout_s=60.0 * (inputs.wait_minutes or DEFAULT_WAIT_MINUTES),
            declared_count=nodes.declared_count,
        )
        try:
            runner = CertificationRunner(
                context, nodes.create_tester(), request, nodes.list_machines, nodes.get_time
            )
            outputs = runner.certify()
        except NotReady as error:
            last_outputs = error.last or parse_valid_outputs(context)
            raise type(error)(error.reason, last=Observed({}, last_outputs)) from None
        # The state keeps no outputs of a failed create: without its run, the next attempt tests
        # again.
        if not outputs.ready and not context.can_store_unready:
            _remove_last_run(context, runner.tester, request.label)
        # Failures of a group are no reason to repair: most of its nodes may be healthy.
        failures = [failure.model_dump() for failure in outputs.failures if failure.is_alone]
        Verdicts.from_intents(context.intents).record(
            RecordedVerdict(self._get_verdict_owner(inputs), object_id, tuple(failures))
        )
        return Observed({}, outputs)

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedCertification | None:
        """Return the evidence of the state, with the existing nodes not covered by the evidence.

        None if the object of the nodes is gone. If the nodes cannot be reached, the outputs stay
        unchanged, and `context.on_skipped_check` gets the reason. Without `known_inputs` (an
        import) the result has the inputs in the id and no evidence, or is None, with a warning, for
        a bad id.

        Raises:
            Cancelled: the run was interrupted.
        """
        outputs = parse_known_outputs(context.stored_properties)
        # A state without inputs is that of an import.
        if not known_inputs:
            return self._import(context, object_id)
        inputs = self._parse_inputs(known_inputs)
        try:
            nodes = self._create_node_access(context, object_id, inputs)
            if nodes is None:
                return None
            outputs = update_gaps(outputs, nodes.list_machines(), inputs.categories)
        except Cancelled:
            raise
        except GpuformError as error:
            # A refresh of the whole stack must not fail because one cluster does not answer.
            context.on_skipped_check(f"the nodes of certification {inputs.name}: {error.message}")
        return Observed({}, outputs)

    def _import(self, context: ProviderContext, object_id: str) -> ObservedCertification | None:
        """Return an imported certification without evidence; warn and return None for a bad id."""
        try:
            inputs = self._parse_id(object_id)
        except GpuformError as error:
            context.on_warning(str(error))  # the id of somebody's import; nothing has it
            return None
        return Observed(inputs, CertificationOutputs(ready=False, not_ready_reason="never tested"))

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: InputsT,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send nothing: the wait after an update tests the nodes without evidence."""

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Remove the last run and the recorded failures of the nodes; wait for the run's end.

        If nodes or tester cannot be asked, the run stays and the user gets a warning.

        Raises:
            GpuformError: the run is still there at the deadline of `context`.
        """
        inputs = self._parse_inputs(known_inputs)
        # Before the cluster is asked: no repair may act on failures of a deleted certification,
        # even if the cluster does not answer.
        Verdicts.from_intents(context.intents).forget(self._get_verdict_owner(inputs), object_id)
        try:
            nodes = self._create_node_access(context, object_id, inputs)
            if nodes is None:
                return
            tester = nodes.create_tester()
            run = tester.find_run()
        except Cancelled:
            raise
        except GpuformError as error:
            # A cluster that is gone or silent must not prevent the delete of its certification.
            context.on_warning(
                f"certification {inputs.name}: removed from the state, but not from the "
                f"cluster: {error}"
            )
            return
        if run is not None:
            remove_run(context, tester, f"certification {inputs.name}", run)

    def _parse_inputs(self, known: Mapping[str, Any]) -> InputsT:
        """Return stored inputs as the platform's model. Raises ValidationError for invalid ones."""
        return self.inputs.model_validate(known)  # type: ignore[return-value]

    def _require_nodes(
        self, context: ProviderContext, object_id: str, inputs: InputsT
    ) -> NodeAccess:
        """Return access to the nodes. Raises GpuformError if the object of the nodes is gone."""
        nodes = self._create_node_access(context, object_id, inputs)
        if nodes is None:
            raise GpuformError(
                f"certification {inputs.name}: the object to test is not found, or is being "
                "deleted",
                hint="declare the id of an existing object: {{ clusters.NAME.id }}",
            )
        return nodes


def _remove_last_run(context: ProviderContext, tester: NodeTester, label: str) -> None:
    """Remove the last run, if any, because no state records the judgement of the results.

    Waits until the tester no longer shows the run.
    """
    run = tester.find_run()
    if run is not None:
        remove_run(context, tester, label, run)
