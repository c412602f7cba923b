"""Import existing objects into a stack and its declarations, and list objects of no stack.

`gpuform import` and the Python API call this module; it runs an update with the engine. The entry
of each object names the object's id until the state has the object: after an interruption the next
import, or any `up`, continues from the files and the state.
"""

import contextlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import Final

from gpuform.providers.catalog import list_existing_objects, require_platform
from gpuform.providers.operations import Settings
from gpuform.providers.values import Redactor
from gpuform.schemas.errors import EngineError
from gpuform.stacks.declaration_writer.declarations import ConfigReference, DeclaredReference, Value
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.project import SECURE
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.importing import selection
from gpuform.stacks.importing.declaration_files import (
    FileEdit,
    ProjectDeclarations,
    open_declarations,
)
from gpuform.stacks.importing.declarations import DeclarationOptions
from gpuform.stacks.importing.planning import ImportPlan, ImportRequest, ImportTarget, plan_import
from gpuform.stacks.importing.selection import (
    ImportChoice,
    ImportFilter,
    ImportRefused,
    OrphanSearch,
)
from gpuform.stacks.offers import Offers, query_offers, save_offers
from gpuform.stacks.operations.opening.emulator import run_emulator
from gpuform.stacks.operations.opening.selected_stack import (
    AskPassphrase,
    SelectedStack,
    create_passphrase_finder,
    enter_environment,
    warn_of_recovery,
)
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks
from gpuform.stacks.operations.runs.evaluator import PlanEvaluator
from gpuform.stacks.operations.runs.options import ExitReason, ImportOptions, RunOptions, RunResult
from gpuform.stacks.operations.runs.recovery import recover_earlier_runs
from gpuform.stacks.operations.runs.runner import PlannedRun
from gpuform.stacks.pricing import PriceBook
from gpuform.stacks.review.value_text import short_type

_CONFIG: Final = re.compile(r"\s*\{\{\s*config\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}\s*")


def build_request(options: ImportOptions, stack: Stack) -> ImportRequest:
    """List the platform's objects, and build the request for the ones selected by `options`.

    Raises:
        EngineError: a filter fits no object, or the options are wrong. A single object need not be
            among the listed ones.
    """
    config, _ = stack.settings.build_program_config(stack.crypter)
    settings = Settings(config=config.get, environ=stack.run_context.environ)

    def load_declarations() -> ProjectDeclarations:
        return open_declarations(stack.project, stack.name, options.out, python=options.python)

    declarations = load_declarations()
    parent, reference = _find_parent(options.parent, stack, declarations)
    # Expressions name the project's own keys without the project: `{{ config.region }}`.
    project_prefix = f"{stack.project.name}:"
    declaration_options = DeclarationOptions(
        protect=options.protect,
        parent=reference,
        set_values={
            name: _parse_set_value(name, value_text) for name, value_text in options.set_values
        },
        config={key.removeprefix(project_prefix): value_text for key, value_text in config.items()},
        defaulted_variables=declarations.defaulted_variables,
        declared_variables=(
            None
            if declarations.declared_variables is None
            else {
                *declarations.declared_variables,
                *(key.removeprefix(project_prefix) for key in stack.project.config),
            }
        ),
    )
    return ImportRequest(
        stack=stack,
        selected_objects=_choose_objects(options, settings),
        declarations=declarations,
        reload_declarations=load_declarations,
        settings=settings,
        options=declaration_options,
        parent=parent,
        is_single_object=not options.everything,
    )


def _choose_objects(options: ImportOptions, settings: Settings) -> list[ImportChoice]:
    """Return the one object named by the options; with `everything`, all matching objects.

    A named object that is not listed is chosen all the same; an unmatched filter raises
    ImportRefused.
    """
    if not options.everything:
        type_, name, id_ = options.type_ or "", options.name or "", options.id_ or ""
        platform, _ = selection.parse_type(type_)
        existing_objects = list_existing_objects(platform, settings, options.regions)
        return [
            selection.select_object(
                type_, name, id_, existing_objects, next(iter(options.regions), "")
            )
        ]
    platform = options.platform or ""
    require_platform(platform)
    types = [":".join(selection.parse_type(type_token)) for type_token in options.types]
    object_filter = ImportFilter(types, options.names, options.regions, options.tags)
    return selection.select_matching_objects(
        list_existing_objects(platform, settings, options.regions), object_filter
    )


def _parse_set_value(name: str, value_text: str) -> Value:
    """Return the value of a `--set` flag: YAML, or a reference to a configuration value.

    Raises:
        ImportRefused: the text is no YAML, or has another expression than `{{ config.NAME }}`.
    """
    config_match = _CONFIG.fullmatch(value_text)
    if config_match:
        return ConfigReference(config_match[1])
    problems = Diagnostics()
    value = to_plain_value(read_text(f"value: {value_text}", f"--set {name}", problems)).get(
        "value"
    )
    if problems or has_expression(value_text):
        raise ImportRefused(
            f"--set {name}: {value_text} is not a valid value",
            hint="write the value as in a topology file, or '{{ config.NAME }}'",
        )
    return value


def _find_parent(
    parent_name: str | None, stack: Stack, declarations: ProjectDeclarations
) -> tuple[str, DeclaredReference | None]:
    """Return the URN and the reference of the declared resource with this name or URN.

    Without a name there is no parent: an empty URN and None.

    Raises:
        ImportRefused: the stack has no such resource, or no entry declares it.
    """
    if parent_name is None:
        return "", None
    for resource in stack.snapshot.resources:
        if parent_name in (resource.urn, name_of(resource.urn)):
            platform, _, kind = short_type(resource.type).partition(":")
            reference = declarations.find_reference(platform, kind, name_of(resource.urn))
            if reference is not None:
                return resource.urn, reference
    raise ImportRefused(
        f"the stack has no resource {parent_name} to use as a parent",
        hint="pass the URN of a declared resource: `gpuform state list`",
    )


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import.

    `imported` and `remaining` are the URNs of imported and of remaining objects.

    `entries` is the text that a preview would write. `runs` are the results of the update that
    imports the objects and of the preview that verifies that nothing changes.
    """

    reason: ExitReason
    entries: str = ""
    imported: Sequence[str] = ()
    remaining: Sequence[str] = ()
    runs: Sequence[RunResult] = ()

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED


def run_import(
    selected: SelectedStack, options: ImportOptions, callbacks: OperationCallbacks
) -> ImportResult:
    """Import the objects selected by `options`, under the stack's lock.

    With `options.preview_only` nothing is locked or written. Without an object to import the result
    is SUCCEEDED. If no object was imported, the files are restored and the reason is not SUCCEEDED;
    if some were not, the reason is FAILED.

    Raises:
        EngineError: the import cannot begin, or would change an object.
    """
    workspace, name = selected.workspace, selected.name
    with contextlib.ExitStack() as resources:
        selected = resources.enter_context(selected.begin_operation())
        lock = None
        if not options.preview_only:
            lock_timeout = selected.build_lock_timeout(callbacks.warn)
            lock = resources.enter_context(
                workspace.backend.create_lock(workspace.project.name, name, lock_timeout)
            )
        import_run = _ImportRun(selected, options, callbacks, lock)
        stack = import_run.open()
        warn_of_recovery(stack.recovered, callbacks.warn)
        import_run.emulated = resources.enter_context(
            enter_environment(stack, emulate=options.emulate)
        )
        import_run.selected = selected.with_context(stack)
        stack = recover_earlier_runs(selected, stack, callbacks, lock, creates_objects=True)
        import_plan = plan_import(build_request(options, stack))
        return import_run.run(stack, import_plan)


@dataclass(slots=True)
class _ImportRun:
    selected: SelectedStack
    options: ImportOptions
    callbacks: OperationCallbacks
    lock: StackLock | None
    edits: list[FileEdit] = field(default_factory=list)
    runs: list[RunResult] = field(default_factory=list)
    emulated: bool = False

    def open(self) -> Stack:
        """Open the stack in the present state; exclusively if the run has a lock."""
        return self.selected.open(exclusive=self.lock is not None)

    def run(self, stack: Stack, import_plan: ImportPlan) -> ImportResult:
        """Import the objects and verify, or return the entries a preview would write.

        The entries are written before the import, and lose the objects' ids after the import.
        """
        for line in import_plan.messages:
            self.callbacks.report(line)
        for line in import_plan.warnings:
            self.callbacks.warn(line)
        if not import_plan.targets and not import_plan.finished_targets:
            self.callbacks.report("Nothing to import.")
            return ImportResult(ExitReason.SUCCEEDED)
        if self.options.preview_only:
            entries = import_plan.request.declarations.render(import_plan.declaration.declared)
            return ImportResult(ExitReason.SUCCEEDED, entries=entries)
        imported: list[ImportTarget] = []
        if import_plan.targets:
            result, imported = self._import_objects(stack, import_plan)
            self.runs.append(result)
            if not imported:
                # Nothing was imported: the files are as before, and nothing is left to verify.
                remaining_urns = [target.urn for target in import_plan.targets]
                return ImportResult(
                    _choose_failure_reason(result), remaining=remaining_urns, runs=self.runs
                )
        self._remove_ids(import_plan, [*imported, *import_plan.finished_targets])
        return self._verify_no_changes(import_plan.targets, imported)

    def _import_objects(
        self, stack: Stack, import_plan: ImportPlan
    ) -> tuple[RunResult, list[ImportTarget]]:
        """Write the entries, run the update, and return the result and the imported objects.

        If no object was imported, the files are restored, even if the update succeeded.
        """
        imported: list[ImportTarget] = []
        try:
            self._write_entries(stack, import_plan)
            result = self._run_update(stack, import_plan.targets)
        finally:
            # The state decides, not the result: an update may fail after some of the imports.
            imported = import_plan.find_imported_targets(self.open().snapshot.resources)
            if not imported:
                for edit in reversed(self.edits):
                    edit.undo()
        return result, imported

    def _write_entries(self, stack: Stack, import_plan: ImportPlan) -> None:
        """Write the new entries, and secrets to the settings file; nothing without entries.

        The edits are kept in `self.edits`, so that they can be undone.
        """
        declaration = import_plan.declaration
        if not declaration.declared.entries:
            return
        if declaration.secrets:
            settings = stack.settings
            before = settings.content
            # An entry refers to a secret by its configuration key: no file has the secret in plain
            # text.
            for variable, value in declaration.secrets.items():
                settings.set(variable, {SECURE: stack.crypter.encrypt(value)})
            self.edits.append(FileEdit(settings.path, before, settings.content))
        self.edits.append(import_plan.request.declarations.build_addition(declaration.declared))
        for edit in self.edits:
            edit.apply()
        count = len(declaration.declared.entries)
        entries = "1 entry" if count == 1 else f"{count} entries"
        self.callbacks.report(f"{self.edits[-1].path}: {entries} added")

    def _run_update(self, stack: Stack, targets: Sequence[ImportTarget]) -> RunResult:
        """Run an update of the targets alone. Raises EngineError if an object would change."""
        options = RunOptions(
            "update",
            parallel=self.options.parallel,
            # Limited to the imports: other changes of the program are not part of an import.
            target=tuple(target.urn for target in targets),
        )
        return self._create_run(options, stack, _reject_changes).run()

    def _create_run(
        self, options: RunOptions, stack: Stack, check_preview: Callable[[Outcome], None]
    ) -> PlannedRun:
        """Create the run of the import, evaluated with prices but without gates."""
        # Gates judge changes of platforms, and an import makes none.
        evaluator = PlanEvaluator.load_prices(stack)
        return PlannedRun(
            self.selected,
            options,
            self.callbacks,
            stack,
            self.lock,
            evaluator,
            check_preview=check_preview,
            # Somebody may change an object after the preview: an import must not undo the change.
            is_preview_limit=True,
            emulated=self.emulated,
        )

    def _remove_ids(self, import_plan: ImportPlan, targets: Sequence[ImportTarget]) -> None:
        """Remove the ids from the entries of imported objects."""
        declarations = import_plan.request.reload_declarations()
        for edit in declarations.build_import_removals(
            (target.platform, target.kind, target.name) for target in targets
        ):
            edit.apply()

    def _verify_no_changes(
        self, targets: Sequence[ImportTarget], imported: Sequence[ImportTarget]
    ) -> ImportResult:
        """Preview the imported objects, if there are any, and return the result of the import.

        Its reason is that of the preview, which fails if an object would change. If a target was
        not imported, the reason is FAILED.
        """
        reason = ExitReason.SUCCEEDED
        if imported:
            options = RunOptions(
                "update",
                preview_only=True,
                expect_no_changes=True,
                parallel=self.options.parallel,
                # Limited to the imports: other changes of the program are no failure of an import.
                target=tuple(target.urn for target in imported),
            )
            result = self._create_run(options, self.open(), lambda _outcome: None).run()
            self.runs.append(result)
            reason = result.reason
        imported_urns = [target.urn for target in imported]
        remaining_urns = [target.urn for target in targets if target.urn not in imported_urns]
        if remaining_urns:
            reason = ExitReason.FAILED
        return ImportResult(
            reason, imported=imported_urns, remaining=remaining_urns, runs=self.runs
        )


def _choose_failure_reason(result: RunResult) -> ExitReason:
    """Return the reason of an import in which no object was imported.

    The reason is DECLINED or CANCELLED if the user stopped the update, and otherwise FAILED, even
    if the update itself succeeded.
    """
    is_user_choice = result.reason in (ExitReason.DECLINED, ExitReason.CANCELLED)
    return result.reason if is_user_choice else ExitReason.FAILED


def _reject_changes(outcome: Outcome) -> None:
    """Raise EngineError if the update would change an object: an import changes nothing."""
    for resource in outcome.planned:
        for change in resource.changes:
            if change.is_sent:
                raise EngineError(
                    f"{resource.urn}: the import would change {change.path} from {change.before!r} "
                    f"to {change.after!r}, because the new declaration or the file's defaults set "
                    "this value",
                    hint="nothing was imported. Declare the resource yourself, with `import` in "
                    "its options, and look at `gpuform preview`",
                )


@dataclass(frozen=True, slots=True)
class Account:
    """The platform accounts of a stack's configuration and of the environment.

    `stack` is None for the selected stack, if one is selected. `ask_passphrase` is None where
    nobody can answer.
    """

    workspace: Workspace
    stack: str | None = None
    ask_passphrase: AskPassphrase | None = None

    def read_config(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the stack's configuration and secret keys, both empty without a stack."""
        workspace = self.workspace
        if self.stack is None and workspace.find_selected() not in workspace.list_stacks():
            return {}, []
        stack = workspace.open(self.stack, create_passphrase_finder(workspace, self.ask_passphrase))
        return stack.settings.build_program_config(stack.crypter)


def build_orphan_search(
    account: Account, platforms: Sequence[str], regions: Sequence[str], older_than: float
) -> OrphanSearch:
    """Build the search for objects without an owner; no platform is asked yet.

    `older_than` is the least age of a reported object, in seconds. Reading the stack's
    configuration may ask for the passphrase.

    Raises:
        UnsupportedKind: a platform is unknown.
    """
    for platform in platforms:
        require_platform(platform)
    config, secret_keys = account.read_config()
    settings = Settings(config=config.get)
    return OrphanSearch(
        backend=account.workspace.backend,
        settings=settings,
        platforms=platforms,
        regions=regions,
        min_age_s=older_than,
        secrets=[*settings.list_secrets(), *(config[key] for key in secret_keys)],
    )


def read_offers(
    account: Account | None, platforms: Sequence[str], regions: Sequence[str], *, emulate: bool
) -> tuple[Offers, PriceBook]:
    """Ask the platforms for offers, and return the offers and the project's price book.

    The project stores the offers for a day, unless `emulate` or `regions` are given. Without an
    `account` only the environment is read, and nothing is stored.
    """
    if account is None:
        # The emulator keeps its objects in a folder; without a project there is none.
        with tempfile.TemporaryDirectory() as folder, run_emulator(Path(folder), emulate=emulate):
            return _query_offers({}, (), platforms, regions), PriceBook()
    project_folder = account.workspace.project.directory
    config, secret_keys = account.read_config()
    book = PriceBook.read(project_folder)
    with run_emulator(project_folder, emulate=emulate):
        offers = _query_offers(config, [config[key] for key in secret_keys], platforms, regions)
    # Stored offers are what completion and `validate` read: only complete lists of real platforms.
    if not emulate and not regions:
        save_offers(project_folder, offers.offers, [*offers.asked, *offers.documented], time())
    return offers, book


def _query_offers(
    config: Mapping[str, str],
    secrets: Sequence[str],
    platforms: Sequence[str],
    regions: Sequence[str],
) -> Offers:
    """Ask the platforms for offers, and mask secrets in the failures."""
    settings = Settings(config=config.get)
    redact = Redactor([*settings.list_secrets(), *secrets]).redact
    offers = query_offers(settings, platforms, regions)
    # A platform's error message may repeat a key of the request.
    return replace(offers, failures=list(map(redact, offers.failures)))
