"""`gpuform import`: chooses objects, writes their entries, adopts them, and proves it by a plan.

The entries name the ids until the state has the objects, so that whatever interrupts the command,
the next one, or any `up`, goes on from what the files and the state say.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuform.stacks.adopting.places import Edit
from gpuform.stacks.adopting.planning import Adoption, Target, adoption_of
from gpuform.stacks.cli.arguments import ImportArguments, RunArguments
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.import_choices import request_of
from gpuform.stacks.cli.interpreter import goes_on_elsewhere
from gpuform.stacks.cli.locking import patience
from gpuform.stacks.cli.opening import warn_of_recovery, workspace_of
from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.running import Run, view_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.settling import settled
from gpuform.stacks.cli.terminal.stopping import unwinding
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import SECURE
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.runs.expiring import Expiry
from gpuform.stacks.operations.runs.rights import Rights
from gpuform.stacks.review.names import counted


def run_import(arguments: ImportArguments, session: Session) -> int:
    """Does the command; the exit code. Raises what stops it, with the files as they were."""
    asks = not (arguments.yes or arguments.preview_only)
    if asks and not session.screen.interactive:
        raise EngineError(
            "`gpuform import` asks before it adopts anything, and nobody is here to answer",
            hint="add --yes, or look first with --preview-only",
        )
    workspace = workspace_of(session)
    if goes_on_elsewhere(workspace.project):
        return SUCCESS
    name = workspace.resolve(session.stack)
    with contextlib.ExitStack() as held:
        held.enter_context(unwinding())
        lock = None
        if not arguments.preview_only:
            waiting = patience(session.screen)
            lock = held.enter_context(workspace.backend.lock(workspace.project.name, name, waiting))
        work = _Import(arguments, session, workspace, name, lock)
        stack = work.open()
        warn_of_recovery(session.screen, stack.recovered)
        work.emulated = held.enter_context(world_for(stack, emulate=arguments.emulate))
        stack = settled(workspace, stack, session, lock, makes=True)
        adoption = adoption_of(request_of(arguments, stack, session.environ))
        return work.go(stack, adoption)


@dataclass(slots=True)
class _Import:
    arguments: ImportArguments
    session: Session
    workspace: Workspace
    name: str
    lock: StackLock | None
    edits: list[Edit] = field(default_factory=list)
    emulated: bool = False

    def open(self) -> Stack:
        passphrase = passphrase_of(self.workspace, self.session.screen)
        return self.workspace.open(self.name, passphrase, exclusive=self.lock is not None)

    def go(self, stack: Stack, adoption: Adoption) -> int:
        screen = self.session.screen
        for line in adoption.told:
            screen.print(line)
        if not adoption.targets and not adoption.finished:
            screen.print("There is nothing to import.")
            return SUCCESS
        if self.arguments.preview_only:
            screen.write(adoption.request.place.text(adoption.made.declared))
            return SUCCESS
        adopted = self._adopted(stack, adoption) if adoption.targets else []
        if adoption.targets and not adopted:
            return FAILED
        self._finish(adoption, [*adopted, *adoption.finished])
        return self._proven(adoption.targets, adopted)

    def _adopted(self, stack: Stack, adoption: Adoption) -> list[Target]:
        """What the state has in the end; without any of it, the files are as they were."""
        adopted: list[Target] = []
        try:
            self._write(stack, adoption)
            self._run(stack, adoption.targets)
        finally:
            adopted = adoption.adopted(self.open().snapshot.resources)
            if not adopted:
                for edit in reversed(self.edits):
                    edit.undo()
        return adopted

    def _write(self, stack: Stack, adoption: Adoption) -> None:
        made = adoption.made
        if not made.declared.entries:
            return
        if made.secrets:
            settings = stack.settings
            before = settings.text
            for variable, value in made.secrets.items():
                settings.set(variable, {SECURE: stack.crypter.encrypt(value)})
            self.edits.append(Edit(settings.path, before, settings.text))
        self.edits.append(adoption.request.place.edit(made.declared))
        for edit in self.edits:
            edit.apply()
        count = len(made.declared.entries)
        entries = "1 entry" if count == 1 else f"{count} entries"
        self.session.screen.print(f"{self.edits[-1].path}: {entries} added")

    def _run(self, stack: Stack, targets: Sequence[Target]) -> None:
        arguments = RunArguments(
            "update",
            yes=self.arguments.yes,
            parallel=self.arguments.parallel,
            target=tuple(each.urn for each in targets),
        )
        self._command(arguments, stack, _refuse_changes).go()

    def _command(
        self, arguments: RunArguments, stack: Stack, judge: Callable[[Outcome], None]
    ) -> Run:
        appraiser = Appraiser.of_prices(stack)
        return Run(
            arguments,
            self.session,
            stack,
            self.lock,
            log=[],
            view=view_of(arguments, self.session, appraiser),
            expiry=Expiry.of(stack, appraiser.clock),
            rights=Rights.of(stack, self.session.environ),
            judge=judge,
            emulated=self.emulated,
        )

    def _finish(self, adoption: Adoption, names: Sequence[Target]) -> None:
        """The state has the objects: their entries need no ids any more."""
        place = adoption.request.read_place()
        for edit in place.finished((each.platform, each.kind, each.name) for each in names):
            edit.apply()

    def _proven(self, targets: Sequence[Target], adopted: Sequence[Target]) -> int:
        """A plan of what was adopted has no changes."""
        screen = self.session.screen
        code = SUCCESS
        if adopted:
            arguments = RunArguments(
                "update",
                preview_only=True,
                expect_no_changes=True,
                parallel=self.arguments.parallel,
                target=tuple(each.urn for each in adopted),
            )
            code = self._command(arguments, self.open(), lambda _outcome: None).go()
        left = len(targets) - len(adopted)
        if left:
            screen.warn(f"error: {counted(left, 'object')} not adopted: run the command again")
            return FAILED
        return code


def _refuse_changes(outcome: Outcome) -> None:
    """An import changes nothing on a platform: what it declares is what there is."""
    for resource in outcome.planned:
        for change in resource.changes:
            if change.is_sent:
                raise EngineError(
                    f"{resource.urn}: {change.path} would be changed from {change.before!r} to "
                    f"{change.after!r} by what import declares, or the file's defaults",
                    hint="nothing was adopted. Declare it yourself, with `import` in its options, "
                    "and look at `gpuform preview`",
                )
