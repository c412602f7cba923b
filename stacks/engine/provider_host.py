"""Run providers in the engine's process, as Pulumi's own hosts run them in theirs.

A dynamic provider is the pickled object in a resource's `__provider` property; a gpuform resource
in plugin form has the provider of its type, with the settings of the provider that `provider`
refers to. Providers get the values that they get under the Pulumi CLI: plain values (no secrets),
doubles for numbers, `pulumi.output.Unknown` for unknown values; secrets in their answers are marked
again by Pulumi's rules. What the stock host drops (the URN, the timeout, cancellation, progress,
partial success) reaches gpuform's lifecycles through `ProviderContext`. Planning and the step
executor call this module.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pulumi.dynamic import ResourceProvider

from gpuform.providers import values
from gpuform.providers.context import ProviderContext, RunContext, trace_span, use_context
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import PropertyMap, find_changed_keys
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.stacks.engine.dynamic_providers import (
    DynamicProviders,
    PluginProviders,
    ProviderError,
    from_provider,
    raise_as_provider_error,
    to_plain,
    to_provider,
)
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import is_plugin, is_provider, type_of


@dataclass(frozen=True, slots=True)
class PropertyFailure:
    """One property that the provider's check rejects."""

    property: str
    reason: str


@dataclass(frozen=True, slots=True)
class Diff:
    """A provider's answer; `changes` is None if the provider leaves the comparison to the engine.

    `fields` holds the property-level changes where the provider is one of gpuform's; `reason` is
    the reason of a replacement that the provider did not ask for.
    """

    changes: bool | None
    replaces: Sequence[str]
    delete_before_replace: bool
    fields: Sequence[FieldChange] | None = None
    reason: PlanReason | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """The result of a create or update; `init_errors` say why the object is not ready yet."""

    id: str
    outputs: PropertyMap
    init_errors: Sequence[str] = ()


ContextFactory = Callable[[str, float | None], ProviderContext]

OnGone = Callable[[str], None]
"""Receives the id of the missing object that explains why an object is gone.

This is the id of the object itself, or of the object that contained it.
"""


@dataclass(slots=True)
class ProviderHost:
    """The providers of one run, each created and configured once.

    `config` is the stack's complete configuration in plain text under full keys; `create_context`
    makes the context of a provider call from a URN and a timeout in seconds. `run_context` is what
    the run was asked, where providers are created outside of such a call.
    """

    project: str
    config: Mapping[str, str]
    create_context: ContextFactory
    run_context: RunContext
    plugins: PluginProviders = field(init=False)
    _dynamic: DynamicProviders = field(init=False)
    _planned_repairs: list[NodeRepair] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plugins = PluginProviders(self.config, self.run_context)
        self._dynamic = DynamicProviders(self.project, self.config, self.run_context)

    def check(
        self,
        urn: str,
        olds: PropertyMap,
        news: PropertyMap,
        provider: str = "",
        *,
        existing: PropertyMap | None = None,
    ) -> tuple[PropertyMap, list[PropertyFailure]]:
        """Return the inputs to use, and the provider's complaints about `news`.

        `existing` has the inputs of the object that a new one replaces, empty for an import; None
        for a new object, and where `olds` are not empty.

        A provider resource is checked by gpuform's own rules. Raises ProviderError if the provider
        fails.
        """
        if is_provider(type_of(urn)):
            inputs, problems = self.plugins.check(news)
            return inputs, [PropertyFailure(problem.path, problem.reason) for problem in problems]
        served = self._get_provider(urn, provider, news, olds)
        existing_inputs = None if existing is None else to_provider(existing)
        with self._call_context(
            "check", urn, olds, news, existing_inputs=existing_inputs
        ) as context:
            result = served.check(to_provider(olds), to_provider(news))
            failures = [
                PropertyFailure(str(f.property), context.redact(str(f.reason)))
                for f in result.failures or ()
            ]
            inputs = self._convert_answer(served, urn, dict(result.inputs), news, news)
        return inputs, failures

    def diff(
        self,
        urn: str,
        id_: str,
        olds: PropertyMap,
        news: PropertyMap,
        provider: str = "",
        *,
        refreshing: bool = False,
    ) -> Diff:
        """Compare the last outputs with new inputs; with `refreshing`, only to report drift.

        `changes` is None in the result if the provider leaves the comparison to the engine. A
        provider resource is never replaced.
        """
        if is_provider(type_of(urn)):
            # As in Pulumi without DiffConfig: a provider is updated in place and never replaced.
            changed = bool(find_changed_keys(olds, news))
            return Diff(changes=changed, replaces=(), delete_before_replace=False)
        served = self._get_provider(urn, provider, news, olds)
        plain_olds, plain_news = _to_comparable(served, olds, news)
        with self._call_context("diff", urn, olds, news, refreshing=refreshing):
            fields: Sequence[FieldChange] | None = None
            if isinstance(served, Lifecycle):
                result, fields = served.diff_with_changes(id_, plain_olds, plain_news)
            else:
                result = served.diff(id_, plain_olds, plain_news)
            return Diff(
                changes=None if result.changes is None else bool(result.changes),
                replaces=list(map(str, result.replaces or ())),
                delete_before_replace=bool(result.delete_before_replace),
                fields=fields,
            )

    def add_planned_repairs(self, change: ResourceChange | None) -> None:
        """Give the repairs of a step's change to all later calls, without the ends of repairs."""
        if change is not None:
            self._planned_repairs += [
                repair for repair in change.repairs if not repair.is_withdrawal
            ]

    def tests_repaired_nodes(self, resource: ResourceState) -> bool:
        """Return True if the resource tests nodes repaired by an earlier step of the run."""
        if not self._planned_repairs or not resource.custom or resource.external:
            return False
        lifecycle = self._find_loadable_lifecycle(resource)
        outputs, repairs = to_provider(resource.outputs), self._planned_repairs
        return lifecycle is not None and lifecycle.hooks.tests_nodes_of(outputs, repairs)

    def find_recreated_ids(self, old: ResourceState, new: ResourceState) -> Mapping[str, str]:
        """Return the new id of each node recreated by an update, by the node's old id."""
        lifecycle = self._find_lifecycle(new)
        if lifecycle is None:
            return {}
        before, after = (
            {
                record.name: record.node_id
                for record in lifecycle.hooks.list_node_records(
                    entry.id, to_provider(entry.inputs), to_provider(entry.outputs)
                )
            }
            for entry in (old, new)
        )
        return {
            old_id: after[name]
            for name, old_id in before.items()
            if after.get(name, old_id) != old_id
        }

    def find_field_changes(
        self, urn: str, olds: PropertyMap, news: PropertyMap, provider: str = ""
    ) -> Sequence[FieldChange] | None:
        """Return property-level changes of a gpuform resource, without a request.

        Return None for resources of other providers, and if the provider cannot be loaded.
        """
        try:
            served = self._get_provider(urn, provider, news, olds)
        except EngineError:
            return None
        if not isinstance(served, Lifecycle):
            return None
        return served.list_changes(*_to_comparable(served, olds, news))

    def predict_removed_nodes(
        self, urn: str, id_: str, olds: PropertyMap, news: PropertyMap, provider: str = ""
    ) -> RemovedNodes | None:
        """Predict, while planning, the nodes removed by an update; return None if unknown."""
        served = self._get_provider(urn, provider, news, olds)
        if not isinstance(served, Lifecycle):
            return None
        with self._call_context("leaving", urn, olds, news):
            return served.predict_removed_nodes(id_, *_to_comparable(served, olds, news))

    def predict_nodes_removed_with_object(
        self, urn: str, id_: str, outputs: PropertyMap, because: str, provider: str = ""
    ) -> RemovedNodes | None:
        """Predict, while planning, the nodes removed with an object; return None if unknown."""
        served = self._get_provider(urn, provider, outputs)
        if not isinstance(served, Lifecycle):
            return None
        with self._call_context("leaving", urn, outputs):
            return served.predict_nodes_removed_with_object(id_, to_provider(outputs), because)

    def find_foreign_objects(
        self, urn: str, id_: str, outputs: PropertyMap, provider: str = ""
    ) -> Sequence[str]:
        """Return, while planning, the names of other people's objects inside an object."""
        served = self._get_provider(urn, provider, outputs)
        if not isinstance(served, Lifecycle):
            return ()
        with self._call_context("others", urn, outputs):
            return served.find_foreign_objects(id_, to_provider(outputs))

    def create(
        self,
        urn: str,
        inputs: PropertyMap,
        timeout: float | None,
        provider: str = "",
        *,
        replaces: str = "",
    ) -> Created:
        """Create the object; return the id, outputs and init errors.

        `replaces` is the id of the still existing object that the new one replaces, or empty. After
        an invalid answer the outputs are the inputs, and an init error says so.

        Raises:
            ProviderError: the provider failed or returned no id.
        """
        served = self._get_provider(urn, provider, inputs)
        with self._call_context(
            "create", urn, inputs, timeout=timeout, replaced_id=replaces
        ) as context:
            result = served.create(to_provider(inputs))
            id_ = str(result.id or "")
        # Without an id the object could neither be read nor deleted; the CLI fails in the same way.
        if not id_:
            raise ProviderError("the provider did not return an ID from create")
        outputs = self._convert_saved_answer(
            served, urn, context, result.outs, inputs, known=inputs
        )
        return Created(id_, outputs, _list_init_errors(context))

    def find_created(
        self, urn: str, inputs: PropertyMap, timeout: float | None, provider: str = ""
    ) -> Created | None:
        """Find the object of an interrupted create; None if there is none or none can be found.

        Only gpuform's lifecycles can find one. Raises ProviderError if the result is unknown.
        """
        served = self._get_provider(urn, provider, inputs)
        if not isinstance(served, Lifecycle):
            return None
        with self._call_context("find", urn, inputs, timeout=timeout):
            result = served.recover_create(to_provider(inputs))
            if result is None:
                return None
            return Created(
                result.id, self._convert_answer(served, urn, result.outs, inputs, inputs)
            )

    def update(
        self,
        urn: str,
        id_: str,
        olds: PropertyMap,
        news: PropertyMap,
        timeout: float | None,
        provider: str = "",
    ) -> Created:
        """Update the object in place; return the id, outputs and init errors.

        After an invalid answer the outputs are the old ones, and an init error says so. Raises
        ProviderError if the provider fails.
        """
        served = self._get_provider(urn, provider, news)
        with self._call_context("update", urn, olds, news, timeout=timeout) as context:
            result = served.update(id_, to_provider(olds), to_provider(news))
            outputs = self._convert_saved_answer(
                served, urn, context, result.outs, news, known=olds
            )
        return Created(id_, outputs, _list_init_errors(context))

    def delete(
        self,
        urn: str,
        id_: str,
        outputs: PropertyMap,
        timeout: float | None,
        provider: str = "",
        *,
        on_gone: OnGone = lambda _cause: None,
    ) -> None:
        """Delete the object; call `on_gone` for an object already missing.

        Only gpuform's own providers report a missing object.
        """
        served = self._get_provider(urn, provider, outputs)
        with self._call_context("delete", urn, outputs, timeout=timeout) as context:
            served.delete(id_, to_provider(outputs))
            if context.progress.was_already_deleted:
                on_gone(context.progress.deleted_with_id or id_)

    def check_deletion(
        self, urn: str, outputs: PropertyMap, provider: str = "", others: Sequence[str] = ()
    ) -> None:
        """Raise ProviderError, while planning, if the provider would refuse the deletion.

        `others` are the names of objects by others inside the object: any need the permission
        `destroy-others`. Providers that are not gpuform's own are not asked.
        """
        served = self._get_provider(urn, provider, outputs)
        if isinstance(served, Lifecycle):
            with self._call_context("may_delete", urn, outputs):
                served.check_deletion(to_provider(outputs), others)

    def read(  # noqa: PLR0913 - the protocol's arguments
        self,
        urn: str,
        id_: str,
        inputs: PropertyMap,
        outputs: PropertyMap,
        timeout: float | None = None,
        provider: str = "",
        *,
        as_of: float | None = None,
        on_gone: OnGone = lambda _cause: None,
    ) -> tuple[Created, PropertyMap | None] | None:
        """Read the object, with new inputs where the provider returns inputs.

        Args:
            as_of: a time by `time.monotonic`; an answer read since then may be used.
            on_gone: called with the id of a missing object, if its lifecycle is gpuform's and does
                not only bind an object.

        Returns:
            The object and its inputs (None if the provider returns none), or None if the object is
            gone.
        """
        served = self._get_provider(urn, provider, outputs, inputs)
        holder = {**inputs, **outputs}
        with self._call_context("read", urn, holder, timeout=timeout, fresh_since=as_of) as context:
            result = served.read(id_, to_provider(outputs))
            # In Pulumi's protocol an empty id says that the object does not exist.
            if not result.id:
                if isinstance(served, Lifecycle) and not served.is_bound:
                    on_gone(context.progress.deleted_with_id or id_)
                return None
            # As in Pulumi, a value that was secret in the last outputs stays secret.
            read = self._convert_answer(served, urn, result.outs, outputs, holder)
            read_inputs = None
            if result.inputs is not None:
                read_inputs = self._convert_answer(served, urn, result.inputs, inputs, holder)
        return Created(str(result.id), read, _list_init_errors(context)), read_inputs

    def can_find_created(self, resource: ResourceState) -> bool:
        """Return True if the provider's next create finds the object of an interrupted create.

        All of gpuform's providers do.
        """
        return self._find_lifecycle(resource) is not None

    def list_part_ids(self, resource: ResourceState) -> list[str]:
        """Return the ids of the resource's parts; empty for a resource without parts."""
        lifecycle = self._find_lifecycle(resource)
        name = lifecycle.parts_field if lifecycle else ""
        part_ids = values.unwrap_secrets(resource.outputs.get(name))
        return [str(part_id) for part_id in part_ids] if isinstance(part_ids, list) else []

    def get_part_type(self, resource: ResourceState) -> str:
        """Return the resource type of a single part of the object, or "" without parts."""
        lifecycle = self._find_lifecycle(resource)
        if lifecycle is None or not lifecycle.parts_kind:
            return ""
        return resource.type.removesuffix(lifecycle.kind) + lifecycle.parts_kind

    def is_bound(self, urn: str, inputs: PropertyMap) -> bool:
        """Return True if resources may share one id: the provider creates and deletes nothing."""
        served = self._get_provider(urn, "", inputs)
        return isinstance(served, Lifecycle) and served.is_bound

    def count_gpus(self, resource: ResourceState) -> int | None:
        """Return the number of the resource's GPUs by the inputs, or None if unknown.

        The number is 0 for resources of other providers, and if the provider cannot be loaded.
        """
        lifecycle = self._find_loadable_lifecycle(resource)
        return lifecycle.hooks.count_gpus(to_plain(resource.inputs)) if lifecycle else 0

    def get_drift_outputs(self, resource: ResourceState) -> frozenset[str]:
        """Return the outputs whose change is drift; empty for resources of other providers."""
        lifecycle = self._find_loadable_lifecycle(resource)
        return lifecycle.drift_outputs if lifecycle else frozenset()

    def get_volatile_outputs(self, resource: ResourceState) -> frozenset[str] | None:
        """Return the outputs free to change by themselves; None for other providers' resources."""
        lifecycle = self._find_loadable_lifecycle(resource)
        return lifecycle.volatile_outputs if lifecycle else None

    def _find_loadable_lifecycle(self, resource: ResourceState) -> Lifecycle[Any, Any] | None:
        """Return the lifecycle of the resource, or None if the provider cannot be loaded."""
        with suppress(EngineError):
            return self._find_lifecycle(resource)
        return None

    def _find_lifecycle(self, resource: ResourceState) -> Lifecycle[Any, Any] | None:
        """Return the lifecycle of a gpuform resource, or None for any other resource.

        Return None also for an entry in dynamic form without its provider.
        """
        if not resource.custom:
            return None
        if PROVIDER_KEY not in resource.inputs and not is_plugin(resource.type):
            return None
        served = self._get_provider(resource.urn, resource.provider, resource.inputs)
        return served if isinstance(served, Lifecycle) else None

    def _convert_saved_answer(
        self,
        served: ResourceProvider,
        urn: str,
        context: ProviderContext,
        outs: Mapping[str, Any] | None,
        inputs: PropertyMap,
        known: PropertyMap,
    ) -> PropertyMap:
        """Convert the answer about an existing object, even an invalid answer.

        An invalid answer leaves the values that were known before, and a reason in `init_errors`.
        """
        try:
            return self._convert_answer(served, urn, outs, inputs, inputs)
        except Exception as error:  # noqa: BLE001 - a provider may return anything
            context.progress.init_errors.append(
                f"the object exists, but its provider returned an invalid answer: {error}"
            )
            provider = {key: inputs[key] for key in (PROVIDER_KEY,) if key in inputs}
            return {**known, **provider}

    def _convert_answer(
        self,
        served: ResourceProvider,
        urn: str,
        answer: Mapping[str, Any] | None,
        inputs: PropertyMap,
        holder: PropertyMap,
    ) -> PropertyMap:
        """Convert a provider's answer to properties.

        Values that are secret in `inputs` or by gpuform's models become secret. In dynamic form the
        provider is copied from `holder`.
        """
        # As the stock host: `__provider` is copied from the inputs, whatever the answer has.
        properties = from_provider({k: v for k, v in (answer or {}).items() if k != PROVIDER_KEY})
        if isinstance(served, Lifecycle):
            properties = values.mark_renamed_secrets(properties, inputs, served.inputs.model_fields)
        if is_plugin(type_of(urn)) and isinstance(served, Lifecycle):
            secret = values.mark_secret_outputs(properties, {}, served.list_secret_names())
            return values.mark_echoed_secrets(secret, inputs)
        if PROVIDER_KEY in holder:
            properties[PROVIDER_KEY] = holder[PROVIDER_KEY]
        return values.mark_echoed_secrets(properties, inputs)

    def _get_provider(self, urn: str, reference: str, *holders: PropertyMap) -> ResourceProvider:
        """Return the lifecycle of a type in plugin form, else the pickled provider in `holders`.

        The first of the `holders` with a known provider counts. Raises ProviderError without one.
        """
        if is_plugin(type_of(urn)):
            with raise_as_provider_error():
                return self.plugins.get_lifecycle(type_of(urn), reference)
        # The first that has it: while the new `__provider` is unknown, the old one is asked.
        pickled = next(
            (
                pickled_text
                for holder in holders
                if isinstance(pickled_text := values.unwrap_secrets(holder.get(PROVIDER_KEY)), str)
            ),
            None,
        )
        if pickled is None:
            raise ProviderError("the resource has no provider in the state (`__provider`)")
        return self._dynamic.get_provider(pickled)

    @contextmanager
    def _call_context(
        self,
        verb: str,
        urn: str,
        *property_maps: PropertyMap,
        timeout: float | None = None,
        **facts: Any,
    ) -> Iterator[ProviderContext]:
        """Enter the context of a provider call, and raise errors in the block as ProviderError.

        The secrets in `property_maps` are redacted. `verb` names the call in traces. `facts` are
        fields of the context.
        """
        context = replace(
            self.create_context(urn, timeout), planned_repairs=(*self._planned_repairs,), **facts
        )
        for properties in property_maps:
            context.add_secrets(values.collect_secret_texts(properties))
        with (
            trace_span("provider", verb, urn),
            use_context(context),
            raise_as_provider_error(context.redact),
        ):
            yield context


def _list_init_errors(context: ProviderContext) -> tuple[str, ...]:
    """Return why an object is not ready, with secrets redacted."""
    return tuple(map(context.redact, context.progress.init_errors))


def _to_comparable(
    served: ResourceProvider, olds: PropertyMap, news: PropertyMap
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return old outputs and new inputs in the form for the provider's comparison.

    Outputs written in plugin form do not say which provider manages the resource. The engine puts
    the provider into the state itself: for a gpuform resource that is not a change.
    """
    plain_olds, plain_news = to_provider(olds), to_provider(news)
    if isinstance(served, Lifecycle) and PROVIDER_KEY in plain_news:
        plain_olds.setdefault(PROVIDER_KEY, plain_news[PROVIDER_KEY])
    return plain_olds, plain_news
