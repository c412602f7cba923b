"""Drift as a plan: the refresh of a stack that nothing of is kept."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import Diagnostic, EventBus
from gpuform.stacks.engine.state import Selection, UrnPatterns
from gpuform.stacks.operations.opening.selecting import SelectedStack
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.plans.plan_masking import mask_plan
from gpuform.stacks.operations.plans.record import RunRecord
from gpuform.stacks.operations.runs.caller import Caller, Interrupted
from gpuform.stacks.operations.runs.saved_plans import made_now


@dataclass(frozen=True, slots=True)
class DriftResult:
    """What has changed outside, as a plan. Where not every resource could be read (`succeeded`),
    `diagnostics` say why, and the plan has the others.
    """

    plan: Plan
    succeeded: bool
    diagnostics: Sequence[Diagnostic] = ()


def find_drift(
    selected: SelectedStack, targets: Sequence[str], caller: Caller, *, emulate: bool
) -> DriftResult:
    """Reads the resources, all or those of `targets`; nothing is locked and nothing written."""
    with contextlib.ExitStack() as held:
        held.enter_context(selected.environment())
        stack = selected.open()
        emulated = held.enter_context(world_for(stack, emulate=emulate))
        appraiser = Appraiser.of(stack, os.environ, ())
        record = RunRecord()
        selection = Selection(targets=UrnPatterns(targets))
        selection.require(entry.urn for entry in stack.snapshot.resources)
        options = Options(operation="refresh", preview=True, selection=selection)
        subject = stack.subject()
        events = EventBus([record, caller.on_event], selected.debug)
        deployment = Deployment(subject, options, events)

        def cancel() -> None:
            deployment.cancel()
            caller.on_event(Interrupted())

        with caller.interruptions.around(cancel, lambda: None):
            outcome = deployment.run()
        made = made_now()  # by the emulator's clock, while it runs
        secrets = subject.program.secrets()
    plan = record.plan(stack.project.name, stack.name, outcome)
    plan = appraiser.appraised(plan, record.steps).model_copy(update={**made, "emulated": emulated})
    return DriftResult(mask_plan(plan, secrets), outcome.succeeded, record.diagnostics)
