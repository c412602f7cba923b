"""The only Pulumi dynamic provider: owns the protocol, so that platforms write typed verbs.

`Lifecycle` runs under gpuform's engine and under Pulumi's stock host alike. It alone knows
`__provider`, Pulumi's unknowns and doubles; everything below works on models.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    ResourceProvider,
    UpdateResult,
)

from gpuform.providers import lifetime
from gpuform.providers.actions import Actions, HoldsOthers, Settings, TakesNodes
from gpuform.providers.calls import Call, Edge, adapt_to_stock_host, current_call
from gpuform.providers.environment import enter
from gpuform.providers.errors import Cancelled, GpuformError, NotFound, NothingMade, Unfinished
from gpuform.providers.forms import PROVIDER_KEY
from gpuform.providers.lifecycle.comparing import (
    at_this_hour,
    changes,
    compare,
    echo,
    importable,
    typed,
)
from gpuform.providers.lifecycle.guarding import (
    ObjectGone,
    delete_when_shown,
    look_before_deletion,
    read_until_settled,
    refuse_gone,
    refuse_impossible,
    refuse_to_forget_others,
    refuse_to_leave,
    require_for_change,
    require_for_destruction,
    require_for_others,
)
from gpuform.providers.lifecycle.settling import INTERRUPTED, settle
from gpuform.providers.lifecycle.traits import Traits, shown
from gpuform.providers.properties import Properties, plain, to_pulumi
from gpuform.providers.records import SETTLE, Drains
from gpuform.schemas.changes import FieldChange, is_change, project, refusals
from gpuform.schemas.checking import check
from gpuform.schemas.models import InputModel, OutputModel, Problem
from gpuform.schemas.policies.drain import Leaving
from gpuform.schemas.values import UNKNOWN, contains_unknown

In = TypeVar("In", bound=InputModel)
Out = TypeVar("Out", bound=OutputModel)


class Lifecycle(Traits, ResourceProvider, Generic[In, Out]):
    """The lifecycle of one kind of resource of one platform.

    Instances are stateless for pickle: a state file holds the class's dotted path, which is
    therefore fixed for ever. Outputs are the declared inputs in their declared types, each with
    the value last observed, and the computed outputs; where an output has the name of an input, it
    is the platform's value. `ready` alone says whether the resource can be used. Methods are
    thread-safe, change nothing that they are given, and raise only GpuformError.
    """

    serialize_as_secret_always = False  # there is no secret in a dotted path

    actions: ClassVar[type[Actions[Any, Any]]]

    _settings: Settings | None = None

    @classmethod
    def using(cls, settings: Settings) -> Self:
        """One that finds its platform by these settings."""
        made = cls()
        made._settings = settings
        return made

    def __getstate__(self) -> None:
        """Nothing of an instance is pickled: what it was configured with stays in its process."""
        return

    def configure(self, req: ConfigureRequest) -> None:
        """Takes the stack's configuration, where the environment says nothing."""
        self._settings = Settings(config=req.config.get)
        adapt_to_stock_host()

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Everything wrong with the inputs, with property paths; canonical inputs otherwise.

        Unknown values are skipped. The platform is asked only when it can be, and only when the
        inputs are right by themselves.
        """
        with self._serving("check", _olds, news) as call:
            call.known = plain(_olds)
            values, problems = check(self.inputs, plain(news))
            for name, now in self.inputs.former_names.items():
                if news.get(name) is not None:
                    call.on_warning(f"{name} is called {now} now: write {now}")
            problems = problems or refusals(self.inputs, echo(self, call.known), values)
            problems = problems or list(
                lifetime.problems(self.power, values, is_new=not call.known)
            )
            if not problems:
                actions = self._actions()
                values, problems = self._completed(call, values)
                problems = problems or list(actions.planning_problems(call, values))
            failures = [
                CheckFailure(problem.path, call.redacted(problem.reason)) for problem in problems
            ]
            return CheckResult(to_pulumi(values), failures)

    def changes(self, olds: Properties, news: Properties, id_: str = "") -> list[FieldChange]:
        """What `diff` decides on: old outputs against new inputs, field by field.

        Pure, but for the records of a removal and of creates of nodes of the object of this id that
        did not end.
        """
        return self._changes(id_, plain(olds), typed(self, plain(news)), _is_unclaimed(olds, news))

    def _changes(
        self, id_: str, old: Properties, declared: Properties, is_unclaimed: bool
    ) -> list[FieldChange]:
        call = current_call()
        return changes(
            self,
            old,
            declared,
            is_interrupted=_was_interrupted(call, id_),
            is_unclaimed=is_unclaimed,
            begun=self._find_begun_parts(call, id_, old),
        )

    def _find_begun_parts(self, call: Call, id_: str, old: Properties) -> Sequence[str]:
        """Return the names of parts that an interrupted update may have made beside the state."""
        if not self.parts or not id_:
            return ()
        return call.intents.begun_parts(call.urn, id_, old.get(self.parts) or ())

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Whether to update or replace, from what is given alone: no client is built.

        Refuses under gpuform's engine, outside a refresh, what the observed values show to be
        impossible.
        """
        return self.compared(_id, _olds, _news)[0]

    def compared(
        self, _id: str, _olds: Properties, _news: Properties
    ) -> tuple[DiffResult, list[FieldChange]]:
        """What `diff` answers, and the changes that it decides on."""
        with self._serving("diff", _olds, _news) as call:
            # Pulumi's hosts do not say whether somebody plans, or shows what a refresh found:
            # update and delete refuse what may not be done.
            is_planning = call.urn is not None and not call.refreshing and not call.stores_answers
            old, declared = plain(_olds), typed(self, plain(_news))
            recorded_for = "" if call.refreshing else _id
            found = self._changes(recorded_for, old, declared, _is_unclaimed(_olds, _news))
            if call.refreshing:  # that a node is broken is news, and no drift
                found = [change for change in found if change.repair is None]
            replaces = [change.path for change in found if change.replaces]
            if is_planning:
                refuse_impossible(self, old, declared)
                if replaces:
                    require_for_destruction(
                        self, old, f"this change replaces it ({', '.join(replaces)})"
                    )
                else:
                    require_for_change(self, old, declared)
            decided = DiffResult(
                changes=is_change(found),
                replaces=replaces,
                delete_before_replace=bool(replaces) and not self.creates_first(declared),
            )
            return decided, found

    def create(self, props: Properties) -> CreateResult:
        """Makes the object and waits until it is ready.

        Once an id exists it is returned, with `ready: false` and the reason when waiting fails.
        """
        with self._serving("create", props) as call:
            call.known = {}
            call.begin(self.timeouts.create)
            declared = self._declared(props)
            actions, want = self._actions(), self.inputs.model_validate(declared)
            with call.held:
                id_, outs = self._make(call, actions, want, declared)
            self._refuse_unready(call, outs)
            if call.urn is None:
                # Nobody would settle the intent later. Another host may be gone before it gets this
                # answer: its next call about the object shows that it has stored the id.
                call.intents.forget(id_=id_, stored=outs.get(self.parts) if self.parts else None)
            return CreateResult(id_, outs)

    def _make(
        self, call: Call, actions: Actions[Any, Any], want: Any, declared: Properties
    ) -> tuple[str, Properties]:
        """Create the object, wait until it is ready, and return its id and outputs.

        Platforms answer a create before lookups show the object. One that is not there is looked
        for like that of an interrupted create, until the settle time is over.
        """
        id_ = actions.create(call, want)
        began = call.clock.now()
        while True:
            call.just_created = True
            try:
                return id_, settle(self, self._actions, call, id_, declared, {})
            except ObjectGone as gone:
                if call.clock.now() - began > SETTLE:
                    raise
                call.just_created, call.finds_only = False, True
                call.held.close()  # it claims the name again
                try:
                    id_ = actions.create(call, want)
                except NothingMade:
                    raise gone from None
                finally:
                    call.finds_only = False

    def _refuse_unready(self, call: Call, outs: Properties) -> None:
        if self.makes_nothing and not call.keeps_unready and outs.get("ready") is False:
            raise GpuformError(
                str(outs.get("not_ready_reason")),
                hint="remove the cause, and run it again: nothing was made that waits for it",
            )

    def find_created(self, props: Properties) -> CreateResult | None:
        """What an interrupted create of these inputs has made, as it is now; None when nothing.

        Sends nothing that changes it. Waits only while lists may lag behind. Raises
        AdoptionQuestion when nobody can tell.
        """
        with self._serving("create", props) as call:
            call.finds_only = True
            call.begin(self.timeouts.create)
            declared = self._declared(props)
            actions, want = self._actions(), self.inputs.model_validate(declared)
            with call.held:
                try:
                    id_ = actions.create(call, want)
                except NothingMade:
                    refuse_to_forget_others(call)
                    return None
            call.known = {**declared, "ready": False}
            observed = actions.read(call, id_, declared)
            if observed is None:
                raise GpuformError(
                    f"{id_} was found by its record, and then the platform did not show it",
                    hint="run it again: it looks once more before anything is forgotten",
                )
            inputs = project(self.inputs, observed.inputs, declared)
            seen = {**inputs, **shown(self, call, observed)}
            unready = {"ready": False, "not_ready_reason": INTERRUPTED}
            return CreateResult(id_, {**declared, **seen, **unready})

    @classmethod
    def previewed(cls, news: Properties) -> Properties:
        """What is known of the outputs before a create or update: the inputs, as declared.

        Everything that the platform computes is UNKNOWN: an update may change any of it.
        """
        computed = dict.fromkeys(cls.outputs.model_fields, UNKNOWN)
        return {**check(cls.inputs, plain(news))[0], **computed}

    def read(self, id_: str, props: Properties) -> ReadResult:
        """The object now, as outputs and as inputs; an empty id when it is gone.

        Known inputs get the platform's values where it returns them. Without known inputs (an
        import) the inputs are what the platform says, but for documented defaults.
        """
        with self._serving("read", props) as call:
            call.known = plain(props)
            known = typed(self, echo(self, call.known))
            observed = read_until_settled(self, self._actions, call, id_, known)
            self._forget_stored(call, id_)
            if observed is None:
                self._release_if_possible(call, id_, known)
                return ReadResult("", {})
            if known:
                inputs = project(self.inputs, observed.inputs, known)
            else:
                inputs = importable(self, observed.inputs)
            return ReadResult(id_, {**inputs, **shown(self, call, observed)}, inputs)

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Sends the changed fields, if any, and waits until the object is as wanted.

        Safe to repeat: with nothing to change it only goes on waiting.
        """
        with self._serving("update", _olds, _news) as call:
            call.begin(self.timeouts.update)
            old = plain(_olds)
            declared = at_this_hour(self, old, self._declared(_news))
            call.known = old
            self._forget_stored(call, _id)
            refuse_impossible(self, old, declared)
            require_for_change(self, old, declared)
            found = compare(self, old, declared)
            sent = [change for change in found if change.is_sent]
            if sent or _was_interrupted(call, _id) or self._find_begun_parts(call, _id, old):
                want = self.inputs.model_validate(declared)
                try:
                    self._actions().update(call, _id, want, sent)
                except NotFound as error:
                    refuse_gone(self._actions, call, _id, error.message)
                    raise
                except Unfinished as error:
                    return UpdateResult(self._unfinished(call, old, error))
            computed = {key: old[key] for key in self.outputs.model_fields if key in old}
            outs = settle(self, self._actions, call, _id, declared, computed)
            self._refuse_unready(call, outs)
            return UpdateResult(outs)

    def _unfinished(self, call: Call, old: Properties, error: Unfinished) -> Properties:
        """Return the old outputs, not ready. Raises the error where a host cannot store that."""
        if not call.keeps_unready:
            raise error
        reason = call.redacted(str(error))
        call.init_errors.append(reason)
        outs = {name: old[name] for name in self.property_names() if name in old}
        return {**outs, "ready": False, "not_ready_reason": reason}

    def delete(self, _id: str, _props: Properties) -> None:
        """Deletes the object and waits until it is gone; it may be gone already (`found_gone`).

        gpuform's engine forgets at most two that it found gone without `--allow forget-many`.
        In the stock host the first delete of `pulumi destroy` refuses to go round what interrupted
        creates have made: the plugin refuses that when it is configured, and this host cannot.
        Under the stock host and the plugin each call stands for itself: the Pulumi engine forgets
        whatever the platform itself, uncontradicted, says is gone, however many that are.
        """
        with self._serving("delete", _props) as call:
            call.known = plain(_props)
            known = typed(self, echo(self, call.known))
            require_for_destruction(self, call.known, "this deletes it")
            refuse_to_leave(call)
            call.begin(self.timeouts.delete)
            if not self.is_bound:
                look_before_deletion(self, self._actions, call, _id, known)
            if call.found_gone:
                self._release(call, _id, known)
            else:
                delete_when_shown(self, self._actions, call, _id, known)
                Drains.beside(call.intents).forget(_id)
            call.intents.forget(urn=call.urn, id_=_id)

    def _release(self, call: Call, id_: str, known: Properties) -> None:
        """Ends what an interrupted taking of nodes has left of an object that is gone."""
        actions = self._actions()
        if _was_interrupted(call, id_) and isinstance(actions, TakesNodes):
            actions.release(call, id_, known)
            Drains.beside(call.intents).forget(id_)

    def _release_if_possible(self, call: Call, id_: str, known: Properties) -> None:
        if call.preview:
            return
        try:
            self._release(call, id_, known)
        except GpuformError as error:
            call.on_warning(str(error))

    def leaving(self, id_: str, olds: Properties, news: Properties) -> Leaving | None:
        """The nodes that an update takes away, and their jobs now; None when nobody tells it.

        Raises GpuformError for a declaration that names other nodes than there are. Who could not
        be asked is told to `call.on_unchecked`.
        """
        with self._serving("plan", olds, news) as call:
            call.known = plain(olds)
            values, problems = check(self.inputs, plain(news))
            if problems or contains_unknown(values):
                return None
            actions, want = self._actions(), self.inputs.model_validate(values)
            return actions.leaving(call, id_, want) if isinstance(actions, TakesNodes) else None

    def all_leaving(self, id_: str, olds: Properties, because: str) -> Leaving | None:
        """While planning: the nodes that go with the object, and their jobs; `because` of what.

        None where it has no nodes, or nobody tells their jobs: that is told to `call.on_unchecked`.
        """
        with self._serving("plan", olds) as call:
            call.known = plain(olds)
            actions, known = self._actions(), typed(self, echo(self, call.known))
            if not isinstance(actions, TakesNodes):
                return None
            try:
                return actions.all_leaving(call, id_, known, because)
            except Cancelled:
                raise
            except GpuformError as error:
                call.on_unchecked(
                    f"which nodes go with it, and which jobs run on them: {error.message}"
                )
                return None

    def others_within(self, id_: str, olds: Properties) -> Sequence[str]:
        """While planning: return the names of what others have put into an object that is deleted.

        Empty where nothing is, and where the platform could not be asked: that is told to
        `call.on_unchecked`, and the deletion itself asks again.
        """
        with self._serving("plan", olds) as call:
            call.known = plain(olds)
            try:
                actions, known = self._actions(), typed(self, echo(self, call.known))
                if not isinstance(actions, HoldsOthers):
                    return ()
                return actions.others_within(call, id_, known)
            except Cancelled:
                raise
            except GpuformError as error:
                call.on_unchecked(f"what others have put into {id_}: {error.message}")
                return ()

    def may_delete(self, props: Properties, others: Sequence[str] = ()) -> None:
        """While planning: raises GpuformError when a delete will be refused.

        `others` are what `others_within` names. Tells the call what will remain. Asks nobody.
        """
        with self._serving("delete", props) as call:
            require_for_destruction(self, plain(props), "this deletes it")
            require_for_others(others, self.kind)
            if self.remains:
                call.on_warning(self.remains)

    def _completed(
        self,
        call: Call,  # noqa: ARG002 - a hook
        values: Properties,
    ) -> tuple[Properties, list[Problem]]:
        """Right inputs with what the platform adds to them, and what is wrong with that.

        `call.known` has the inputs that the state has. Called again with what it gave before.
        """
        return values, []

    def _forget_stored(self, call: Call, id_: str) -> None:
        """Intents of what the state has are settled; those of other parts are still needed."""
        stored = call.known.get(self.parts, ()) if self.parts else None
        call.intents.forget(urn=call.urn, id_=id_, stored=stored)

    def _actions(self) -> Actions[Any, Any]:
        """What asks the platform: only in the stack's own world. Raises OtherWorld."""
        settings = self._settings or Settings()
        enter(current_call(), self.platform, settings)
        return type(self).actions(settings)

    def _declared(self, props: Properties) -> Properties:
        """Inputs in declared types. Raises GpuformError when they are not valid."""
        values, problems = check(self.inputs, plain(props))
        if problems:
            raise GpuformError("; ".join(f"{p.path}: {p.reason}" for p in problems))
        return values

    def _serving(self, verb: str, *given: Mapping[str, Any]) -> Edge:
        """The edge of a call with these property maps, whose secrets nothing says."""
        secrets = (self._settings or Settings()).secrets()
        names = self.secret_names()
        values = (each.get(name) for each in given for name in names)
        return Edge(verb, f"a {self.platform} {self.kind}", (*secrets, *values))


def _is_unclaimed(olds: Properties, news: Properties) -> bool:
    """Whether the program says which provider manages the resource, and the state does not."""
    return PROVIDER_KEY in news and PROVIDER_KEY not in olds


def _was_interrupted(call: Call, id_: str) -> bool:
    return bool(id_) and Drains.beside(call.intents).find(id_) is not None
