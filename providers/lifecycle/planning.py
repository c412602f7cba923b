"""Plan for a resource: check its inputs, compare them with its state, and predict the outcome.

`PlannedKind` has the methods of the provider protocol that change nothing; hosts call them for
plans. `Lifecycle` adds those that create, read, change and delete.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from pulumi.dynamic import CheckFailure, CheckResult, DiffResult, ResourceProvider

from gpuform.providers import lifetime
from gpuform.providers.context import HostBoundary, ProviderContext, get_current_context
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.providers.lifecycle.comparing import (
    extract_inputs,
    find_changes,
    parse_inputs,
    parse_stored_inputs,
)
from gpuform.providers.lifecycle.guarding import (
    refuse_impossible,
    require_change_permission,
    require_deletion_permission,
    require_foreign_deletion_permission,
)
from gpuform.providers.lifecycle.traits import Properties, Traits, to_properties, to_pulumi
from gpuform.providers.operations import (
    ForeignObjectLookup,
    NodeRemovalOperations,
    PlanningChecks,
    Settings,
)
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.schemas.changes import FieldChange, find_refused_changes, requires_action
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.values import UNKNOWN, contains_unknown

NO_PROPERTIES: Final[Mapping[str, Any]] = MappingProxyType({})


class PlannedKind(Traits, ResourceProvider):
    """The part of a lifecycle that changes nothing: checks, comparisons and predictions."""

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Return the declared inputs in normal form, and each problem with its property path.

        Unknown values are skipped. Only inputs that have no problem by themselves are completed and
        checked by the kind's operations, which ask the platform if it can be asked. Warns of former
        names of inputs.

        `_olds` are the stored inputs, empty for a new object. A change from them that the kind
        refuses, such as a smaller value of a field that may only grow, is a problem; an `expires`
        in the past is one only for a new object.
        """
        with self._begin_call("check", _olds, news) as context:
            values, problems = validate_inputs(self.inputs, to_properties(news))
            for name, now in self.inputs.former_names.items():
                if news.get(name) is not None:
                    context.on_warning(f"{name} is now {now}: write {now}")
            # One group of problems after the other: each check needs inputs that passed the one
            # before.
            problems = problems or find_refused_changes(
                self.inputs, extract_inputs(self, context.stored_properties), values
            )
            problems = problems or list(
                lifetime.find_lifetime_problems(
                    self.power, values, is_new=not context.stored_properties
                )
            )
            if not problems:
                operations = self.open_operations()
                values, problems = self._complete_inputs(context, values)
                if not problems and isinstance(operations, PlanningChecks):
                    problems = list(operations.find_planning_problems(context, values))
            failures = [
                CheckFailure(problem.path, context.redact(problem.reason)) for problem in problems
            ]
            return CheckResult(to_pulumi(values), failures)

    def _complete_inputs(
        self,
        context: ProviderContext,  # noqa: ARG002 - a hook
        values: Properties,
    ) -> tuple[Properties, list[Problem]]:
        """Return valid inputs completed by the platform, and the problems of the result.

        By default the inputs themselves, and no problems. `context.stored_properties` has the
        stored inputs. May be called again with its own result.
        """
        return values, []

    def list_changes(self, olds: Properties, news: Properties, id_: str = "") -> list[FieldChange]:
        """Return the changes between old outputs and new inputs, by which `diff` decides.

        Pure, except for the records of an interrupted removal of nodes and of interrupted creates
        of parts of the object. Without `id_` these records do not count.

        Raises:
            GpuformError: a node that a person requests to repair cannot be repaired as requested.
        """
        old, declared = to_properties(olds), parse_inputs(self, to_properties(news))
        is_unclaimed = PROVIDER_KEY in news and PROVIDER_KEY not in olds
        return find_changes(
            self, get_current_context(), id_, old, declared, is_unclaimed=is_unclaimed
        )

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Return whether the inputs need an update or a replacement: see `diff_with_changes`."""
        return self.diff_with_changes(_id, _olds, _news)[0]

    def diff_with_changes(
        self, _id: str, _olds: Properties, _news: Properties
    ) -> tuple[DiffResult, list[FieldChange]]:
        """Return the answer of `diff`, and the changes by which `diff` decides; send no request.

        In a refresh, due repairs and the records of interrupted operations do not count.

        Raises:
            NotAllowed: under gpuform's engine, outside a refresh: the run lacks a permission for
                the change or replacement.
            GpuformError: a node that a person requests to repair cannot be repaired as requested;
                or under gpuform's engine, outside a refresh: the platform refuses such a change in
                place, and no other change replaces the object.
        """
        with self._begin_call("diff", _olds, _news) as context:
            # Pulumi's hosts do not say whether somebody plans, or shows what a refresh found:
            # update and delete refuse what may not be done.
            is_planning = (
                context.urn is not None and not context.refreshing and not context.is_pulumi_host
            )
            old, declared = to_properties(_olds), parse_inputs(self, to_properties(_news))
            recorded_for = "" if context.refreshing else _id
            is_unclaimed = PROVIDER_KEY in _news and PROVIDER_KEY not in _olds
            changes = find_changes(
                self, context, recorded_for, old, declared, is_unclaimed=is_unclaimed
            )
            if context.refreshing:  # that a node is broken is news, and no drift
                changes = [change for change in changes if change.repair is None]
            replaces = [change.path for change in changes if change.replaces]
            if is_planning:
                refuse_impossible(self, old, declared)
                if replaces:
                    require_deletion_permission(
                        context.run, self, old, f"this change replaces it ({', '.join(replaces)})"
                    )
                else:
                    require_change_permission(context.run, self, old, declared)
            creates_first = self.hooks.should_create_first(declared)
            result = DiffResult(
                changes=requires_action(changes),
                replaces=replaces,
                delete_before_replace=bool(replaces) and not creates_first,
            )
            return result, changes

    @classmethod
    def predict_outputs(cls, news: Properties) -> Properties:
        """Return the outputs known while planning: declared inputs, and UNKNOWN for all others.

        An update may change any computed output.
        """
        computed = dict.fromkeys(cls.outputs.model_fields, UNKNOWN)
        return {**validate_inputs(cls.inputs, to_properties(news))[0], **computed}

    def predict_removed_nodes(
        self, id_: str, olds: Properties, news: Properties
    ) -> RemovedNodes | None:
        """Return the nodes that an update removes, with their GPUs and present jobs.

        Returns None if the nodes are unknown, if the new inputs are invalid or partly unknown, and
        for a kind without nodes. `context.on_skipped_check` gets the name of a scheduler that did
        not answer.

        Raises:
            GpuformError: the declaration names nodes that do not exist.
        """
        with self._begin_call("plan", olds, news) as context:
            values, problems = validate_inputs(self.inputs, to_properties(news))
            if problems or contains_unknown(values):
                return None
            operations = self.open_operations()
            if not isinstance(operations, NodeRemovalOperations):
                return None
            return operations.predict_removed_nodes(
                context, id_, self.inputs.model_validate(values)
            )

    def predict_nodes_removed_with_object(
        self, id_: str, olds: Properties, because: str
    ) -> RemovedNodes | None:
        """Return the nodes that a planned end of the object removes, with GPUs and running jobs.

        None if the object is missing, or if nobody knows its nodes: `context.on_skipped_check` then
        receives the reason. `because` says what happens to the object.

        Raises:
            Cancelled: the run was interrupted.
        """
        with self._begin_call("plan", olds) as context:
            operations = self.open_operations()
            if not isinstance(operations, NodeRemovalOperations):
                return None
            # A plan without the jobs is better than none: the operation itself asks again, and
            # refuses.
            with _skip_failed_check(context, "the nodes removed with it, and their jobs"):
                return operations.predict_nodes_removed_with_object(
                    context, id_, parse_stored_inputs(self, context.stored_properties), because
                )
            return None

    def find_foreign_objects(self, id_: str, olds: Properties) -> Sequence[str]:
        """Return, while planning, the names of objects by others inside this one.

        Empty if there are none, if the kind has no such lookup, or if the platform could not be
        asked: then `context.on_skipped_check` receives the reason, and the deletion itself asks
        again. The deletion of an object with such objects needs the permission `destroy-others`.

        Raises:
            Cancelled: the run was interrupted.
        """
        with (
            self._begin_call("plan", olds) as context,
            _skip_failed_check(context, f"the objects of others in {id_}"),
        ):
            operations = self.open_operations()
            if isinstance(operations, ForeignObjectLookup):
                return operations.find_foreign_objects(
                    context, id_, parse_stored_inputs(self, context.stored_properties)
                )
        return ()

    def check_deletion(self, props: Properties, others: Sequence[str] = ()) -> None:
        """Raise an error while planning if a later delete would be refused; send no request.

        `others` are the names from `find_foreign_objects`: any need the permission
        `destroy-others`. A guarded object needs the guard's permission, decided by the stored
        outputs `props`. Without an error, warns of what a deletion leaves behind, if the kind has a
        `deletion_note`.

        Raises:
            NotAllowed: the run lacks one of the permissions.
        """
        with self._begin_call("delete", props) as context:
            require_deletion_permission(
                context.run, self, context.stored_properties, "the run would delete it"
            )
            require_foreign_deletion_permission(context.run, others, self.kind)
            if self.deletion_note:
                context.on_warning(self.deletion_note)

    def _begin_call(
        self, verb: str, stored: Mapping[str, Any], declared: Mapping[str, Any] = NO_PROPERTIES
    ) -> HostBoundary:
        """Return the context manager around a host's call, with the secrets to hide in messages.

        `verb` names the call. The context has `stored` as its stored properties; the secret values
        in `stored` and `declared` are hidden, too.
        """
        secrets = (self._settings or Settings()).list_secrets()
        names = self.list_secret_names()
        values = (properties.get(name) for properties in (stored, declared) for name in names)
        subject = f"a {self.platform} {self.kind}"
        return HostBoundary(verb, subject, (*secrets, *values), to_properties(stored))


@contextmanager
def _skip_failed_check(context: ProviderContext, label: str) -> Iterator[None]:
    """Report a GpuformError of the block as the skipped check `label`, except for Cancelled."""
    try:
        yield
    except Cancelled:
        raise
    except GpuformError as error:
        context.on_skipped_check(f"{label}: {error.message}")
