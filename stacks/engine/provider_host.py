"""Runs dynamic providers in the engine's process, as Pulumi's own host runs them in theirs.

A provider is the pickled object in a resource's `__provider` property. It sees what it would see
under the Pulumi CLI: plain values (no secrets), doubles for numbers, `pulumi.output.Unknown` for
what is not known yet; its answers get their secrets marked again by Pulumi's rules. What the stock
host drops (the URN, the timeout, cancellation, progress, partial success) reaches gpuform's
lifecycles through `Call`.
"""

import base64
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dill
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.runtime._serialization import _deserialize

from gpuform.providers.call import Call, serving
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import PROVIDER_KEY, Lifecycle
from gpuform.providers.properties import plain
from gpuform.providers.tracing import span
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.leaving import Leaving
from gpuform.schemas.plan import PlanReason
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_values import from_provider, to_provider
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import PropertyMap


class ProviderError(EngineError):
    """A provider refused or failed; the message is for the user."""


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


CallFactory = Callable[[str, float | None], Call]


@dataclass(slots=True)
class ProviderHost:
    """Providers of one run, each made and configured once.

    `config` is the stack's whole configuration in plain text under full keys; `new_call` makes the
    context of a provider call from a URN and a timeout in seconds.
    """

    project: str
    config: Mapping[str, str]
    new_call: CallFactory
    _providers: dict[str, ResourceProvider] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(
        self, urn: str, olds: PropertyMap, news: PropertyMap
    ) -> tuple[PropertyMap, list[Failure]]:
        """The inputs to use, and what is wrong with those given."""
        provider = self._provider(news, olds)
        with self._calling("check", urn):
            result = provider.check(to_provider(olds), to_provider(news))
            failures = [Failure(str(f.property), str(f.reason)) for f in result.failures or ()]
            inputs = from_provider({k: v for k, v in result.inputs.items() if k != PROVIDER_KEY})
        inputs[PROVIDER_KEY] = news[PROVIDER_KEY]
        return values.annotate_secrets(inputs, news), failures

    def diff(
        self,
        urn: str,
        id_: str,
        olds: PropertyMap,
        news: PropertyMap,
        *,
        refreshing: bool = False,
    ) -> Diff:
        """Compares the last outputs with new inputs; `refreshing`: only to say what drifted."""
        provider = self._provider(news, olds)
        plain_olds, plain_news = to_provider(olds), to_provider(news)
        with self._calling("diff", urn) as call:
            call.refreshing = refreshing
            result = provider.diff(id_, plain_olds, plain_news)
            return Diff(
                changes=None if result.changes is None else bool(result.changes),
                replaces=list(map(str, result.replaces or ())),
                delete_before_replace=bool(result.delete_before_replace),
                fields=_field_changes(provider, plain_olds, plain_news, "" if refreshing else id_),
            )

    def field_changes(self, olds: PropertyMap, news: PropertyMap) -> Sequence[FieldChange] | None:
        """The property-level changes of one of gpuform's resources; else None. No provider call."""
        try:
            provider = self._provider(news, olds)
        except EngineError:
            return None
        return _field_changes(provider, to_provider(olds), to_provider(news))

    def leaving(self, urn: str, id_: str, olds: PropertyMap, news: PropertyMap) -> Leaving | None:
        """While planning: the nodes that an update takes away; None where nobody tells it."""
        provider = self._provider(news, olds)
        if not isinstance(provider, Lifecycle):
            return None
        with self._calling("leaving", urn):
            return provider.leaving(id_, to_provider(olds), to_provider(news))

    def create(self, urn: str, inputs: PropertyMap, timeout: float | None) -> Created:
        """Creates the object. Raises ProviderError when nothing exists afterwards."""
        provider = self._provider(inputs)
        with self._calling("create", urn, timeout) as call:
            result = provider.create(to_provider(inputs))
            id_ = str(result.id or "")
        if not id_:
            raise ProviderError("the provider did not return an ID from create")
        outputs = self._kept(call, result.outs, inputs, known=inputs)
        return Created(id_, outputs, tuple(call.init_errors))

    def update(
        self, urn: str, id_: str, olds: PropertyMap, news: PropertyMap, timeout: float | None
    ) -> Created:
        """Changes the object in place."""
        provider = self._provider(news)
        with self._calling("update", urn, timeout) as call:
            result = provider.update(id_, to_provider(olds), to_provider(news))
            outs = result.outs
        return Created(id_, self._kept(call, outs, news, known=olds), tuple(call.init_errors))

    def delete(self, urn: str, id_: str, outputs: PropertyMap, timeout: float | None) -> None:
        """Deletes the object."""
        provider = self._provider(outputs)
        with self._calling("delete", urn, timeout):
            provider.delete(id_, to_provider(outputs))

    def may_delete(self, urn: str, outputs: PropertyMap) -> None:
        """While planning: raises ProviderError where the provider says that it would refuse."""
        provider = self._provider(outputs)
        if isinstance(provider, Lifecycle):
            with self._calling("may_delete", urn):
                provider.may_delete(to_provider(outputs))

    def read(
        self,
        urn: str,
        id_: str,
        inputs: PropertyMap,
        outputs: PropertyMap,
        timeout: float | None = None,
        *,
        as_of: float | None = None,
    ) -> tuple[Created, PropertyMap | None] | None:
        """The object as it is now, with new inputs where the provider gives them; None: gone.

        With `as_of` (by `time.monotonic`), as it was at some moment since.
        """
        provider = self._provider(outputs, inputs)
        with self._calling("read", urn, timeout) as call:
            call.as_of = as_of
            result = provider.read(id_, to_provider(outputs))
            if not result.id:
                return None
            # As in Pulumi: a value stays the secret that it was in the last outputs.
            read = self._outputs(result.outs, outputs)
            read_inputs = None
            if result.inputs is not None:
                read_inputs = self._outputs(result.inputs, inputs, provider_of=outputs)
        return Created(str(result.id), read, tuple(call.init_errors)), read_inputs

    def finds_its_creates(self, resource: ResourceState) -> bool:
        """Whether a create that was cut off is found again by the next one: gpuform's are."""
        if not resource.custom or PROVIDER_KEY not in resource.inputs:
            return False
        return isinstance(self._provider(resource.inputs), Lifecycle)

    def parts(self, resource: ResourceState) -> list[str]:
        """The ids of what the resource is made of; empty where it is one object."""
        if PROVIDER_KEY not in resource.inputs:
            return []
        provider = self._provider(resource.inputs)
        name = provider.parts if isinstance(provider, Lifecycle) else ""
        found = values.unwrap_secrets(resource.outputs.get(name))
        return [str(each) for each in found] if isinstance(found, list) else []

    def part_type(self, resource: ResourceState) -> str:
        """The type that each of its parts would have as a resource of its own."""
        provider = self._provider(resource.inputs)
        if not isinstance(provider, Lifecycle) or not provider.parts_kind:
            return ""
        return resource.type.removesuffix(provider.kind) + provider.parts_kind

    def is_bound(self, inputs: PropertyMap) -> bool:
        """Whether any number of resources may stand for one id: nothing is made or deleted."""
        provider = self._provider(inputs)
        return isinstance(provider, Lifecycle) and provider.is_bound

    def gpus(self, resource: ResourceState) -> int | None:
        """How many GPUs the resource holds by its inputs; None when they are not known yet."""
        if not resource.custom or PROVIDER_KEY not in resource.inputs:
            return 0
        try:
            provider = self._provider(resource.inputs)
        except EngineError:
            return 0
        if not isinstance(provider, Lifecycle):
            return 0
        return provider.gpus(plain(to_provider(resource.inputs)))

    def _kept(
        self, call: Call, outs: Mapping[str, Any] | None, inputs: PropertyMap, known: PropertyMap
    ) -> PropertyMap:
        """The answer about an object that exists now, whatever the answer is.

        One that no state can hold leaves what was known before, and a reason.
        """
        try:
            return self._outputs(outs, inputs)
        except Exception as error:  # noqa: BLE001 - a provider may return anything
            call.init_errors.append(
                f"the object exists, but the provider's answer about it: {error}"
            )
            return {**known, PROVIDER_KEY: inputs[PROVIDER_KEY]}

    def _outputs(
        self,
        outs: Mapping[str, Any] | None,
        inputs: PropertyMap,
        provider_of: PropertyMap | None = None,
    ) -> PropertyMap:
        outputs = from_provider({k: v for k, v in (outs or {}).items() if k != PROVIDER_KEY})
        outputs[PROVIDER_KEY] = (inputs if provider_of is None else provider_of)[PROVIDER_KEY]
        return values.annotate_secrets(outputs, inputs)

    def _provider(self, *holders: PropertyMap) -> ResourceProvider:
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
        with self._lock:
            if pickled not in self._providers:
                self._providers[pickled] = self._load(pickled)
            return self._providers[pickled]

    def _load(self, pickled: str) -> ResourceProvider:
        try:
            provider: ResourceProvider = _deserialize(
                lambda: dill.loads(base64.b64decode(pickled))  # noqa: S301 - Pulumi's own format
            )
        except Exception as error:  # noqa: BLE001 - loading it runs the project's modules
            raise ProviderError(
                f"the provider of this resource cannot be loaded: {error}",
                hint="the module that defines it must be importable from the project",
            ) from None
        with _user_errors():
            provider.configure(ConfigureRequest(Config(dict(self.config), self.project)))
        return provider

    @contextmanager
    def _calling(self, verb: str, urn: str, timeout: float | None = None) -> Iterator[Call]:
        call = self.new_call(urn, timeout)
        with span("provider", verb, urn), serving(call), _user_errors():
            yield call


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turns what a provider raises into a ProviderError.

    gpuform's lifecycles raise messages; of a program's own provider the traceback is what helps.
    """
    try:
        yield
    except (ProviderError, GeneratorExit):
        raise
    except GpuformError as error:
        raise ProviderError(str(error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a provider may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename != __file__]
        told = traceback.format_list(own) + traceback.format_exception_only(error)
        raise ProviderError(
            "Traceback (most recent call last):\n" + "".join(told).rstrip()
        ) from None


def _field_changes(
    provider: ResourceProvider, olds: dict[str, Any], news: dict[str, Any], id_: str = ""
) -> Sequence[FieldChange] | None:
    return provider.changes(olds, news, id_) if isinstance(provider, Lifecycle) else None
