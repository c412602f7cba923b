"""Import existing objects into a stack and its declarations.

The entries name the ids until the state has the objects, so that whatever interrupts the import,
the next one, or any `up`, goes on from what the files and the state say.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.providers.catalog import require_platform
from gpuform.providers.offering import list_existing_objects
from gpuform.providers.operations import Settings
from gpuform.stacks.authoring.declared import ConfigValue, Reference, Value
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import SECURE
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.importing import chosen
from gpuform.stacks.importing.chosen import Filter, ImportChoice, NotImported
from gpuform.stacks.importing.declaring import Choices
from gpuform.stacks.importing.places import DeclarationPlace, Edit
from gpuform.stacks.importing.planning import Adoption, Request, Target, adoption_of
from gpuform.stacks.importing.project_place import place_of
from gpuform.stacks.operations.opening.selecting import SelectedStack, warn_of_recovery
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.runs.caller import Caller
from gpuform.stacks.operations.runs.expiring import Expiry
from gpuform.stacks.operations.runs.options import ImportOptions, RunOptions
from gpuform.stacks.operations.runs.results import ExitReason, RunResult
from gpuform.stacks.operations.runs.running import PlannedRun
from gpuform.stacks.operations.runs.settling import Rights, settle_earlier_runs
from gpuform.stacks.review.value_text import short_type

_CONFIG: Final = re.compile(r"\s*\{\{\s*config\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}\s*")


def request_of(options: ImportOptions, stack: Stack, environ: Mapping[str, str]) -> Request:
    """Asks the platform's lists. Raises EngineError for options that fit nothing."""
    config, _ = stack.settings.program_config(stack.crypter)
    settings = Settings(config=config.get, environ=environ)

    def read_place() -> DeclarationPlace:
        return place_of(stack.project, stack.name, options.out, python=options.python)

    place = read_place()
    parent, reference = _parent(options.parent, stack, place)
    own = f"{stack.project.name}:"
    choices = Choices(
        protect=options.protect,
        parent=reference,
        given={name: _value(name, text) for name, text in options.given},
        config={key.removeprefix(own): text for key, text in config.items()},
        defaults=place.defaults,
    )
    return Request(
        stack=stack,
        wanted=_wanted(options, settings),
        place=place,
        read_place=read_place,
        settings=settings,
        choices=choices,
        parent=parent,
        is_sole=not options.everything,
    )


def _wanted(options: ImportOptions, settings: Settings) -> list[ImportChoice]:
    if not options.everything:
        type_, name, id_ = options.type_ or "", options.name or "", options.id_ or ""
        platform, _ = chosen.kind_of(type_)
        held = list_existing_objects(platform, settings, options.regions)
        return [chosen.one(type_, name, id_, held, next(iter(options.regions), ""))]
    platform = options.platform or ""
    require_platform(platform)
    types = [":".join(chosen.kind_of(each)) for each in options.types]
    wanted = Filter(types, options.names, options.regions, options.tags)
    return chosen.all_of(list_existing_objects(platform, settings, options.regions), wanted)


def _value(name: str, text: str) -> Value:
    """The value of --set: YAML, or a configuration value."""
    config = _CONFIG.fullmatch(text)
    if config:
        return ConfigValue(config[1])
    problems = Diagnostics()
    value = to_plain_value(read_text(f"value: {text}", f"--set {name}", problems)).get("value")
    if problems or has_expression(text):
        raise NotImported(
            f"--set {name}: {text} is no value",
            hint="write it as in a topology file, or '{{ config.NAME }}'",
        )
    return value


def _parent(
    given: str | None, stack: Stack, place: DeclarationPlace
) -> tuple[str, Reference | None]:
    if given is None:
        return "", None
    for each in stack.snapshot.resources:
        if given in (each.urn, name_of(each.urn)):
            platform, _, kind = short_type(each.type).partition(":")
            reference = place.reference(platform, kind, name_of(each.urn))
            if reference is not None:
                return each.urn, reference
    raise NotImported(
        f"the stack has no resource {given} that an entry could name as its parent",
        hint="give the URN of a resource that is declared: `gpuform state list`",
    )


@dataclass(frozen=True, slots=True)
class ImportResult:
    """How an import ended: `adopted` and `left` are URNs.

    `entries` is what a preview would write. `runs` are those of it: the one that adopts, and the
    preview that proves that nothing changes.
    """

    reason: ExitReason
    entries: str = ""
    adopted: Sequence[str] = ()
    left: Sequence[str] = ()
    runs: Sequence[RunResult] = ()

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED


def run_import(selected: SelectedStack, options: ImportOptions, caller: Caller) -> ImportResult:
    """Does it. Raises what stops it, with the files as they were."""
    workspace, name = selected.workspace, selected.name
    with contextlib.ExitStack() as held:
        held.enter_context(selected.environment())
        lock = None
        if not options.preview_only:
            waiting = selected.patience(caller.warn)
            lock = held.enter_context(workspace.backend.lock(workspace.project.name, name, waiting))
        work = _Import(selected, options, caller, lock)
        stack = work.open()
        warn_of_recovery(stack.recovered, caller.warn)
        work.emulated = held.enter_context(world_for(stack, emulate=options.emulate))
        stack = settle_earlier_runs(selected, stack, caller, lock, makes=True)
        adoption = adoption_of(request_of(options, stack, os.environ))
        return work.go(stack, adoption)


@dataclass(slots=True)
class _Import:
    selected: SelectedStack
    options: ImportOptions
    caller: Caller
    lock: StackLock | None
    edits: list[Edit] = field(default_factory=list)
    runs: list[RunResult] = field(default_factory=list)
    emulated: bool = False

    def open(self) -> Stack:
        return self.selected.open(exclusive=self.lock is not None)

    def go(self, stack: Stack, adoption: Adoption) -> ImportResult:
        for line in adoption.told:
            self.caller.tell(line)
        for line in adoption.warnings:
            self.caller.warn(line)
        if not adoption.targets and not adoption.finished:
            self.caller.tell("There is nothing to import.")
            return ImportResult(ExitReason.SUCCEEDED)
        if self.options.preview_only:
            text = adoption.request.place.text(adoption.made.declared)
            return ImportResult(ExitReason.SUCCEEDED, entries=text)
        adopted: list[Target] = []
        if adoption.targets:
            run, adopted = self._adopted(stack, adoption)
            self.runs.append(run)
            if not adopted:
                left = [each.urn for each in adoption.targets]
                return ImportResult(_failed(run), left=left, runs=self.runs)
        self._finish(adoption, [*adopted, *adoption.finished])
        return self._proven(adoption.targets, adopted)

    def _adopted(self, stack: Stack, adoption: Adoption) -> tuple[RunResult, list[Target]]:
        """What the state has in the end; without any of it, the files are as they were."""
        adopted: list[Target] = []
        try:
            self._write(stack, adoption)
            run = self._run(stack, adoption.targets)
        finally:
            adopted = adoption.adopted(self.open().snapshot.resources)
            if not adopted:
                for edit in reversed(self.edits):
                    edit.undo()
        return run, adopted

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
        self.caller.tell(f"{self.edits[-1].path}: {entries} added")

    def _run(self, stack: Stack, targets: Sequence[Target]) -> RunResult:
        options = RunOptions(
            "update",
            parallel=self.options.parallel,
            target=tuple(each.urn for each in targets),
        )
        return self._operation(options, stack, _refuse_changes).go()

    def _operation(
        self, options: RunOptions, stack: Stack, judge: Callable[[Outcome], None]
    ) -> PlannedRun:
        appraiser = Appraiser.of_prices(stack)
        return PlannedRun(
            self.selected,
            options,
            self.caller,
            stack,
            self.lock,
            appraiser,
            expiry=Expiry.of(stack, appraiser.clock),
            rights=Rights.of(stack, os.environ),
            judge=judge,
            emulated=self.emulated,
        )

    def _finish(self, adoption: Adoption, names: Sequence[Target]) -> None:
        """The state has the objects: their entries need no ids any more."""
        place = adoption.request.read_place()
        for edit in place.finished((each.platform, each.kind, each.name) for each in names):
            edit.apply()

    def _proven(self, targets: Sequence[Target], adopted: Sequence[Target]) -> ImportResult:
        """A plan of what was adopted has no changes."""
        reason = ExitReason.SUCCEEDED
        if adopted:
            options = RunOptions(
                "update",
                preview_only=True,
                expect_no_changes=True,
                parallel=self.options.parallel,
                target=tuple(each.urn for each in adopted),
            )
            run = self._operation(options, self.open(), lambda _outcome: None).go()
            self.runs.append(run)
            reason = run.reason
        taken = [each.urn for each in adopted]
        left = [each.urn for each in targets if each.urn not in taken]
        if left:
            reason = ExitReason.FAILED
        return ImportResult(reason, adopted=taken, left=left, runs=self.runs)


def _failed(run: RunResult) -> ExitReason:
    """Nothing was adopted, however the run ended."""
    is_wish = run.reason in (ExitReason.DECLINED, ExitReason.CANCELLED)
    return run.reason if is_wish else ExitReason.FAILED


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
