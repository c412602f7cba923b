"""The steps of one registration after another, against a provider that compares by rule."""

import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.plan import PlanAction, PlanReason
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import UNPROTECT, EventBus, Op, Step, StepGenerator
from gpuform.stacks.engine.provider_host import Created, Diff
from gpuform.stacks.engine.registration import Alias, Read, Registration
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns
from gpuform.stacks.engine.store import Owners
from gpuform.stacks.engine.values import UNKNOWN, UNKNOWN_TEXT

TYPE = "lab:Machine"
PROVIDER = "urn:pulumi:dev::lab::pulumi:providers:lab::p::1"


def urn_of(name: str, type_: str = TYPE) -> str:
    return f"urn:pulumi:dev::lab::{type_}::{name}"


A, B, C = map(urn_of, "abc")


def declared(name: str, type_: str = TYPE, *, custom: bool = True, **more: Any) -> Registration:
    options = {key.removeprefix("opt_"): more.pop(key) for key in [*more] if key.startswith("opt_")}
    return Registration(urn_of(name, type_), type_, name, custom, more, **options)


def entry(name: str, type_: str = TYPE, **fields: Any) -> ResourceState:
    inputs = fields.pop("inputs", {"size": 1})
    defaults = {"id": f"id-{name}", "inputs": inputs, "outputs": inputs, "provider": PROVIDER}
    return ResourceState(urn_of(name, type_), True, type_, **{**defaults, **fields})


@dataclass
class Host:
    """A provider that replaces for `rack`, and for `slot` deletes first."""

    checks: list[Any] = field(default_factory=list)
    reads: list[Any] = field(default_factory=list)
    field_questions: list[Any] = field(default_factory=list)
    shows_fields: bool = False

    def check(self, urn: str, olds: Any, news: Any, provider: str) -> Any:
        self.checks.append((urn, dict(olds), dict(news), provider))
        return {**news}, []

    def diff(self, urn: str, id_: str, olds: Any, news: Any, provider: str) -> Diff:
        changed = [key for key in news if olds.get(key) != news[key]]
        fields = [FieldChange("shown", Action.UPDATE, 1, 2)] if self.shows_fields else None
        return Diff(
            bool(changed),
            [key for key in changed if key in ("rack", "slot")],
            delete_before_replace="slot" in changed,
            fields=fields,
        )

    def find_field_changes(self, urn: str, olds: Any, news: Any, provider: str) -> Any:
        self.field_questions.append((urn, olds, news, provider))
        return [FieldChange("shown", Action.UPDATE, olds.get("size"), news.get("size"))]

    def count_gpus(self, resource: ResourceState) -> int:
        return int(resource.inputs.get("gpus", 0))

    def is_bound(self, urn: str, inputs: Any) -> bool:
        return False

    def read(self, urn: str, id_: str, inputs: Any, *_: Any, **more: Any) -> Any:
        self.reads.append(more)
        return Created(id_, inputs), None


@dataclass
class Run:
    """A generator over a state, with what it has reported."""

    generator: StepGenerator
    problems: list[tuple[str, EngineError]]
    events: list[Any]
    host: Host

    def steps(self, registration: Registration) -> list[Step]:
        provider = PROVIDER if registration.custom else ""
        return self.generator.generate_steps(registration, provider)

    def ops(self, registration: Registration) -> list[tuple[str, str]]:
        return [(str(step.op), step.urn.rpartition("::")[2]) for step in self.steps(registration)]


def over(*base: ResourceState, preview: bool = False, **options: Any) -> Run:
    problems: list[tuple[str, EngineError]] = []
    events: list[Any] = []
    host = options.pop("host", None) or Host()
    generator = StepGenerator(
        "dev",
        "lab",
        list(base),
        host,
        preview,
        EventBus([events.append]),
        lambda urn, error: problems.append((urn, error)),
        **options,
    )
    return Run(generator, problems, events, host)


def targets(*names: str, **more: Any) -> Selection:
    return Selection(UrnPatterns(map(urn_of, names)), **more)


def excluding(*names: str) -> Selection:
    return Selection(excludes=UrnPatterns(map(urn_of, names)))


def message_of(run: Run, registration: Registration) -> tuple[str, str | None]:
    with pytest.raises(EngineError) as raised:
        run.steps(registration)
    return raised.value.message, raised.value.hint


class TestOneResource:
    def test_a_new_one_is_created_with_checked_inputs(self):
        run = over()
        (step,) = run.steps(declared("a", size=1))
        assert (step.op, step.urn, step.old) == (Op.CREATE, A, None)
        assert step.new is not None
        assert (step.new.inputs, step.new.provider) == ({"size": 1}, PROVIDER)
        assert step.change is not None
        assert (step.change.action, step.change.reason) == (PlanAction.CREATE, PlanReason.NEW)
        assert run.host.checks == [(A, {}, {"size": 1}, PROVIDER)]
        assert run.generator.declared_urns == {A}

    def test_an_unchanged_one_stays(self):
        old = entry("a")
        run = over(old)
        (step,) = run.steps(declared("a", size=1))
        assert (step.op, step.old, [*step.diffs]) == (Op.SAME, old, [])
        assert run.host.checks == [(A, {"size": 1}, {"size": 1}, PROVIDER)]

    def test_one_that_its_provider_calls_unchanged_differs_in_nothing(self):
        old = entry("a", inputs={"size": 1}, outputs={"size": 2})
        (step,) = over(old).steps(declared("a", size=2))
        assert (step.op, [*step.diffs]) == (Op.SAME, [])

    def test_a_changed_one_is_updated_with_what_differs(self):
        (step,) = over(entry("a")).steps(declared("a", size=2))
        assert (step.op, [*step.diffs], [*step.keys]) == (Op.UPDATE, ["size"], [])
        assert step.change is not None
        assert [each.path for each in step.change.changes] == ["size"]

    def test_an_update_names_the_providers_own_fields(self):
        (step,) = over(entry("a"), host=Host(shows_fields=True)).steps(declared("a", size=2))
        assert [*step.diffs] == ["shown"]
        assert step.change is not None
        assert [each.path for each in step.change.changes] == ["shown"]

    def test_one_that_never_became_ready_is_updated(self):
        (step,) = over(entry("a", init_errors=["still booting"])).steps(declared("a", size=1))
        assert step.op is Op.UPDATE

    @pytest.mark.parametrize(("size", "op"), [(1, Op.SAME), (2, Op.UPDATE)])
    def test_a_component_is_compared_and_shown_to_nobody(self, size: int, op: Op):
        old = replace(entry("a"), custom=False, provider="", id="")
        run = over(old)
        (step,) = run.steps(declared("a", custom=False, size=size))
        assert (step.op, step.change) == (op, None)
        assert [*step.diffs] == ([] if size == 1 else ["size"])
        assert run.host.checks == []

    def test_a_new_component_is_created_and_shown_to_nobody(self):
        (step,) = over().steps(declared("a", custom=False, size=1))
        assert (step.op, step.change) == (Op.CREATE, None)
        assert step.new is not None
        assert step.new.inputs == {"size": 1}

    def test_ignored_changes_are_compared_with_the_old_input(self):
        run = over(entry("a"))
        (step,) = run.steps(declared("a", size=2, opt_ignore_changes=["size"]))
        assert step.op is Op.SAME
        assert step.new is not None
        assert step.new.inputs == {"size": 1}
        assert run.events == []

    def test_a_path_that_can_be_ignored_nowhere_is_reported(self):
        run = over(entry("a", inputs={"size": 1, "config": {"b": 1}}))
        run.steps(declared("a", size=1, opt_ignore_changes=["config.b"]))
        (event,) = run.events
        assert (event.severity, event.urn) == ("info", A)
        assert event.message == "ignore_changes: config.b does not exist and has no effect"

    def test_a_new_one_ignores_nothing(self):
        (step,) = over().steps(declared("a", size=2, opt_ignore_changes=["size"]))
        assert step.new is not None
        assert step.new.inputs == {"size": 2}

    def test_a_component_keeps_what_it_was_given_also_what_it_ignores(self):
        old = replace(entry("a"), custom=False, provider="", id="")
        (step,) = over(old).steps(declared("a", custom=False, size=2, opt_ignore_changes=["size"]))
        assert step.op is Op.SAME
        assert step.new is not None
        assert step.new.inputs == {"size": 2}

    @pytest.mark.parametrize("base", [[], [entry("a", external=True, id="m-7")]])
    def test_an_object_that_exists_is_imported(self, base: list[ResourceState]):
        run = over(*base)
        (step,) = run.steps(declared("a", size=1, opt_import_id="m-7"))
        assert (step.op, step.old) == (Op.IMPORT, base[0] if base else None)
        assert step.new is not None
        assert (step.new.id, step.new.external) == ("m-7", False)
        (question,) = run.host.reads
        assert question["provider"] == PROVIDER
        assert 0 < question["as_of"] <= time.monotonic()
        with pytest.raises(EngineError, match=f"^{B}: import_ names m-7, which belongs to {A}"):
            run.steps(declared("b", size=1, opt_import_id="m-7"))

    @pytest.mark.parametrize("preview", [True, False])
    def test_only_a_real_run_claims_what_it_imports(self, preview: bool):
        claims: list[bool] = []
        others = SimpleNamespace(find_owners=lambda *, claim: claims.append(claim) or Owners())
        over(preview=preview, others=others).steps(declared("a", opt_import_id="m-7"))
        assert claims == [not preview]

    def test_what_the_stack_has_already_is_compared_and_not_imported(self):
        run = over(entry("a", id="m-7"))
        assert run.ops(declared("a", size=1, opt_import_id="m-7")) == [("same", "a")]
        assert run.host.reads == []


class TestReplacement:
    def test_a_new_object_comes_first(self):
        old = entry("a", inputs={"rack": "x"})
        run = over(old)
        create, logical = run.steps(declared("a", rack="y"))
        assert (create.op, logical.op) == (Op.CREATE_REPLACEMENT, Op.REPLACE)
        for step in (create, logical):
            assert (step.old, step.urn, [*step.keys], [*step.diffs]) == (old, A, ["rack"], ["rack"])
        assert create.change is None
        assert logical.change is not None
        assert logical.change.replace_paths == ("rack",)
        (shown,) = logical.change.changes
        assert (shown.path, shown.before, shown.after) == ("rack", "x", "y")
        assert shown.forces_replacement
        # The new object is checked as one without a past.
        assert [check[1] for check in run.host.checks] == [{"rack": "x"}, {}]
        assert [check[3] for check in run.host.checks] == [PROVIDER] * 2
        (left,) = run.generator.list_remaining_entries()
        assert (left.delete, left.pending_replacement) == (True, False)

    def test_a_replacement_names_the_providers_own_fields(self):
        run = over(entry("a", inputs={"rack": 1}), host=Host(shows_fields=True))
        assert [[*step.diffs] for step in run.steps(declared("a", rack=2))] == [["shown"]] * 2

    def test_the_provider_may_want_the_old_object_deleted_first(self):
        old = entry("a", inputs={"slot": 1}, retain_on_delete=True)
        run = over(old)
        delete, logical, create = run.steps(declared("a", slot=2))
        assert [delete.op, logical.op, create.op] == [
            Op.DELETE_REPLACED,
            Op.REPLACE,
            Op.CREATE_REPLACEMENT,
        ]
        assert (delete.urn, delete.old, delete.new) == (A, old, None)
        assert [[*step.keys] for step in (delete, logical, create)] == [["slot"]] * 3
        assert delete.retain
        (left,) = run.generator.list_remaining_entries()
        assert (left.delete, left.pending_replacement) == (False, False)

    @pytest.mark.parametrize(("first", "ops"), [(True, 3), (False, 2)])
    @pytest.mark.parametrize("key", ["rack", "slot"])
    def test_the_program_may_say_the_order(self, key: str, first: bool, ops: int):
        run = over(entry("a", inputs={key: 1}))
        assert len(run.steps(declared("a", opt_delete_before_replace=first, **{key: 2}))) == ops

    def test_a_scarce_kind_is_deleted_first_unless_the_program_says_otherwise(self):
        asked: list[Any] = []

        def deletes_first(type_: str, inputs: Any) -> bool:
            asked.append((type_, inputs))
            return True

        run = over(entry("a", inputs={"rack": 1}), should_delete_first=deletes_first)
        assert run.ops(declared("a", rack=2))[0] == ("delete-replaced", "a")
        assert asked == [(TYPE, {"rack": 2})]
        run = over(entry("a", inputs={"rack": 1}), should_delete_first=deletes_first)
        first = run.ops(declared("a", rack=2, opt_delete_before_replace=False))[0]
        assert first == ("create-replacement", "a")

    def test_an_object_that_was_deleted_to_be_replaced_is_only_created(self):
        run = over(entry("a", pending_replacement=True))
        assert run.ops(declared("a", size=1)) == [("replace", "a"), ("create-replacement", "a")]
        for first in (True, False):
            run = over(entry("a", pending_replacement=True, inputs={"rack": 1}))
            ops = run.ops(declared("a", rack=2, opt_delete_before_replace=first))
            assert ops == [("replace", "a"), ("create-replacement", "a")]

    @pytest.mark.parametrize("how", ["taint", "flag"])
    def test_what_the_user_wants_replaced_is_replaced_whatever_its_inputs_say(self, how: str):
        selection = Selection(replace=UrnPatterns([A])) if how == "flag" else Selection()
        run = over(entry("a", taint=how == "taint"), selection=selection)
        create, logical = run.steps(declared("a", size=1))
        assert (create.op, [*create.keys]) == (Op.CREATE_REPLACEMENT, ["id"])
        assert logical.change is not None
        assert logical.change.reason is PlanReason.REPLACEMENT_REQUESTED
        assert run.host.checks == [(A, {}, {"size": 1}, PROVIDER)]

    def test_a_protected_one_is_not_replaced(self):
        old, wanted = entry("a", protect=True, inputs={"rack": 1}), {"rack": 2}
        said = f"{A} is protected, but this change forces its replacement (because of rack)"
        assert message_of(over(old), declared("a", opt_protect=True, **wanted)) == (said, UNPROTECT)
        both = over(entry("a", protect=True, inputs={"rack": 1, "slot": 1}))
        message, _ = message_of(both, declared("a", opt_protect=True, rack=2, slot=2))
        assert message.endswith("(because of rack, slot)")
        run = over(old, preview=True)
        assert len(run.steps(declared("a", opt_protect=True, **wanted))) == 2
        assert [(urn, error.message) for urn, error in run.problems] == [(A, said)]
        assert len(over(old).steps(declared("a", **wanted))) == 2
        unprotected = replace(old, protect=False)
        assert len(over(unprotected).steps(declared("a", opt_protect=True, **wanted))) == 2
        gone = replace(old, pending_replacement=True)
        assert len(over(gone).steps(declared("a", opt_protect=True, **wanted))) == 2

    def test_what_import_names_is_not_replaced(self):
        old = entry("a", import_id="id-a", inputs={"rack": 1})
        said = message_of(over(old), declared("a", rack=2, opt_import_id="id-a"))
        assert said == (
            f"{A}: rack would replace the object named by import_",
            "to replace it, remove import_",
        )
        begun = replace(old, pending_replacement=True)
        assert message_of(over(begun), declared("a", rack=1, opt_import_id="id-a"))[0] == (
            f"{A}: an unfinished replacement would replace the object named by import_"
        )

    def test_an_object_of_somebody_else_stays_where_it_is(self):
        run = over(entry("a", external=True), entry("b", deleted_with=A))
        create, logical = run.steps(declared("a", size=1))
        assert [create.op, logical.op] == [Op.CREATE_REPLACEMENT, Op.REPLACE]
        assert [*create.keys] == []
        assert run.host.checks == [(A, {}, {"size": 1}, PROVIDER)]
        assert run.ops(declared("b", size=1, opt_deleted_with=A)) == [("same", "b")]

    def test_what_goes_with_a_replaced_one_is_replaced(self):
        run = over(entry("a", inputs={"rack": 1}), entry("b"), entry("c"))
        run.steps(declared("a", rack=2))
        create, logical = run.steps(declared("b", size=1, opt_replace_with=[A]))
        assert (create.op, [*create.keys]) == (Op.CREATE_REPLACEMENT, ["replace_with"])
        assert logical.change is not None
        assert logical.change.reason is PlanReason.DEPENDENCY_REPLACED
        assert run.ops(declared("c", size=1)) == [("same", "c")]

    def test_an_unknown_trigger_is_refused_in_a_real_run(self):
        old = entry("a", replacement_trigger=1)
        wanted = declared("a", size=1, opt_replacement_trigger=UNKNOWN)
        assert "replacement_trigger is unknown" in message_of(over(old), wanted)[0]
        assert len(over(old, preview=True).steps(wanted)) == 2


class TestDependents:
    """What cannot outlive an object that is deleted first falls with it."""

    def base(self, **of_b: Any) -> list[ResourceState]:
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        return [
            entry("a", inputs={"slot": 1}),
            entry("b", inputs={"rack": "of-a", "size": 1}, **uses, **of_b),
            entry("c", deleted_with=B),
        ]

    def test_they_are_deleted_the_farthest_first_and_created_again(self):
        run = over(*self.base())
        steps = run.steps(declared("a", slot=2))
        assert [(str(step.op), step.urn) for step in steps] == [
            ("delete-replaced", C),
            ("delete-replaced", B),
            ("delete-replaced", A),
            ("replace", A),
            ("create-replacement", A),
        ]
        deletion_of_c, deletion_of_b = steps[:2]
        assert (deletion_of_b.retain, deletion_of_c.retain) == (False, True)
        for step in steps[:2]:
            assert step.change is not None
            assert step.change.action is PlanAction.DELETE
        assert [
            (left.urn, left.delete, left.pending_replacement)
            for left in run.generator.list_remaining_entries()
        ] == [(A, False, False), (B, False, True), (C, False, True)]
        logical, create = run.steps(
            declared("b", rack="of-a", size=2, opt_property_dependencies={"rack": [A]})
        )
        assert [logical.op, create.op] == [Op.REPLACE, Op.CREATE_REPLACEMENT]
        assert logical.after is deletion_of_b
        assert create.after is None
        assert [*logical.keys] == ["rack"]
        assert [*logical.diffs] == [*create.diffs] == ["shown"]
        olds, news = {"rack": "of-a", "size": 1}, {"rack": "of-a", "size": 2}
        assert run.host.field_questions == [(B, olds, news, PROVIDER)]
        assert logical.change is not None
        assert logical.change.reason is PlanReason.DEPENDENCY_REPLACED
        assert run.host.checks[-1] == (B, {}, {"rack": "of-a", "size": 2}, PROVIDER)
        assert run.ops(declared("c", size=1, opt_deleted_with=B)) == [
            ("replace", "c"),
            ("create-replacement", "c"),
        ]

    def test_what_goes_with_one_that_fell_is_replaced_too(self):
        run = over(*self.base()[:2], entry("d"))
        run.steps(declared("a", slot=2))
        run.steps(declared("b", rack="of-a", size=1))
        assert run.ops(declared("d", size=1, opt_replace_with=[B])) == [
            ("create-replacement", "d"),
            ("replace", "d"),
        ]

    def test_a_protected_one_keeps_what_it_needs(self):
        a, b, c = self.base(protect=True)
        said = f"replacing {A} requires the deletion of protected resources: {B}"
        assert message_of(over(a, b, c), declared("a", slot=2)) == (said, UNPROTECT)
        both = over(a, b, replace(c, protect=True))
        assert message_of(both, declared("a", slot=2)) == (f"{said}, {C}", UNPROTECT)

    def test_one_that_was_dealt_with_does_not_fall(self):
        run = over(*self.base())
        run.steps(declared("b", rack="other", size=1))
        steps = run.ops(declared("a", slot=2))
        assert steps == [("delete-replaced", "a"), ("replace", "a"), ("create-replacement", "a")]

    def test_one_that_is_skipped_does_not_fall(self):
        run = over(*self.base())
        run.generator.keep_skipped_resource(declared("b", rack="other", size=1))
        assert run.ops(declared("a", slot=2))[0] == ("delete-replaced", "a")

    def test_those_of_several_roots_are_all_remembered(self):
        a, b, _ = self.base()
        uses = {"dependencies": [C], "property_dependencies": {"rack": [C]}}
        run = over(a, b, entry("c", inputs={"slot": 1}), entry("d", inputs={"rack": 1}, **uses))
        deletions = [run.steps(declared(name, slot=2))[0] for name in "ac"]
        firsts = [run.steps(declared(name, rack="new"))[0] for name in "bd"]
        assert [step.after for step in firsts] == deletions

    def test_one_whose_object_is_gone_is_not_deleted_again(self):
        run = over(*self.base(pending_replacement=True))
        assert run.ops(declared("a", slot=2))[:2] == [
            ("delete-replaced", "c"),
            ("delete-replaced", "a"),
        ]

    def test_an_old_object_that_waits_for_its_deletion_is_deleted_with_them(self):
        a, b, _ = self.base()
        waiting = replace(b, id="id-old", delete=True)
        run = over(a, b, waiting)
        steps = run.steps(declared("a", slot=2))
        assert [(str(step.op), step.old and step.old.id) for step in steps[:3]] == [
            ("delete", "id-old"),
            ("delete-replaced", "id-b"),
            ("delete-replaced", "id-a"),
        ]
        assert [left.id for left in run.generator.list_remaining_entries()] == ["id-a", "id-b"]

    def test_nobody_is_taken_along_whom_the_user_did_not_name(self):
        def scarce(_type: str, _inputs: Any) -> bool:
            return True

        a, b, _ = self.base()
        a = replace(a, inputs={"rack": 1}, outputs={"rack": 1})
        run = over(a, b, selection=targets("a"), should_delete_first=scarce)
        assert message_of(run, declared("a", rack=2)) == (
            (
                f"{A} cannot be replaced alone: b depends on it and must be replaced too, but "
                "is not among the targets"
            ),
            "add --target-dependents, or name it as well",
        )
        for selection in (targets("a", "b"), Selection()):
            run = over(a, b, selection=selection, should_delete_first=scarce)
            assert run.ops(declared("a", rack=2))[0] == ("delete-replaced", "b")

    def test_an_untargeted_one_that_falls_is_made_again_as_it_was(self):
        a, b, _ = self.base()
        run = over(a, b, selection=targets("a"))
        run.steps(declared("a", slot=2))
        logical, create = run.steps(declared("b", rack="new", size=9))
        assert [logical.op, create.op] == [Op.REPLACE, Op.CREATE_REPLACEMENT]
        assert create.new is not None
        assert create.new.inputs == b.inputs

    def test_a_provider_that_cannot_compare_is_reported_with_its_root(self):
        class Broken(Host):
            def diff(self, *_: Any) -> Diff:
                raise EngineError("no answer")

        run = over(*self.base(), host=Broken())
        run.generator.compare_dependents({A})
        assert [(urn, error.message) for urn, error in run.problems] == [(A, "no answer")]
        run.generator.compare_dependents({B, C})
        assert len(run.problems) == 1

    def test_what_a_destroy_has_seen_is_not_compared(self):
        class Broken(Host):
            def diff(self, *_: Any) -> Diff:
                raise EngineError("no answer")

        run = over(*self.base(), host=Broken(), run_program_operation="destroy")
        run.steps(declared("b", size=1))
        run.generator.compare_dependents({A})
        assert run.problems == []


class TestTargets:
    def test_what_is_no_target_is_left_as_it_is(self):
        old = entry("b", dependencies=[C])
        run = over(entry("a"), entry("c"), old, selection=targets("a"))
        (step,) = run.steps(declared("b", size=9))
        assert (step.op, step.urn, step.old, step.new) == (Op.SAME, B, old, old)
        assert step.new is not old
        assert run.host.checks == []
        assert run.generator.undeletable_urns == {B, C}
        assert run.generator.declared_urns == {B}

    def test_all_that_is_needed_by_what_is_left_is_kept(self):
        needs = {"b": ["c", "d", "e"], "c": ["f"], "d": ["g"], "e": ["h"], "h": ["a"]}
        base = [
            entry(name, dependencies=[*map(urn_of, needs.get(name, ()))]) for name in "afghcdeb"
        ]
        run = over(*base, selection=targets("z"))
        run.steps(declared("b", size=1))
        assert run.generator.undeletable_urns == {*map(urn_of, "abcdefgh")}

    def test_a_new_one_that_is_no_target_is_skipped(self):
        (step,) = over(selection=targets("a")).steps(declared("b", size=1))
        assert (step.op, step.urn, step.old, step.skipped) == (Op.SAME, B, None, True)

    @pytest.mark.parametrize("type_", ["pulumi:pulumi:Stack", "pulumi:providers:lab"])
    def test_the_engines_own_entries_are_always_targets(self, type_: str):
        run = over(selection=targets("a"))
        (step,) = run.steps(declared("x", type_, custom=False))
        assert step.op is Op.CREATE

    @pytest.mark.parametrize(
        ("selection", "said", "hint"),
        [
            (targets("b"), "is not among the targets", f"add: --target '{A}'"),
            (
                excluding("a"),
                "is excluded",
                f"exclude its dependents, too: --exclude '{B}', or --exclude-dependents",
            ),
        ],
    )
    def test_what_is_created_may_not_need_what_is_not(
        self, selection: Selection, said: str, hint: str
    ):
        message = f"{B} depends on {A}, which does not exist yet and {said}"
        run = over(selection=selection)
        run.steps(declared("a", size=1))
        wanted = declared("b", size=1, opt_dependencies=[A])
        assert message_of(run, wanted) == (message, hint)
        preview = over(preview=True, selection=selection)
        preview.steps(declared("a", size=1))
        assert preview.ops(wanted) == [("create", "b")]
        assert [(urn, each.message) for urn, each in preview.problems] == [(B, message)]
        preview.steps(replace(declared("c", size=1, opt_dependencies=[A]), urn=B + "2"))
        assert len(preview.problems) == 1

    def test_one_that_is_left_may_need_what_is_not_created(self):
        run = over(selection=targets("c"))
        run.steps(declared("a", size=1))
        assert run.ops(declared("b", size=1, opt_dependencies=[A])) == [("same", "b")]

    @pytest.mark.parametrize(
        ("selection", "said", "hint"),
        [
            (targets("a"), "is not among the targets", f"change both in one run: --target '{B}'"),
            (excluding("b"), "is excluded", f"change both in one run: without --exclude '{B}'"),
        ],
    )
    def test_a_cycle_with_what_is_left_as_it_is_is_refused(
        self, selection: Selection, said: str, hint: str
    ):
        run = over(entry("a"), entry("b", dependencies=[A]), selection=selection)
        run.steps(declared("b", size=1))
        assert message_of(run, declared("a", size=1, opt_dependencies=[B])) == (
            f"{A} newly depends on {B}, which {said} and depends on it in the state",
            hint,
        )

    def test_a_cycle_over_several_is_found_and_another_order_is_none(self):
        base = [entry("a"), entry("c", dependencies=[A]), entry("b", dependencies=[C])]
        run = over(*base, selection=targets("a"))
        run.steps(declared("b", size=1))
        assert (
            f"newly depends on {B}"
            in message_of(run, declared("a", size=1, opt_dependencies=[B]))[0]
        )
        leaves = [entry(f"x{number}") for number in range(8)]
        wide = entry("w", dependencies=[B, *(leaf.urn for leaf in leaves)])
        run = over(*base, *leaves, wide, selection=targets("a"))
        run.steps(declared("b", size=1))
        assert (
            f"newly depends on {wide.urn}"
            in message_of(run, declared("a", size=1, opt_dependencies=[wide.urn]))[0]
        )
        run = over(entry("a"), entry("b", dependencies=[A]), entry("c"), selection=targets("a"))
        run.steps(declared("b", size=1))
        assert run.ops(declared("a", size=1, opt_dependencies=[C])) == [("same", "a")]

    def test_a_cycle_over_what_this_run_has_changed_is_found(self):
        base = [entry("a"), entry("b", dependencies=[A]), entry("c")]
        run = over(*base, selection=targets("a", "c"))
        run.steps(declared("b", size=1))
        run.steps(declared("c", size=1, opt_dependencies=[B]))
        message, _ = message_of(run, declared("a", size=1, opt_dependencies=[C]))
        assert message.startswith(f"{A} newly depends on {C}, which")

    def test_a_replacement_may_not_need_what_is_not_created(self):
        run = over(entry("a", inputs={"slot": 1}), selection=targets("a"))
        run.steps(declared("x", size=1))
        message, _ = message_of(run, declared("a", slot=2, opt_dependencies=[urn_of("x")]))
        assert message.startswith(f"{A} depends on {urn_of('x')}, which does not exist yet")

    def test_a_cycle_over_an_old_name_is_found(self):
        run = over(entry("a"), entry("b", dependencies=[A]), selection=targets("new"))
        run.steps(declared("b", size=1))
        wanted = declared("new", size=1, opt_aliases=(Alias(urn=A),), opt_dependencies=[B])
        message, _ = message_of(run, wanted)
        assert message.startswith(f"{urn_of('new')} newly depends on {B}, which")

    def test_a_need_that_nobody_knows_is_no_cycle(self):
        run = over(entry("a"), entry("b", dependencies=[A]), selection=targets("a"))
        run.steps(declared("b", size=1))
        wanted = declared("a", size=1, opt_dependencies=[urn_of("unknown")])
        assert run.ops(wanted) == [("same", "a")]

    def test_an_untargeted_parent_of_an_old_name_decides_for_its_children(self):
        run = over(entry("a"), entry("c", parent=A), selection=targets("c"))
        run.steps(declared("b", size=1, opt_aliases=(Alias(urn=A),), opt_protect=True))
        (step,) = run.steps(declared("c", size=1, opt_parent=A))
        assert step.new is not None
        assert step.new.protect

    def test_a_cycle_over_what_this_run_reads_is_found(self):
        base = [entry("a"), entry("b", dependencies=[A]), entry("c", external=True)]
        run = over(*base, selection=targets("a", "c"))
        run.steps(declared("b", size=1))
        run.generator.generate_read_steps(read("c", "id-c", dependencies=(B,)), PROVIDER)
        message, _ = message_of(run, declared("a", size=1, opt_dependencies=[C]))
        assert message.startswith(f"{A} newly depends on {C}, which")


class TestLeftOut:
    def test_what_is_skipped_after_a_failure_keeps_its_entry(self):
        run = over(entry("a"))
        run.generator.keep_skipped_resource(declared("a", size=9))
        run.generator.keep_skipped_resource(declared("b", size=1))
        assert run.generator.declared_urns == {A, B}
        assert run.host.checks == []
        assert run.problems == []

    def test_what_is_skipped_keeps_the_entry_of_its_old_name(self):
        run = over(entry("a"))
        run.generator.keep_skipped_resource(declared("b", opt_aliases=(Alias(urn=A),)))
        assert run.generator.declared_urns == {A, B}

    def test_what_is_skipped_still_decides_for_what_is_in_it(self):
        run = over()
        run.generator.keep_skipped_resource(declared("g", custom=False, opt_protect=True))
        run.generator.keep_skipped_resource(declared("h", custom=False, opt_parent=urn_of("g")))
        (step,) = run.steps(declared("c", size=1, opt_parent=urn_of("h")))
        assert step.new is not None
        assert step.new.protect

    @pytest.mark.parametrize("needed", ["c", "d"])
    def test_a_cycle_over_what_is_skipped_is_found(self, needed: str):
        base = [entry("a"), entry("b", dependencies=[A]), entry("c", dependencies=[B])]
        run = over(*base, selection=targets("a", "c"))
        run.steps(declared("b", size=1))
        run.generator.keep_skipped_resource(declared("c", size=1))
        run.generator.keep_skipped_resource(declared("d", size=1, opt_dependencies=[B]))
        message, _ = message_of(run, declared("a", size=1, opt_dependencies=[urn_of(needed)]))
        assert message.startswith(f"{A} newly depends on {urn_of(needed)}, which")


def read(name: str, id_: str, **fields: Any) -> Read:
    return Read(urn_of(name), TYPE, name, id_, {}, **fields)


class TestReads:
    def steps(self, run: Run, wanted: Read) -> list[Step]:
        return run.generator.generate_read_steps(wanted, PROVIDER)

    @pytest.mark.parametrize(
        "base", [[], [entry("a", external=True, id="m-1")], [entry("a", id="m-2")]]
    )
    def test_what_is_read_is_shown_as_read(self, base: list[ResourceState]):
        (step,) = self.steps(over(*base), read("a", "m-2"))
        assert (step.op, step.urn, step.old) == (Op.READ, A, base[0] if base else None)
        assert step.new is not None
        assert (step.new.external, step.new.id, step.new.provider) == (True, "m-2", PROVIDER)
        assert step.change is not None
        assert step.change.action is PlanAction.READ

    @pytest.mark.parametrize("is_gone", [True, False])
    def test_an_own_object_of_another_id_is_replaced(self, is_gone: bool):
        old = entry("a", pending_replacement=is_gone, inputs={"gpus": 8})
        run = over(old, entry("b"))
        first, logical = self.steps(run, read("a", "m-2"))
        assert [first.op, logical.op] == [Op.READ_REPLACEMENT, Op.REPLACE]
        for step in (first, logical):
            assert (step.urn, step.old, step.new and step.new.id) == (A, old, "m-2")
        assert first.change is None
        assert logical.change is not None
        assert (logical.change.action, logical.change.gpus_removed) == (PlanAction.REPLACE, 8)
        assert [(each.path, each.before) for each in logical.change.changes] == [("gpus", 8)]
        assert [left.delete for left in run.generator.list_remaining_entries()] == [
            not is_gone,
            False,
        ]
        ops = run.ops(declared("b", size=1, opt_deleted_with=A))
        assert ops == [("create-replacement", "b"), ("replace", "b")]

    def test_an_object_that_fell_with_another_is_not_deleted_again(self):
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        b = entry("b", inputs={"rack": "of-a"}, **uses)
        run = over(entry("a", inputs={"slot": 1}), b)
        deletion = run.steps(declared("a", slot=2))[0]
        first, _ = self.steps(run, read("b", "m-2"))
        assert first.after is deletion
        assert [
            (left.delete, left.pending_replacement)
            for left in run.generator.list_remaining_entries()
        ] == [
            (False, False),
            (False, True),
        ]

    def test_what_was_read_does_not_fall_with_what_it_used(self):
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        b = entry("b", inputs={"rack": "of-a"}, **uses)
        run = over(entry("a", inputs={"slot": 1}), b)
        self.steps(run, read("b", "id-b"))
        assert run.ops(declared("a", slot=2))[0] == ("delete-replaced", "a")

    def test_what_fell_with_another_is_read_after_its_deletion(self):
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        b = entry("b", inputs={"rack": "of-a"}, **uses)
        run = over(entry("a", inputs={"slot": 1}), b)
        deletion = run.steps(declared("a", slot=2))[0]
        (step,) = self.steps(run, read("b", "id-b"))
        assert (step.op, step.after) == (Op.READ, deletion)
        other = over(entry("a", inputs={"slot": 1}), b, selection=targets("a", "b"))
        other.steps(declared("a", slot=2))
        other.steps(declared("x", size=1))
        (step,) = self.steps(other, read("b", "id-b", dependencies=(urn_of("x"),)))
        assert (step.op, step.old, step.skipped) == (Op.SAME, None, True)

    @pytest.mark.parametrize("preview", [True, False])
    def test_an_id_that_is_not_known_is_read_in_a_preview_only(self, preview: bool):
        (step,) = self.steps(over(preview=preview), read("a", UNKNOWN_TEXT))
        assert (step.op, step.skipped) == ((Op.READ, False) if preview else (Op.SAME, True))

    def test_what_needs_something_that_is_not_created_is_not_read(self):
        run = over(entry("b", external=True), selection=targets("b"))
        run.steps(declared("a", size=1))
        (step,) = self.steps(run, read("b", "m-1", dependencies=(A,)))
        assert (step.op, step.skipped) == (Op.SAME, False)
        (step,) = self.steps(run, read("c", "m-1", dependencies=(A,)))
        assert (step.op, step.skipped) == (Op.SAME, True)

    def test_what_needs_what_is_left_and_needs_it_in_turn_is_not_read(self):
        run = over(entry("a", external=True), entry("b", dependencies=[A]), selection=targets("a"))
        run.steps(declared("b", size=1))
        (step,) = self.steps(run, read("a", "m-9", dependencies=(B,)))
        assert (step.op, step.skipped) == (Op.SAME, False)


class TestHolding:
    """A program that is run for a refresh or a destroy changes no resource."""

    @pytest.mark.parametrize("holding", ["refresh", "destroy"])
    def test_a_new_resource_is_not_made(self, holding: Any):
        run = over(run_program_operation=holding)
        (step,) = run.steps(declared("a", size=1))
        assert (step.op, step.old, step.skipped) == (Op.SAME, None, True)
        assert step.new is not None
        assert (step.urn, step.new.urn) == (A, A)
        assert run.host.checks == []

    @pytest.mark.parametrize("holding", ["refresh", "destroy"])
    def test_a_component_and_a_provider_are_made(self, holding: Any):
        run = over(run_program_operation=holding)
        assert run.ops(declared("a", custom=False)) == [("create", "a")]
        assert run.ops(declared("p", "pulumi:providers:lab")) == [("create", "p")]

    def test_a_refresh_reads_a_resource_when_it_is_declared(self):
        old = entry("a")
        (step,) = over(old, run_program_operation="refresh").steps(declared("a", size=9))
        assert (step.op, step.urn, step.result_op) == (Op.REFRESH, A, Op.SAME)
        assert step.old is old
        assert step.new is old

    def test_a_refresh_of_targets_leaves_the_others(self):
        run = over(entry("a"), entry("b"), run_program_operation="refresh", selection=targets("b"))
        assert run.ops(declared("a", size=9)) == [("same", "a")]
        assert run.ops(declared("b", size=9)) == [("refresh", "b")]

    def test_a_refresh_reads_a_provider_before_its_step(self):
        type_ = "pulumi:providers:lab"
        run = over(entry("p", type_), run_program_operation="refresh")
        assert run.ops(declared("p", type_, size=1)) == [("refresh", "p"), ("same", "p")]
        run = over(entry("p", type_), run_program_operation="destroy")
        assert run.ops(declared("p", type_, size=1)) == [("same", "p")]

    def test_a_destroy_goes_by_the_options_of_the_program(self):
        old = entry("a", external=True, pending_replacement=True)
        run = over(old, run_program_operation="destroy")
        (step,) = run.steps(declared("a", size=9, opt_retain_on_delete=True))
        assert (step.op, step.urn, step.old) == (Op.SAME, A, old)
        held = run.generator.destroy_goals[id(old)]
        assert held is step.new
        assert held.retain_on_delete
        assert (held.inputs, held.external, held.pending_replacement) == ({"size": 1}, True, True)

    @pytest.mark.parametrize(("holding", "op"), [("refresh", "refresh"), ("destroy", "same")])
    def test_what_needs_a_resource_that_is_not_made_waits(self, holding: Any, op: str):
        old = entry("b")
        run = over(old, run_program_operation=holding)
        run.steps(declared("a", size=1))
        assert run.ops(declared("b", size=1, opt_dependencies=[A])) == [(op, "b")]
        assert run.generator.destroy_goals == {}
        third = run.steps(declared("c", custom=False, opt_dependencies=[B]))
        assert [step.skipped for step in third] == [holding == "destroy"]

    def test_what_is_left_under_its_old_name_still_decides_for_what_is_in_it(self):
        child = entry("c", parent=A)
        run = over(entry("a"), child, run_program_operation="destroy")
        run.steps(declared("x", size=1))
        run.steps(
            declared(
                "b",
                size=1,
                opt_aliases=(Alias(urn=A),),
                opt_protect=True,
                opt_dependencies=[urn_of("x")],
            )
        )
        run.steps(declared("c", size=1, opt_parent=A))
        assert run.generator.destroy_goals[id(child)].protect
