"""Drift as a plan: the refresh of a stack that nothing of is kept."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from gpuform.schemas.plan import Plan
from gpuform.stacks.cli.interpreter import goes_on_elsewhere
from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.saved_plans import made_now
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.stopping import FIRST, stopping, unwinding
from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import EventBus
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.state import Selection, UrnPatterns
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.plans.plan_masking import masked
from gpuform.stacks.operations.plans.record import Record
from gpuform.stacks.review.text.diagnostics_text import diagnostics_lines


def find_drift(
    session: Session, targets: Sequence[str], *, emulate: bool
) -> tuple[Plan, list[str]] | None:
    """What has changed outside, and why some of it could not be read.

    None when the project's own interpreter has done it.
    """
    workspace = Workspace.find(Path.cwd(), session.environ)
    if goes_on_elsewhere(workspace.project):
        return None
    name = workspace.resolve(session.stack)
    with contextlib.ExitStack() as held:
        held.enter_context(unwinding())
        stack = workspace.open(name, passphrase_of(workspace, session.screen))
        emulated = held.enter_context(world_for(stack, emulate=emulate))
        appraiser = Appraiser.of(stack, session.environ, ())
        record = Record()
        selection = Selection(targets=UrnPatterns(targets))
        selection.require(entry.urn for entry in stack.snapshot.resources)
        options = Options(operation="refresh", preview=True, selection=selection)
        subject = stack.subject()
        deployment = Deployment(subject, options, EventBus([record], session.verbose))

        def cancel() -> None:
            deployment.cancel()
            session.screen.warn(FIRST)

        with stopping(cancel, lambda: None):
            outcome = deployment.run()
        made = made_now()  # by the emulator's clock, while it runs
    plan = record.plan(stack.project.name, stack.name, outcome)
    plan = appraiser.appraised(plan, record.steps).model_copy(update={**made, "emulated": emulated})
    problems = list(diagnostics_lines(record.diagnostics))
    if not outcome.succeeded:
        problems += ["error: not every resource could be read"]
    return masked(plan, subject.program.secrets()), problems if not outcome.succeeded else []
