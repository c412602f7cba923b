"""The only Pulumi dynamic provider: owns the protocol, so that platforms write typed verbs.

`Lifecycle` runs under gpuform's engine and under Pulumi's stock host alike. It alone knows
`__provider`, Pulumi's unknowns and doubles; everything below works on models.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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

from gpuform.providers import lifetime, permissions
from gpuform.providers.actions import Actions, Observed, Settings
from gpuform.providers.calls import Call, Edge, adapt_to_stock_host, current_call, unexpected
from gpuform.providers.errors import Cancelled, GpuformError, NotFound, NothingMade, NotReady
from gpuform.providers.properties import PROVIDER_KEY, Properties, plain, to_pulumi
from gpuform.providers.records import Drains
from gpuform.providers.traits import Traits
from gpuform.providers.world import enter
from gpuform.schemas.changes import Action, FieldChange, is_change, project, refusals
from gpuform.schemas.changes import changes as field_changes
from gpuform.schemas.checking import check
from gpuform.schemas.leaving import Leaving
from gpuform.schemas.models import InputModel, OutputModel
from gpuform.schemas.rules import rules_of
from gpuform.schemas.values import UNKNOWN, contains_unknown, same

__all__ = ["PROVIDER_KEY", "Lifecycle"]

INTERRUPTED = "its create was interrupted"
"""Why what an earlier run made is not ready."""

MESSAGES = frozenset({"not_ready_reason", "message", "status_message"})
"""The outputs, and members of them, that a platform writes for people."""

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
            problems = problems or refusals(self.inputs, self._echo(call.known), values)
            problems = problems or list(
                lifetime.problems(self.power, values, is_new=not call.known)
            )
            problems = problems or list(self._actions().planning_problems(call, values))
            failures = [
                CheckFailure(problem.path, call.redacted(problem.reason)) for problem in problems
            ]
            return CheckResult(to_pulumi(values), failures)

    def changes(self, olds: Properties, news: Properties, id_: str = "") -> list[FieldChange]:
        """What `diff` decides on: old outputs against new inputs, field by field.

        Pure, but for the record of a removal of nodes from the object of this id that did not end.
        """
        old, new = plain(olds), plain(news)
        found = self._compare(old, new)
        if PROVIDER_KEY in news and PROVIDER_KEY not in olds:
            because = "the state does not say which program manages the resource"
            found.append(
                FieldChange(
                    PROVIDER_KEY, Action.ADD, None, None, because=because, only_recorded=True
                )
            )
        is_news = not is_change(found) or self.is_stuck(old)
        if old.get("ready") is False and is_news and not any(change.replaces for change in found):
            because = f"resume waiting: {old.get('not_ready_reason') or 'not ready yet'}"
            found.append(
                FieldChange(
                    "ready", Action.UPDATE, False, True, because=because, only_recorded=True
                )
            )
        if _was_interrupted(current_call(), id_) and not is_change(found):
            because = "a removal of nodes was interrupted: those that stay are uncordoned"
            found.append(
                FieldChange("scale_down", Action.UPDATE, "begun", "ended", because=because)
            )
        return found

    def diff(self, _id: str, _olds: Properties, _news: Properties) -> DiffResult:
        """Whether to update or replace, from what is given alone: no client is built.

        Refuses under gpuform's engine, outside a refresh, what the observed values show to be
        impossible.
        """
        with self._serving("diff", _olds, _news) as call:
            # Pulumi's hosts do not say whether somebody plans, or shows what a refresh found:
            # update and delete refuse what may not be done.
            is_planning = call.urn is not None and not call.refreshing and not call.stores_answers
            found = self.changes(_olds, _news, "" if call.refreshing else _id)
            replaces = [change.path for change in found if change.replaces]
            if is_planning:
                old, new = plain(_olds), plain(_news)
                self._refuse(self._echo(old), new)
                if replaces:
                    self._require(old, f"this change replaces it ({', '.join(replaces)})")
                else:
                    self._require_for_change(old, new)
            return DiffResult(
                changes=is_change(found),
                replaces=replaces,
                delete_before_replace=bool(replaces),  # GPUs are scarce: free them first
            )

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
                id_ = actions.create(call, want)
                call.just_created = True
                outs = self._settled(call, id_, declared, {})
            if call.urn is None:
                # Nobody would settle the intent later. Another host may be gone before it gets this
                # answer: its next call about the object shows that it has stored the id.
                call.intents.forget(id_=id_)
            return CreateResult(id_, outs)

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
                    return None
            call.known = {**declared, "ready": False}
            observed = actions.read(call, id_, declared)
            if observed is None:
                return None
            inputs = project(self.inputs, observed.inputs, declared)
            seen = {**inputs, **self._shown(call, observed)}
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
            known = self._typed(self._echo(call.known))
            observed = self._actions().read(call, id_, known)
            self._forget_stored(call, id_)
            if observed is None:
                return ReadResult("", {})
            if known:
                inputs = project(self.inputs, observed.inputs, known)
            else:
                inputs = self._importable(observed.inputs)
            return ReadResult(id_, {**inputs, **self._shown(call, observed)}, inputs)

    def update(self, _id: str, _olds: Properties, _news: Properties) -> UpdateResult:
        """Sends the changed fields, if any, and waits until the object is as wanted.

        Safe to repeat: with nothing to change it only goes on waiting.
        """
        with self._serving("update", _olds, _news) as call:
            call.begin(self.timeouts.update)
            old = plain(_olds)
            declared = self._at_this_hour(old, self._declared(_news))
            call.known = old
            self._forget_stored(call, _id)
            self._refuse(self._echo(old), declared)
            self._require_for_change(old, declared)
            found = self._compare(old, declared)
            sent = [change for change in found if change.is_sent]
            if sent or _was_interrupted(call, _id):
                want = self.inputs.model_validate(declared)
                try:
                    self._actions().update(call, _id, want, sent)
                except NotFound as error:
                    self._refuse_gone(call, _id, error.message)
                    raise
            computed = {key: old[key] for key in self.outputs.model_fields if key in old}
            return UpdateResult(self._settled(call, _id, declared, computed))

    def delete(self, _id: str, _props: Properties) -> None:
        """Deletes the object and waits until it is gone; it may be gone already (`found_gone`).

        gpuform's engine forgets at most two that it found gone without `--allow forget-many`.
        Under the stock host and the plugin each call stands for itself: the Pulumi engine forgets
        whatever the platform itself, uncontradicted, says is gone, however many that are.
        """
        with self._serving("delete", _props) as call:
            call.known = plain(_props)
            known = self._typed(self._echo(call.known))
            self._require(call.known, "this deletes it")
            call.begin(self.timeouts.delete)
            if not self.is_bound:
                self._look_before_deletion(call, _id, known)
            if not call.found_gone:
                self._actions().delete(call, _id, known)
                Drains.beside(call.intents).forget(_id)
            call.intents.forget(urn=call.urn, id_=_id)

    def _look_before_deletion(self, call: Call, id_: str, known: Properties) -> None:
        """Refuses what the platform itself shows as guarded, whatever was declared or stored.

        Raises GpuformError when it does not tell.
        """
        seen = self._actions().read(call, id_, known)
        call.found_gone = seen is None
        if seen is not None:
            shown = {**call.known, **seen.inputs, **self._shown(call, seen)}
            self._require(shown, "the platform says so, and this deletes it")

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
            return self._nodes_leaving(call, id_, self.inputs.model_validate(values))

    def may_delete(self, props: Properties) -> None:
        """While planning: raises GpuformError when a delete will be refused.

        Tells the call what will remain. Asks nobody.
        """
        with self._serving("delete", props) as call:
            self._require(plain(props), "this deletes it")
            if self.remains:
                call.on_warning(self.remains)

    def _require(self, old: Properties, what: str) -> None:
        guard = self.guarded(old)
        if guard is not None:
            permissions.require(guard.permission, f"{guard.because}: {what}")

    def _at_this_hour(self, old: Properties, declared: Properties) -> Properties:
        """The declaration as it holds now: what is off outside of its running hours stays so."""
        if self.power is None or declared.get("schedule") is None or not self.is_off(old):
            return declared
        off = {self.power.field: self.power.off}
        return {**declared, **off} if lifetime.is_out_of_hours(declared) else declared

    def _require_for_change(self, old: Properties, declared: Properties) -> None:
        guard = self.guarded_change(old, self._at_this_hour(old, self._typed(declared)))
        if guard is not None:
            permissions.require(guard.permission, guard.because)

    def _nodes_leaving(self, call: Call, id_: str, want: Any) -> Leaving | None:  # noqa: ARG002 - a hook
        """As `leaving`, of inputs that are known."""
        return None

    def _forget_stored(self, call: Call, id_: str) -> None:
        """Intents of what the state has are settled; those of other parts are still needed."""
        stored = call.known.get(self.parts, ()) if self.parts else None
        call.intents.forget(urn=call.urn, id_=id_, stored=stored)

    def _actions(self) -> Actions[Any, Any]:
        """What asks the platform: only in the stack's own world. Raises OtherWorld."""
        settings = self._settings or Settings()
        enter(current_call(), self.platform, settings)
        return type(self).actions(settings)

    def _settled(
        self, call: Call, id_: str, declared: Properties, computed: Properties
    ) -> Properties:
        """Waits, and makes the outputs whatever comes of it: the id must not be lost.

        Raises GpuformError when the object is gone: then there is no id to keep. The intent of a
        create stays, so that the next attempt looks once more before it makes another one.
        """
        observed: Observed[Any] | None = None
        try:
            want = self.inputs.model_validate(declared)
            settled = self._actions().settle(call, id_, want)
            observed, reason = settled, settled.outputs.not_ready_reason
        except NotReady as error:
            observed, reason = error.last, error.reason
            if observed is None and not isinstance(error, Cancelled):
                self._refuse_gone(call, id_, reason)
        except GpuformError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - the object exists: say so, whatever happened
            reason = unexpected("waiting", error)
        if observed is not None:
            computed = self._shown(call, observed)
        computed = {key: value for key, value in computed.items() if key != "not_ready_reason"}
        outs = {**computed, **declared, **computed, "ready": reason is None}
        if reason is not None:
            reason = call.redacted(reason)
            outs["not_ready_reason"] = reason
            call.init_errors.append(reason)
        return outs

    def _refuse_gone(self, call: Call, id_: str, reason: str) -> None:
        """Raises when another look finds nothing, too; without an answer the object may exist."""
        try:
            found = self._actions().read(call, id_, {})
        except GpuformError:
            return
        if found is None:
            raise GpuformError(
                reason,
                hint="somebody deleted it. Run it again to make it anew; if the state has it "
                "already, refresh first (`gpuform refresh`, `pulumi refresh`)",
            )

    def _echo(self, values: Mapping[str, Any]) -> Properties:
        """The inputs among the values of a property map that are there as declared."""
        rules, computed = rules_of(self.inputs), self.outputs.model_fields
        return {
            name: value
            for name, value in values.items()
            if name in rules and not rules[name].spelling and name not in computed
        }

    def _compare(self, old: Properties, declared: Properties) -> list[FieldChange]:
        """The changes from old outputs, where what needs no request replaces nothing.

        That is a required field that the platform never returns and that is missing after an
        import: its declaration is believed. And a field whose declared value an output shows.
        """
        echo, rules = self._echo(old), rules_of(self.inputs)
        unread = {
            name
            for name, field in self.inputs.model_fields.items()
            if field.is_required() and rules[name].write_only and name not in echo
        }

        def judged(change: FieldChange) -> FieldChange:
            only_recorded = partial(replace, change, only_recorded=True)
            if rules[change.path.split(".")[0].split("[")[0]].recorded:
                return only_recorded(because="gpuform's own: nothing is sent")
            if change.path in unread:
                because = "recorded: the platform does not return it"
                return only_recorded(replaces=False, because=because)
            shown = rules[change.path].shown_as if change.path in rules else ""
            if shown and change.after is not None and change.after == old.get(shown):
                return only_recorded(replaces=False, because="recorded: it is there already")
            return change

        typed = self._typed(declared)
        now = self._at_this_hour(old, typed)
        before, after = (self._by_rules(each) for each in (self._typed(echo), now))
        found = field_changes(self.inputs, before, after)
        resting = [lifetime.resting(self.power, typed)] if self.power and now is not typed else []
        return [*map(judged, found), *self.planned_changes(old, now), *resting]

    def _by_rules(self, values: Properties) -> Properties:
        return {name: value for name, value in values.items() if name not in self.planned}

    def _declared(self, props: Properties) -> Properties:
        """Inputs in declared types. Raises GpuformError when they are not valid."""
        values, problems = check(self.inputs, plain(props))
        if problems:
            raise GpuformError("; ".join(f"{p.path}: {p.reason}" for p in problems))
        return values

    def _typed(self, echo: Properties) -> Properties:
        return check(self.inputs, echo)[0]

    def _importable(self, observed: Mapping[str, Any]) -> Properties:
        """What a program would declare: what it must, and no zero, nothing off and no default."""
        rules, fields = rules_of(self.inputs), self.inputs.model_fields

        def is_worth_it(key: str, value: Any) -> bool:
            default = rules[key].default
            return bool(value) and not (default and same(default.value, value))

        return {
            key: value
            for key, value in observed.items()
            if (fields[key].is_required() and value is not None) or is_worth_it(key, value)
        }

    def _refuse(self, echo: Properties, declared: Properties) -> None:
        problems = refusals(self.inputs, echo, declared)
        if problems:
            raise GpuformError("; ".join(f"{p.path} {p.reason}" for p in problems))

    def _serving(self, verb: str, *given: Mapping[str, Any]) -> Edge:
        """The edge of a call with these property maps, whose secrets nothing says."""
        secrets = (self._settings or Settings()).secrets()
        names = self.secret_names()
        values = (each.get(name) for each in given for name in names)
        return Edge(verb, f"a {self.platform} {self.kind}", (*secrets, *values))

    def _shown(self, call: Call, observed: Observed[Any]) -> Properties:
        """Computed outputs as plain values, without those that have none.

        What is written for people in them has no secret.
        """
        dumped: Properties = observed.outputs.model_dump(mode="json", exclude_none=True)
        call.hide(dumped.get(name) for name in self.outputs.secret_names())
        return {name: _redacted(name, value, call) for name, value in dumped.items()}


def _was_interrupted(call: Call, id_: str) -> bool:
    return bool(id_) and Drains.beside(call.intents).find(id_) is not None


def _redacted(name: str, value: Any, call: Call) -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted(key, item, call) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(name, item, call) for item in value]
    return call.redacted(value) if name in MESSAGES and isinstance(value, str) else value
