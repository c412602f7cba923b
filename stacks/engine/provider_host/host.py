"""Runs providers in the engine's process, as Pulumi's own hosts run them in theirs.

A dynamic provider is the pickled object in a resource's `__provider` property; one of gpuform's
resources in plugin form has that of its type, with the settings of the provider that it refers to
(`provider` is that reference). It sees what it would see
under the Pulumi CLI: plain values (no secrets), doubles for numbers, `pulumi.output.Unknown` for
what is not known yet; its answers get their secrets marked again by Pulumi's rules. What the stock
host drops (the URN, the timeout, cancellation, progress, partial success) reaches gpuform's
lifecycles through `Call`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pulumi.dynamic import ResourceProvider

from gpuform.providers.context import ProviderContext, trace_span, use_context
from gpuform.providers.forms import PROVIDER_KEY
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.properties import to_properties
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.plan import PlanReason
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host.providers import (
    DynamicProviders,
    PluginProviders,
    ProviderError,
    from_provider,
    to_provider,
    user_errors,
)
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import is_plugin, is_provider, type_of
from gpuform.stacks.engine.values import PropertyMap, find_changed_keys


@dataclass(frozen=True, slots=True)
class Failure:
    """One property that the provider's check refuses."""

    property: str
    reason: str


@dataclass(frozen=True, slots=True)
class Diff:
    """A provider's answer: `changes` is None when it leaves the comparison to the engine.

    `fields` holds the property-level changes where the provider is one of gpuform's; `reason` is
    that of a replacement which the provider did not ask for.
    """

    changes: bool | None
    replaces: Sequence[str]
    delete_before_replace: bool
    fields: Sequence[FieldChange] | None = None
    reason: PlanReason | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """What a create or update left behind; `init_errors` say why it is not ready yet."""

    id: str
    outputs: PropertyMap
    init_errors: Sequence[str] = ()


CallFactory = Callable[[str, float | None], ProviderContext]

OnGone = Callable[[str], None]
"""Hears that the object of one of gpuform's resources is gone, with the id of what explains it:
its own, or that of the object with which it fell."""


def _not_told(_cause: str) -> None:
    return


@dataclass(slots=True)
class ProviderHost:
    """Providers of one run, each made and configured once.

    `config` is the stack's whole configuration in plain text under full keys; `new_call` makes the
    context of a provider call from a URN and a timeout in seconds.
    """

    project: str
    config: Mapping[str, str]
    new_call: CallFactory
    plugins: PluginProviders = field(init=False)
    _dynamic: DynamicProviders = field(init=False)

    def __post_init__(self) -> None:
        self.plugins = PluginProviders(self.config)
        self._dynamic = DynamicProviders(self.project, self.config)

    def check(
        self, urn: str, olds: PropertyMap, news: PropertyMap, provider: str = ""
    ) -> tuple[PropertyMap, list[Failure]]:
        """The inputs to use, and what is wrong with those given."""
        if is_provider(type_of(urn)):
            inputs, problems = self.plugins.check(news)
            return inputs, [Failure(each.path, each.reason) for each in problems]
        served = self._provider(urn, provider, news, olds)
        with self._calling("check", urn, olds, news) as call:
            result = served.check(to_provider(olds), to_provider(news))
            failures = [
                Failure(str(f.property), call.redact(str(f.reason))) for f in result.failures or ()
            ]
            inputs = self._answer(served, urn, dict(result.inputs), news, news)
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
        """Compares the last outputs with new inputs; `refreshing`: only to say what drifted."""
        if is_provider(type_of(urn)):
            changed = bool(find_changed_keys(olds, news))
            return Diff(changes=changed, replaces=(), delete_before_replace=False)
        served = self._provider(urn, provider, news, olds)
        plain_olds, plain_news = _comparable(served, olds, news)
        with self._calling("diff", urn, olds, news) as call:
            call.refreshing = refreshing
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

    def field_changes(
        self, urn: str, olds: PropertyMap, news: PropertyMap, provider: str = ""
    ) -> Sequence[FieldChange] | None:
        """The property-level changes of one of gpuform's resources; else None. No provider call."""
        try:
            served = self._provider(urn, provider, news, olds)
        except EngineError:
            return None
        return _field_changes(served, *_comparable(served, olds, news))

    def leaving(
        self, urn: str, id_: str, olds: PropertyMap, news: PropertyMap, provider: str = ""
    ) -> RemovedNodes | None:
        """While planning: the nodes that an update takes away; None where nobody tells it."""
        served = self._provider(urn, provider, news, olds)
        if not isinstance(served, Lifecycle):
            return None
        with self._calling("leaving", urn, olds, news):
            return served.predict_removed_nodes(id_, *_comparable(served, olds, news))

    def all_leaving(
        self, urn: str, id_: str, outputs: PropertyMap, because: str, provider: str = ""
    ) -> RemovedNodes | None:
        """While planning: the nodes that go with an object; None where nobody tells it."""
        served = self._provider(urn, provider, outputs)
        if not isinstance(served, Lifecycle):
            return None
        with self._calling("leaving", urn, outputs):
            return served.predict_nodes_removed_with_object(id_, to_provider(outputs), because)

    def others_within(
        self, urn: str, id_: str, outputs: PropertyMap, provider: str = ""
    ) -> Sequence[str]:
        """While planning: return the names of what others have put into an object."""
        served = self._provider(urn, provider, outputs)
        if not isinstance(served, Lifecycle):
            return ()
        with self._calling("others", urn, outputs):
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
        """Creates the object; `replaces` is the id of the one in whose place, if that is there.

        Raises ProviderError when nothing exists afterwards.
        """
        served = self._provider(urn, provider, inputs)
        with self._calling("create", urn, inputs, timeout=timeout) as call:
            call.replaced_id = replaces
            result = served.create(to_provider(inputs))
            id_ = str(result.id or "")
        if not id_:
            raise ProviderError("the provider did not return an ID from create")
        outputs = self._kept(served, urn, call, result.outs, inputs, known=inputs)
        return Created(id_, outputs, _reasons(call))

    def find_created(
        self, urn: str, inputs: PropertyMap, timeout: float | None, provider: str = ""
    ) -> Created | None:
        """What an interrupted create has made; None when nothing, or when nobody can find it."""
        served = self._provider(urn, provider, inputs)
        if not isinstance(served, Lifecycle):
            return None
        with self._calling("find", urn, inputs, timeout=timeout):
            result = served.recover_create(to_provider(inputs))
            if result is None:
                return None
            return Created(result.id, self._answer(served, urn, result.outs, inputs, inputs))

    def update(
        self,
        urn: str,
        id_: str,
        olds: PropertyMap,
        news: PropertyMap,
        timeout: float | None,
        provider: str = "",
    ) -> Created:
        """Changes the object in place."""
        served = self._provider(urn, provider, news)
        with self._calling("update", urn, olds, news, timeout=timeout) as call:
            result = served.update(id_, to_provider(olds), to_provider(news))
            outputs = self._kept(served, urn, call, result.outs, news, known=olds)
        return Created(id_, outputs, _reasons(call))

    def delete(
        self,
        urn: str,
        id_: str,
        outputs: PropertyMap,
        timeout: float | None,
        provider: str = "",
        *,
        on_gone: OnGone = _not_told,
    ) -> None:
        """Deletes the object; one that was gone before is told to `on_gone`."""
        served = self._provider(urn, provider, outputs)
        with self._calling("delete", urn, outputs, timeout=timeout) as call:
            served.delete(id_, to_provider(outputs))
            if call.was_already_deleted:
                on_gone(call.deleted_with_id or id_)

    def may_delete(
        self, urn: str, outputs: PropertyMap, provider: str = "", others: Sequence[str] = ()
    ) -> None:
        """While planning: raises ProviderError where the provider says that it would refuse."""
        served = self._provider(urn, provider, outputs)
        if isinstance(served, Lifecycle):
            with self._calling("may_delete", urn, outputs):
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
        on_gone: OnGone = _not_told,
    ) -> tuple[Created, PropertyMap | None] | None:
        """The object as it is now, with new inputs where the provider gives them.

        None when it is gone, which is told to `on_gone`. With `as_of` (by `time.monotonic`), as it
        was at some moment since.
        """
        served = self._provider(urn, provider, outputs, inputs)
        holder = {**inputs, **outputs}
        with self._calling("read", urn, holder, timeout=timeout) as call:
            call.fresh_since = as_of
            result = served.read(id_, to_provider(outputs))
            if not result.id:
                if isinstance(served, Lifecycle) and not served.is_bound:
                    on_gone(call.deleted_with_id or id_)
                return None
            # As in Pulumi: a value stays the secret that it was in the last outputs.
            read = self._answer(served, urn, result.outs, outputs, holder)
            read_inputs = None
            if result.inputs is not None:
                read_inputs = self._answer(served, urn, result.inputs, inputs, holder)
        return Created(str(result.id), read, _reasons(call)), read_inputs

    def finds_its_creates(self, resource: ResourceState) -> bool:
        """Whether a create that was cut off is found again by the next one: gpuform's are."""
        return self._lifecycle(resource) is not None

    def parts(self, resource: ResourceState) -> list[str]:
        """The ids of what the resource is made of; empty where it is one object."""
        lifecycle = self._lifecycle(resource)
        name = lifecycle.parts_field if lifecycle else ""
        found = values.unwrap_secrets(resource.outputs.get(name))
        return [str(each) for each in found] if isinstance(found, list) else []

    def part_type(self, resource: ResourceState) -> str:
        """The type that each of its parts would have as a resource of its own."""
        lifecycle = self._lifecycle(resource)
        if lifecycle is None or not lifecycle.parts_kind:
            return ""
        return resource.type.removesuffix(lifecycle.kind) + lifecycle.parts_kind

    def is_bound(self, urn: str, inputs: PropertyMap) -> bool:
        """Whether any number of resources may stand for one id: nothing is made or deleted."""
        served = self._provider(urn, "", inputs)
        return isinstance(served, Lifecycle) and served.is_bound

    def gpus(self, resource: ResourceState) -> int | None:
        """How many GPUs the resource holds by its inputs; None when they are not known yet."""
        try:
            lifecycle = self._lifecycle(resource)
        except EngineError:
            return 0
        return lifecycle.count_gpus(to_properties(to_provider(resource.inputs))) if lifecycle else 0

    def watched(self, resource: ResourceState) -> frozenset[str]:
        """The outputs whose change is drift; none of what is not gpuform's own."""
        try:
            lifecycle = self._lifecycle(resource)
        except EngineError:
            return frozenset()
        return lifecycle.drift_outputs if lifecycle else frozenset()

    def moving(self, resource: ResourceState) -> frozenset[str] | None:
        """The outputs that change by themselves; None of what is not gpuform's own."""
        try:
            lifecycle = self._lifecycle(resource)
        except EngineError:
            return None
        return lifecycle.volatile_outputs if lifecycle else None

    def _lifecycle(self, resource: ResourceState) -> Lifecycle[Any, Any] | None:
        """That of one of gpuform's resources; None for any other."""
        if not resource.custom:
            return None
        if PROVIDER_KEY not in resource.inputs and not is_plugin(resource.type):
            return None
        served = self._provider(resource.urn, resource.provider, resource.inputs)
        return served if isinstance(served, Lifecycle) else None

    def _kept(
        self,
        served: ResourceProvider,
        urn: str,
        call: ProviderContext,
        outs: Mapping[str, Any] | None,
        inputs: PropertyMap,
        known: PropertyMap,
    ) -> PropertyMap:
        """The answer about an object that exists now, whatever the answer is.

        One that no state can hold leaves what was known before, and a reason.
        """
        try:
            return self._answer(served, urn, outs, inputs, inputs)
        except Exception as error:  # noqa: BLE001 - a provider may return anything
            call.init_errors.append(
                f"the object exists, but the provider's answer about it: {error}"
            )
            provider = {key: inputs[key] for key in (PROVIDER_KEY,) if key in inputs}
            return {**known, **provider}

    def _answer(
        self,
        served: ResourceProvider,
        urn: str,
        answer: Mapping[str, Any] | None,
        given: PropertyMap,
        holder: PropertyMap,
    ) -> PropertyMap:
        """A provider's answer with its secrets, and with the provider that `holder` has, if any.

        In plugin form the models say what is secret besides what was given as such.
        """
        found = from_provider({k: v for k, v in (answer or {}).items() if k != PROVIDER_KEY})
        if isinstance(served, Lifecycle):
            found = values.mark_renamed_secrets(found, given, served.inputs.model_fields)
        if is_plugin(type_of(urn)) and isinstance(served, Lifecycle):
            secret = values.mark_secret_outputs(found, {}, served.list_secret_names())
            return values.mark_echoed_secrets(secret, given)
        if PROVIDER_KEY in holder:
            found[PROVIDER_KEY] = holder[PROVIDER_KEY]
        return values.mark_echoed_secrets(found, given)

    def _provider(self, urn: str, reference: str, *holders: PropertyMap) -> ResourceProvider:
        if is_plugin(type_of(urn)):
            with user_errors():
                return self.plugins.lifecycle(type_of(urn), reference)
        pickled = next(
            (
                text
                for holder in holders
                if isinstance(text := values.unwrap_secrets(holder.get(PROVIDER_KEY)), str)
            ),
            None,
        )
        if pickled is None:
            raise ProviderError("the resource has no provider in its state (`__provider`)")
        return self._dynamic.provider(pickled)

    @contextmanager
    def _calling(
        self, verb: str, urn: str, *given: PropertyMap, timeout: float | None = None
    ) -> Iterator[ProviderContext]:
        """Around a provider's call: it tells nothing that is secret in what it is given."""
        call = self.new_call(urn, timeout)
        for properties in given:
            call.add_secrets(values.collect_secret_texts(properties))
        with trace_span("provider", verb, urn), use_context(call), user_errors(call.redact):
            yield call


def _reasons(call: ProviderContext) -> tuple[str, ...]:
    """Why an object is not ready, as a state may hold it."""
    return tuple(map(call.redact, call.init_errors))


def _comparable(
    served: ResourceProvider, olds: PropertyMap, news: PropertyMap
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Old outputs and new inputs as the provider compares them.

    Outputs that were left in plugin form do not say which provider manages the resource. The
    engine puts that into the state itself: for one of gpuform's it is no change.
    """
    plain_olds, plain_news = to_provider(olds), to_provider(news)
    if isinstance(served, Lifecycle) and PROVIDER_KEY in plain_news:
        plain_olds.setdefault(PROVIDER_KEY, plain_news[PROVIDER_KEY])
    return plain_olds, plain_news


def _field_changes(
    provider: ResourceProvider, olds: dict[str, Any], news: dict[str, Any]
) -> Sequence[FieldChange] | None:
    return provider.list_changes(olds, news) if isinstance(provider, Lifecycle) else None
