"""The steps of one registration after another, against a provider that compares by rule."""

import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuform.providers.values import UNKNOWN, UNKNOWN_TEXT
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanAction, PlanReason
from gpuform.stacks.engine.planning import UNPROTECT, EventBus, Op, Step, StepGenerator
from gpuform.stacks.engine.provider_host import Created, Diff
from gpuform.stacks.engine.registration import Alias, Read, Registration
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns
from gpuform.stacks.engine.store import Owners

TYPE = "lab:Machine"
PROVIDER = "urn:pulumi:dev::lab::pulumi:providers:lab::p::1"


def build_urn(name: str, type_: str = TYPE) -> str:
    return f"urn:pulumi:dev::lab::{type_}::{name}"


A, B, C = map(build_urn, "abc")


def build_goal(name: str, type_: str = TYPE, *, custom: bool = True, **more: Any) -> Registration:
    options = {key.removeprefix("opt_"): more.pop(key) for key in [*more] if key.startswith("opt_")}
    return Registration(build_urn(name, type_), type_, name, custom, more, **options)


def build_entry(name: str, type_: str = TYPE, **fields: Any) -> ResourceState:
    inputs = fields.pop("inputs", {"size": 1})
    defaults = {"id": f"id-{name}", "inputs": inputs, "outputs": inputs, "provider": PROVIDER}
    return ResourceState(build_urn(name, type_), True, type_, **{**defaults, **fields})


@dataclass
class Host:
    """A provider that replaces for `rack`, and for `slot` deletes first."""

    checks: list[Any] = field(default_factory=list)
    reads: list[Any] = field(default_factory=list)
    field_questions: list[Any] = field(default_factory=list)
    shows_fields: bool = False

    def check(self, urn: str, olds: Any, news: Any, provider: str, **_: Any) -> Any:
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

    def add_planned_repairs(self, _change: Any) -> None:
        return

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


def build_run(*base: ResourceState, preview: bool = False, **options: Any) -> Run:
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
    return Selection(UrnPatterns(map(build_urn, names)), **more)


def excluding(*names: str) -> Selection:
    return Selection(excludes=UrnPatterns(map(build_urn, names)))


def get_error_message(run: Run, registration: Registration) -> tuple[str, str | None]:
    with pytest.raises(EngineError) as raised:
        run.steps(registration)
    return raised.value.message, raised.value.hint


class TestOneResource:
    def test_a_new_resource_is_created_with_checked_inputs(self):
        run = build_run()
        (step,) = run.steps(build_goal("a", size=1))
        assert (step.op, step.urn, step.old) == (Op.CREATE, A, None)
        assert step.new is not None
        assert (step.new.inputs, step.new.provider) == ({"size": 1}, PROVIDER)
        assert step.change is not None
        assert (step.change.action, step.change.reason) == (PlanAction.CREATE, PlanReason.NEW)
        assert run.host.checks == [(A, {}, {"size": 1}, PROVIDER)]
        assert run.generator.declared_urns == {A}

    def test_an_unchanged_resource_has_a_same_step(self):
        old = build_entry("a")
        run = build_run(old)
        (step,) = run.steps(build_goal("a", size=1))
        assert (step.op, step.old, [*step.diffs]) == (Op.SAME, old, [])
        assert run.host.checks == [(A, {"size": 1}, {"size": 1}, PROVIDER)]

    def test_a_resource_without_a_provider_diff_has_no_changes(self):
        old = build_entry("a", inputs={"size": 1}, outputs={"size": 2})
        (step,) = build_run(old).steps(build_goal("a", size=2))
        assert (step.op, [*step.diffs]) == (Op.SAME, [])

    def test_a_changed_resource_is_updated_with_its_changes(self):
        (step,) = build_run(build_entry("a")).steps(build_goal("a", size=2))
        assert (step.op, [*step.diffs], [*step.keys]) == (Op.UPDATE, ["size"], [])
        assert step.change is not None
        assert [change.path for change in step.change.changes] == ["size"]

    def test_an_update_has_the_field_changes_of_the_provider(self):
        (step,) = build_run(build_entry("a"), host=Host(shows_fields=True)).steps(
            build_goal("a", size=2)
        )
        assert [*step.diffs] == ["shown"]
        assert step.change is not None
        assert [change.path for change in step.change.changes] == ["shown"]

    def test_a_resource_that_is_not_ready_is_updated(self):
        (step,) = build_run(build_entry("a", init_errors=["still booting"])).steps(
            build_goal("a", size=1)
        )
        assert step.op is Op.UPDATE

    @pytest.mark.parametrize(("size", "op"), [(1, Op.SAME), (2, Op.UPDATE)])
    def test_a_component_is_updated_without_a_provider_call(self, size: int, op: Op):
        old = replace(build_entry("a"), custom=False, provider="", id="")
        run = build_run(old)
        (step,) = run.steps(build_goal("a", custom=False, size=size))
        assert (step.op, step.change) == (op, None)
        assert [*step.diffs] == ([] if size == 1 else ["size"])
        assert run.host.checks == []

    def test_a_new_component_is_created_without_a_provider_call(self):
        (step,) = build_run().steps(build_goal("a", custom=False, size=1))
        assert (step.op, step.change) == (Op.CREATE, None)
        assert step.new is not None
        assert step.new.inputs == {"size": 1}

    def test_an_ignored_property_keeps_its_old_input(self):
        run = build_run(build_entry("a"))
        (step,) = run.steps(build_goal("a", size=2, opt_ignore_changes=["size"]))
        assert step.op is Op.SAME
        assert step.new is not None
        assert step.new.inputs == {"size": 1}
        assert run.events == []

    def test_an_ignored_path_without_a_match_is_reported(self):
        run = build_run(build_entry("a", inputs={"size": 1, "config": {"b": 1}}))
        run.steps(build_goal("a", size=1, opt_ignore_changes=["config.b"]))
        (event,) = run.events
        assert (event.severity, event.urn) == ("info", A)
        assert event.message == "ignore_changes: config.b does not exist and has no effect"

    def test_a_new_resource_ignores_nothing(self):
        (step,) = build_run().steps(build_goal("a", size=2, opt_ignore_changes=["size"]))
        assert step.new is not None
        assert step.new.inputs == {"size": 2}

    def test_a_component_keeps_its_declared_inputs_even_if_ignored(self):
        old = replace(build_entry("a"), custom=False, provider="", id="")
        (step,) = build_run(old).steps(
            build_goal("a", custom=False, size=2, opt_ignore_changes=["size"])
        )
        assert step.op is Op.SAME
        assert step.new is not None
        assert step.new.inputs == {"size": 2}

    @pytest.mark.parametrize("base", [[], [build_entry("a", external=True, id="m-7")]])
    def test_an_existing_object_is_imported(self, base: list[ResourceState]):
        run = build_run(*base)
        (step,) = run.steps(build_goal("a", size=1, opt_import_id="m-7"))
        assert (step.op, step.old) == (Op.IMPORT, base[0] if base else None)
        assert step.new is not None
        assert (step.new.id, step.new.external) == ("m-7", False)
        (question,) = run.host.reads
        assert question["provider"] == PROVIDER
        assert 0 < question["as_of"] <= time.monotonic()
        with pytest.raises(EngineError, match=f"^{B}: import_ names m-7, which belongs to {A}"):
            run.steps(build_goal("b", size=1, opt_import_id="m-7"))

    @pytest.mark.parametrize("preview", [True, False])
    def test_a_preview_does_not_claim_an_imported_object(self, preview: bool):
        claims: list[bool] = []
        others = SimpleNamespace(find_owners=lambda *, claim: claims.append(claim) or Owners())
        build_run(preview=preview, others=others).steps(build_goal("a", opt_import_id="m-7"))
        assert claims == [not preview]

    def test_an_object_of_the_stack_is_compared_instead_of_imported(self):
        run = build_run(build_entry("a", id="m-7"))
        assert run.ops(build_goal("a", size=1, opt_import_id="m-7")) == [("same", "a")]
        assert run.host.reads == []


class TestReplacement:
    def test_a_replacement_creates_before_it_deletes(self):
        old = build_entry("a", inputs={"rack": "x"})
        run = build_run(old)
        create, logical = run.steps(build_goal("a", rack="y"))
        assert (create.op, logical.op) == (Op.CREATE_REPLACEMENT, Op.REPLACE)
        for step in (create, logical):
            assert (step.old, step.urn, [*step.keys], [*step.diffs]) == (old, A, ["rack"], ["rack"])
        assert create.change is None
        assert logical.change is not None
        assert logical.change.replace_paths == ("rack",)
        (change,) = logical.change.changes
        assert (change.path, change.before, change.after) == ("rack", "x", "y")
        assert change.forces_replacement
        # The new object is checked as one without a past.
        assert [check[1] for check in run.host.checks] == [{"rack": "x"}, {}]
        assert [check[3] for check in run.host.checks] == [PROVIDER] * 2
        (old_entry,) = run.generator.list_remaining_entries()
        assert (old_entry.delete, old_entry.pending_replacement) == (True, False)

    def test_a_replacement_has_the_field_changes_of_the_provider(self):
        run = build_run(build_entry("a", inputs={"rack": 1}), host=Host(shows_fields=True))
        assert [[*step.diffs] for step in run.steps(build_goal("a", rack=2))] == [["shown"]] * 2

    def test_a_provider_can_require_delete_before_replace(self):
        old = build_entry("a", inputs={"slot": 1}, retain_on_delete=True)
        run = build_run(old)
        delete, logical, create = run.steps(build_goal("a", slot=2))
        assert [delete.op, logical.op, create.op] == [
            Op.DELETE_REPLACED,
            Op.REPLACE,
            Op.CREATE_REPLACEMENT,
        ]
        assert (delete.urn, delete.old, delete.new) == (A, old, None)
        assert [[*step.keys] for step in (delete, logical, create)] == [["slot"]] * 3
        assert delete.retain
        (old_entry,) = run.generator.list_remaining_entries()
        assert (old_entry.delete, old_entry.pending_replacement) == (False, False)

    @pytest.mark.parametrize(("first", "ops"), [(True, 3), (False, 2)])
    @pytest.mark.parametrize("key", ["rack", "slot"])
    def test_delete_before_replace_of_the_program_wins(self, key: str, first: bool, ops: int):
        run = build_run(build_entry("a", inputs={key: 1}))
        assert len(run.steps(build_goal("a", opt_delete_before_replace=first, **{key: 2}))) == ops

    def test_a_scarce_kind_is_deleted_first_unless_the_program_overrides_it(self):
        asked: list[Any] = []

        def deletes_first(type_: str, inputs: Any) -> bool:
            asked.append((type_, inputs))
            return True

        run = build_run(build_entry("a", inputs={"rack": 1}), should_delete_first=deletes_first)
        assert run.ops(build_goal("a", rack=2))[0] == ("delete-replaced", "a")
        assert asked == [(TYPE, {"rack": 2})]
        run = build_run(build_entry("a", inputs={"rack": 1}), should_delete_first=deletes_first)
        first = run.ops(build_goal("a", rack=2, opt_delete_before_replace=False))[0]
        assert first == ("create-replacement", "a")

    def test_a_resource_pending_replacement_is_only_created(self):
        run = build_run(build_entry("a", pending_replacement=True))
        assert run.ops(build_goal("a", size=1)) == [("replace", "a"), ("create-replacement", "a")]
        for first in (True, False):
            run = build_run(build_entry("a", pending_replacement=True, inputs={"rack": 1}))
            ops = run.ops(build_goal("a", rack=2, opt_delete_before_replace=first))
            assert ops == [("replace", "a"), ("create-replacement", "a")]

    @pytest.mark.parametrize("how", ["taint", "flag"])
    def test_a_requested_replacement_ignores_unchanged_inputs(self, how: str):
        selection = Selection(replace=UrnPatterns([A])) if how == "flag" else Selection()
        run = build_run(build_entry("a", taint=how == "taint"), selection=selection)
        create, logical = run.steps(build_goal("a", size=1))
        assert (create.op, [*create.keys]) == (Op.CREATE_REPLACEMENT, ["id"])
        assert logical.change is not None
        assert logical.change.reason is PlanReason.REPLACEMENT_REQUESTED
        assert run.host.checks == [(A, {}, {"size": 1}, PROVIDER)]

    def test_a_protected_resource_is_not_replaced(self):
        old, new_inputs = build_entry("a", protect=True, inputs={"rack": 1}), {"rack": 2}
        expected_message = (
            f"{A} is protected, but this change forces its replacement (because of rack)"
        )
        assert get_error_message(
            build_run(old), build_goal("a", opt_protect=True, **new_inputs)
        ) == (
            expected_message,
            UNPROTECT,
        )
        both = build_run(build_entry("a", protect=True, inputs={"rack": 1, "slot": 1}))
        message, _ = get_error_message(both, build_goal("a", opt_protect=True, rack=2, slot=2))
        assert message.endswith("(because of rack, slot)")
        run = build_run(old, preview=True)
        assert len(run.steps(build_goal("a", opt_protect=True, **new_inputs))) == 2
        assert [(urn, error.message) for urn, error in run.problems] == [(A, expected_message)]
        assert len(build_run(old).steps(build_goal("a", **new_inputs))) == 2
        unprotected = replace(old, protect=False)
        assert (
            len(build_run(unprotected).steps(build_goal("a", opt_protect=True, **new_inputs))) == 2
        )
        gone = replace(old, pending_replacement=True)
        assert len(build_run(gone).steps(build_goal("a", opt_protect=True, **new_inputs))) == 2

    def test_a_resource_with_an_import_option_is_not_replaced(self):
        old = build_entry("a", import_id="id-a", inputs={"rack": 1})
        message = get_error_message(build_run(old), build_goal("a", rack=2, opt_import_id="id-a"))
        assert message == (
            f"{A}: rack would replace the object named by import_",
            "to replace the object, remove import_",
        )
        begun = replace(old, pending_replacement=True)
        assert get_error_message(build_run(begun), build_goal("a", rack=1, opt_import_id="id-a"))[
            0
        ] == (f"{A}: an unfinished replacement would replace the object named by import_")

    def test_a_replaced_external_object_is_not_deleted(self):
        run = build_run(build_entry("a", external=True), build_entry("b", deleted_with=A))
        create, logical = run.steps(build_goal("a", size=1))
        assert [create.op, logical.op] == [Op.CREATE_REPLACEMENT, Op.REPLACE]
        assert [*create.keys] == []
        assert run.host.checks == [(A, {}, {"size": 1}, PROVIDER)]
        assert run.ops(build_goal("b", size=1, opt_deleted_with=A)) == [("same", "b")]

    def test_a_resource_is_replaced_with_its_replace_with_resource(self):
        run = build_run(build_entry("a", inputs={"rack": 1}), build_entry("b"), build_entry("c"))
        run.steps(build_goal("a", rack=2))
        create, logical = run.steps(build_goal("b", size=1, opt_replace_with=[A]))
        assert (create.op, [*create.keys]) == (Op.CREATE_REPLACEMENT, ["replace_with"])
        assert logical.change is not None
        assert logical.change.reason is PlanReason.DEPENDENCY_REPLACED
        assert run.ops(build_goal("c", size=1)) == [("same", "c")]

    def test_an_unknown_replacement_trigger_is_an_error_outside_of_previews(self):
        old = build_entry("a", replacement_trigger=1)
        goal = build_goal("a", size=1, opt_replacement_trigger=UNKNOWN)
        assert "replacement_trigger is unknown" in get_error_message(build_run(old), goal)[0]
        assert len(build_run(old, preview=True).steps(goal)) == 2


class TestDependents:
    """Dependents of an object that is deleted first are deleted with it."""

    def base(self, **of_b: Any) -> list[ResourceState]:
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        return [
            build_entry("a", inputs={"slot": 1}),
            build_entry("b", inputs={"rack": "of-a", "size": 1}, **uses, **of_b),
            build_entry("c", deleted_with=B),
        ]

    def test_dependents_are_deleted_in_reverse_order_and_created_again(self):
        run = build_run(*self.base())
        steps = run.steps(build_goal("a", slot=2))
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
            (entry.urn, entry.delete, entry.pending_replacement)
            for entry in run.generator.list_remaining_entries()
        ] == [(A, False, False), (B, False, True), (C, False, True)]
        logical, create = run.steps(
            build_goal("b", rack="of-a", size=2, opt_property_dependencies={"rack": [A]})
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
        assert run.ops(build_goal("c", size=1, opt_deleted_with=B)) == [
            ("replace", "c"),
            ("create-replacement", "c"),
        ]

    def test_a_replace_with_resource_of_a_replaced_dependent_is_replaced(self):
        run = build_run(*self.base()[:2], build_entry("d"))
        run.steps(build_goal("a", slot=2))
        run.steps(build_goal("b", rack="of-a", size=1))
        assert run.ops(build_goal("d", size=1, opt_replace_with=[B])) == [
            ("create-replacement", "d"),
            ("replace", "d"),
        ]

    def test_a_protected_dependent_prevents_the_replacement(self):
        a, b, c = self.base(protect=True)
        message = f"replacing {A} requires the deletion of protected resources: {B}"
        assert get_error_message(build_run(a, b, c), build_goal("a", slot=2)) == (
            message,
            UNPROTECT,
        )
        both = build_run(a, b, replace(c, protect=True))
        assert get_error_message(both, build_goal("a", slot=2)) == (f"{message}, {C}", UNPROTECT)

    def test_an_already_registered_dependent_is_not_deleted(self):
        run = build_run(*self.base())
        run.steps(build_goal("b", rack="other", size=1))
        steps = run.ops(build_goal("a", slot=2))
        assert steps == [("delete-replaced", "a"), ("replace", "a"), ("create-replacement", "a")]

    def test_a_skipped_dependent_is_not_deleted(self):
        run = build_run(*self.base())
        run.generator.keep_skipped_resource(build_goal("b", rack="other", size=1))
        assert run.ops(build_goal("a", slot=2))[0] == ("delete-replaced", "a")

    def test_dependents_of_several_replaced_resources_are_recorded(self):
        a, b, _ = self.base()
        uses = {"dependencies": [C], "property_dependencies": {"rack": [C]}}
        run = build_run(
            a, b, build_entry("c", inputs={"slot": 1}), build_entry("d", inputs={"rack": 1}, **uses)
        )
        deletions = [run.steps(build_goal(name, slot=2))[0] for name in "ac"]
        firsts = [run.steps(build_goal(name, rack="new"))[0] for name in "bd"]
        assert [step.after for step in firsts] == deletions

    def test_a_dependent_pending_replacement_is_not_deleted_again(self):
        run = build_run(*self.base(pending_replacement=True))
        assert run.ops(build_goal("a", slot=2))[:2] == [
            ("delete-replaced", "c"),
            ("delete-replaced", "a"),
        ]

    def test_an_object_pending_deletion_is_deleted_with_the_dependents(self):
        a, b, _ = self.base()
        waiting = replace(b, id="id-old", delete=True)
        run = build_run(a, b, waiting)
        steps = run.steps(build_goal("a", slot=2))
        assert [(str(step.op), step.old and step.old.id) for step in steps[:3]] == [
            ("delete", "id-old"),
            ("delete-replaced", "id-b"),
            ("delete-replaced", "id-a"),
        ]
        assert [entry.id for entry in run.generator.list_remaining_entries()] == ["id-a", "id-b"]

    def test_an_untargeted_dependent_makes_the_replacement_an_error(self):
        def scarce(_type: str, _inputs: Any) -> bool:
            return True

        a, b, _ = self.base()
        a = replace(a, inputs={"rack": 1}, outputs={"rack": 1})
        run = build_run(a, b, selection=targets("a"), should_delete_first=scarce)
        assert get_error_message(run, build_goal("a", rack=2)) == (
            (
                f"{A} cannot be replaced alone: b depends on it and must be replaced too, but "
                "is not among the targets"
            ),
            "add --target-dependents, or add the dependent to the targets",
        )
        for selection in (targets("a", "b"), Selection()):
            run = build_run(a, b, selection=selection, should_delete_first=scarce)
            assert run.ops(build_goal("a", rack=2))[0] == ("delete-replaced", "b")

    def test_a_deleted_untargeted_dependent_is_recreated_with_old_inputs(self):
        a, b, _ = self.base()
        run = build_run(a, b, selection=targets("a"))
        run.steps(build_goal("a", slot=2))
        logical, create = run.steps(build_goal("b", rack="new", size=9))
        assert [logical.op, create.op] == [Op.REPLACE, Op.CREATE_REPLACEMENT]
        assert create.new is not None
        assert create.new.inputs == b.inputs

    def test_a_failed_diff_of_a_dependent_names_the_replaced_resource(self):
        class Broken(Host):
            def diff(self, *_: Any) -> Diff:
                raise EngineError("no answer")

        run = build_run(*self.base(), host=Broken())
        run.generator.compare_dependents({A})
        assert [(urn, error.message) for urn, error in run.problems] == [(A, "no answer")]
        run.generator.compare_dependents({B, C})
        assert len(run.problems) == 1

    def test_a_destroy_does_not_diff_dependents_again(self):
        class Broken(Host):
            def diff(self, *_: Any) -> Diff:
                raise EngineError("no answer")

        run = build_run(*self.base(), host=Broken(), run_program_operation="destroy")
        run.steps(build_goal("b", size=1))
        run.generator.compare_dependents({A})
        assert run.problems == []


class TestTargets:
    def test_an_untargeted_resource_stays_unchanged(self):
        old = build_entry("b", dependencies=[C])
        run = build_run(build_entry("a"), build_entry("c"), old, selection=targets("a"))
        (step,) = run.steps(build_goal("b", size=9))
        assert (step.op, step.urn, step.old, step.new) == (Op.SAME, B, old, old)
        assert step.new is not old
        assert run.host.checks == []
        assert run.generator.undeletable_urns == {B, C}
        assert run.generator.declared_urns == {B}

    def test_dependencies_of_an_untargeted_resource_are_kept(self):
        needs = {"b": ["c", "d", "e"], "c": ["f"], "d": ["g"], "e": ["h"], "h": ["a"]}
        base = [
            build_entry(name, dependencies=[*map(build_urn, needs.get(name, ()))])
            for name in "afghcdeb"
        ]
        run = build_run(*base, selection=targets("z"))
        run.steps(build_goal("b", size=1))
        assert run.generator.undeletable_urns == {*map(build_urn, "abcdefgh")}

    def test_an_untargeted_new_resource_is_skipped(self):
        (step,) = build_run(selection=targets("a")).steps(build_goal("b", size=1))
        assert (step.op, step.urn, step.old, step.skipped) == (Op.SAME, B, None, True)

    @pytest.mark.parametrize("type_", ["pulumi:pulumi:Stack", "pulumi:providers:lab"])
    def test_provider_and_stack_entries_are_always_targets(self, type_: str):
        run = build_run(selection=targets("a"))
        (step,) = run.steps(build_goal("x", type_, custom=False))
        assert step.op is Op.CREATE

    @pytest.mark.parametrize(
        ("selection", "expected_message", "hint"),
        [
            (targets("b"), "is not among the targets", f"add: --target '{A}'"),
            (
                excluding("a"),
                "is excluded",
                f"exclude its dependents, too: --exclude '{B}', or --exclude-dependents",
            ),
        ],
    )
    def test_a_created_target_cannot_depend_on_a_skipped_resource(
        self, selection: Selection, expected_message: str, hint: str
    ):
        message = f"{B} depends on {A}, which does not exist yet and {expected_message}"
        run = build_run(selection=selection)
        run.steps(build_goal("a", size=1))
        goal = build_goal("b", size=1, opt_dependencies=[A])
        assert get_error_message(run, goal) == (message, hint)
        preview = build_run(preview=True, selection=selection)
        preview.steps(build_goal("a", size=1))
        assert preview.ops(goal) == [("create", "b")]
        assert [(urn, problem.message) for urn, problem in preview.problems] == [(B, message)]
        preview.steps(replace(build_goal("c", size=1, opt_dependencies=[A]), urn=B + "2"))
        assert len(preview.problems) == 1

    def test_an_untargeted_resource_can_depend_on_a_skipped_one(self):
        run = build_run(selection=targets("c"))
        run.steps(build_goal("a", size=1))
        assert run.ops(build_goal("b", size=1, opt_dependencies=[A])) == [("same", "b")]

    @pytest.mark.parametrize(
        ("selection", "message", "hint"),
        [
            (targets("a"), "is not among the targets", f"change both in one run: --target '{B}'"),
            (excluding("b"), "is excluded", f"change both in one run: without --exclude '{B}'"),
        ],
    )
    def test_a_cycle_with_an_untargeted_resource_is_an_error(
        self, selection: Selection, message: str, hint: str
    ):
        run = build_run(build_entry("a"), build_entry("b", dependencies=[A]), selection=selection)
        run.steps(build_goal("b", size=1))
        assert get_error_message(run, build_goal("a", size=1, opt_dependencies=[B])) == (
            f"{A} newly depends on {B}, which {message} and depends on it in the state",
            hint,
        )

    def test_a_cycle_over_several_resources_is_an_error_and_another_order_is_not(self):
        base = [
            build_entry("a"),
            build_entry("c", dependencies=[A]),
            build_entry("b", dependencies=[C]),
        ]
        run = build_run(*base, selection=targets("a"))
        run.steps(build_goal("b", size=1))
        assert (
            f"newly depends on {B}"
            in get_error_message(run, build_goal("a", size=1, opt_dependencies=[B]))[0]
        )
        leaves = [build_entry(f"x{number}") for number in range(8)]
        wide = build_entry("w", dependencies=[B, *(leaf.urn for leaf in leaves)])
        run = build_run(*base, *leaves, wide, selection=targets("a"))
        run.steps(build_goal("b", size=1))
        assert (
            f"newly depends on {wide.urn}"
            in get_error_message(run, build_goal("a", size=1, opt_dependencies=[wide.urn]))[0]
        )
        run = build_run(
            build_entry("a"),
            build_entry("b", dependencies=[A]),
            build_entry("c"),
            selection=targets("a"),
        )
        run.steps(build_goal("b", size=1))
        assert run.ops(build_goal("a", size=1, opt_dependencies=[C])) == [("same", "a")]

    def test_a_cycle_over_a_changed_resource_is_an_error(self):
        base = [build_entry("a"), build_entry("b", dependencies=[A]), build_entry("c")]
        run = build_run(*base, selection=targets("a", "c"))
        run.steps(build_goal("b", size=1))
        run.steps(build_goal("c", size=1, opt_dependencies=[B]))
        message, _ = get_error_message(run, build_goal("a", size=1, opt_dependencies=[C]))
        assert message.startswith(f"{A} newly depends on {C}, which")

    def test_a_replacement_cannot_depend_on_a_skipped_resource(self):
        run = build_run(build_entry("a", inputs={"slot": 1}), selection=targets("a"))
        run.steps(build_goal("x", size=1))
        message, _ = get_error_message(
            run, build_goal("a", slot=2, opt_dependencies=[build_urn("x")])
        )
        assert message.startswith(f"{A} depends on {build_urn('x')}, which does not exist yet")

    def test_a_cycle_over_an_old_name_is_an_error(self):
        run = build_run(
            build_entry("a"), build_entry("b", dependencies=[A]), selection=targets("new")
        )
        run.steps(build_goal("b", size=1))
        goal = build_goal("new", size=1, opt_aliases=(Alias(urn=A),), opt_dependencies=[B])
        message, _ = get_error_message(run, goal)
        assert message.startswith(f"{build_urn('new')} newly depends on {B}, which")

    def test_an_unknown_dependency_is_no_cycle(self):
        run = build_run(
            build_entry("a"), build_entry("b", dependencies=[A]), selection=targets("a")
        )
        run.steps(build_goal("b", size=1))
        goal = build_goal("a", size=1, opt_dependencies=[build_urn("unknown")])
        assert run.ops(goal) == [("same", "a")]

    def test_children_of_an_untargeted_renamed_parent_are_untargeted(self):
        run = build_run(build_entry("a"), build_entry("c", parent=A), selection=targets("c"))
        run.steps(build_goal("b", size=1, opt_aliases=(Alias(urn=A),), opt_protect=True))
        (step,) = run.steps(build_goal("c", size=1, opt_parent=A))
        assert step.new is not None
        assert step.new.protect

    def test_a_cycle_over_a_read_resource_is_an_error(self):
        base = [
            build_entry("a"),
            build_entry("b", dependencies=[A]),
            build_entry("c", external=True),
        ]
        run = build_run(*base, selection=targets("a", "c"))
        run.steps(build_goal("b", size=1))
        run.generator.generate_read_steps(read("c", "id-c", dependencies=(B,)), PROVIDER)
        message, _ = get_error_message(run, build_goal("a", size=1, opt_dependencies=[C]))
        assert message.startswith(f"{A} newly depends on {C}, which")


class TestSkipped:
    def test_a_resource_skipped_after_a_failure_keeps_its_entry(self):
        run = build_run(build_entry("a"))
        run.generator.keep_skipped_resource(build_goal("a", size=9))
        run.generator.keep_skipped_resource(build_goal("b", size=1))
        assert run.generator.declared_urns == {A, B}
        assert run.host.checks == []
        assert run.problems == []

    def test_a_skipped_renamed_resource_keeps_its_old_entry(self):
        run = build_run(build_entry("a"))
        run.generator.keep_skipped_resource(build_goal("b", opt_aliases=(Alias(urn=A),)))
        assert run.generator.declared_urns == {A, B}

    def test_children_of_a_skipped_parent_are_skipped(self):
        run = build_run()
        run.generator.keep_skipped_resource(build_goal("g", custom=False, opt_protect=True))
        run.generator.keep_skipped_resource(
            build_goal("h", custom=False, opt_parent=build_urn("g"))
        )
        (step,) = run.steps(build_goal("c", size=1, opt_parent=build_urn("h")))
        assert step.new is not None
        assert step.new.protect

    @pytest.mark.parametrize("needed", ["c", "d"])
    def test_a_cycle_over_a_skipped_resource_is_an_error(self, needed: str):
        base = [
            build_entry("a"),
            build_entry("b", dependencies=[A]),
            build_entry("c", dependencies=[B]),
        ]
        run = build_run(*base, selection=targets("a", "c"))
        run.steps(build_goal("b", size=1))
        run.generator.keep_skipped_resource(build_goal("c", size=1))
        run.generator.keep_skipped_resource(build_goal("d", size=1, opt_dependencies=[B]))
        message, _ = get_error_message(
            run, build_goal("a", size=1, opt_dependencies=[build_urn(needed)])
        )
        assert message.startswith(f"{A} newly depends on {build_urn(needed)}, which")


def read(name: str, id_: str, **fields: Any) -> Read:
    return Read(build_urn(name), TYPE, name, id_, {}, **fields)


class TestReads:
    def steps(self, run: Run, read: Read) -> list[Step]:
        return run.generator.generate_read_steps(read, PROVIDER)

    @pytest.mark.parametrize(
        "base", [[], [build_entry("a", external=True, id="m-1")], [build_entry("a", id="m-2")]]
    )
    def test_a_read_resource_has_a_read_step(self, base: list[ResourceState]):
        (step,) = self.steps(build_run(*base), read("a", "m-2"))
        assert (step.op, step.urn, step.old) == (Op.READ, A, base[0] if base else None)
        assert step.new is not None
        assert (step.new.external, step.new.id, step.new.provider) == (True, "m-2", PROVIDER)
        assert step.change is not None
        assert step.change.action is PlanAction.READ

    @pytest.mark.parametrize("is_gone", [True, False])
    def test_reading_another_id_replaces_the_managed_object(self, is_gone: bool):
        old = build_entry("a", pending_replacement=is_gone, inputs={"gpus": 8})
        run = build_run(old, build_entry("b"))
        first, logical = self.steps(run, read("a", "m-2"))
        assert [first.op, logical.op] == [Op.READ_REPLACEMENT, Op.REPLACE]
        for step in (first, logical):
            assert (step.urn, step.old, step.new and step.new.id) == (A, old, "m-2")
        assert first.change is None
        assert logical.change is not None
        assert (logical.change.action, logical.change.gpus_removed) == (PlanAction.REPLACE, 8)
        assert [(change.path, change.before) for change in logical.change.changes] == [("gpus", 8)]
        assert [entry.delete for entry in run.generator.list_remaining_entries()] == [
            not is_gone,
            False,
        ]
        ops = run.ops(build_goal("b", size=1, opt_deleted_with=A))
        assert ops == [("create-replacement", "b"), ("replace", "b")]

    def test_reading_a_resource_pending_replacement_deletes_nothing(self):
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        b = build_entry("b", inputs={"rack": "of-a"}, **uses)
        run = build_run(build_entry("a", inputs={"slot": 1}), b)
        deletion = run.steps(build_goal("a", slot=2))[0]
        first, _ = self.steps(run, read("b", "m-2"))
        assert first.after is deletion
        assert [
            (entry.delete, entry.pending_replacement)
            for entry in run.generator.list_remaining_entries()
        ] == [
            (False, False),
            (False, True),
        ]

    def test_a_read_dependent_of_a_replaced_resource_is_not_deleted(self):
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        b = build_entry("b", inputs={"rack": "of-a"}, **uses)
        run = build_run(build_entry("a", inputs={"slot": 1}), b)
        self.steps(run, read("b", "id-b"))
        assert run.ops(build_goal("a", slot=2))[0] == ("delete-replaced", "a")

    def test_a_deleted_dependent_that_is_now_read_is_read_after_its_deletion(self):
        uses = {"dependencies": [A], "property_dependencies": {"rack": [A]}}
        b = build_entry("b", inputs={"rack": "of-a"}, **uses)
        run = build_run(build_entry("a", inputs={"slot": 1}), b)
        deletion = run.steps(build_goal("a", slot=2))[0]
        (step,) = self.steps(run, read("b", "id-b"))
        assert (step.op, step.after) == (Op.READ, deletion)
        other = build_run(build_entry("a", inputs={"slot": 1}), b, selection=targets("a", "b"))
        other.steps(build_goal("a", slot=2))
        other.steps(build_goal("x", size=1))
        (step,) = self.steps(other, read("b", "id-b", dependencies=(build_urn("x"),)))
        assert (step.op, step.old, step.skipped) == (Op.SAME, None, True)

    @pytest.mark.parametrize("preview", [True, False])
    def test_an_unknown_id_is_read_only_in_a_preview(self, preview: bool):
        (step,) = self.steps(build_run(preview=preview), read("a", UNKNOWN_TEXT))
        assert (step.op, step.skipped) == ((Op.READ, False) if preview else (Op.SAME, True))

    def test_a_read_that_depends_on_a_skipped_resource_is_an_error(self):
        run = build_run(build_entry("b", external=True), selection=targets("b"))
        run.steps(build_goal("a", size=1))
        (step,) = self.steps(run, read("b", "m-1", dependencies=(A,)))
        assert (step.op, step.skipped) == (Op.SAME, False)
        (step,) = self.steps(run, read("c", "m-1", dependencies=(A,)))
        assert (step.op, step.skipped) == (Op.SAME, True)

    def test_a_read_in_a_cycle_with_an_untargeted_resource_is_an_error(self):
        run = build_run(
            build_entry("a", external=True),
            build_entry("b", dependencies=[A]),
            selection=targets("a"),
        )
        run.steps(build_goal("b", size=1))
        (step,) = self.steps(run, read("a", "m-9", dependencies=(B,)))
        assert (step.op, step.skipped) == (Op.SAME, False)


class TestRefreshAndDestroyWithProgram:
    """A program that is run for a refresh or a destroy changes no resource."""

    @pytest.mark.parametrize("holding", ["refresh", "destroy"])
    def test_a_new_resource_is_not_created(self, holding: Any):
        run = build_run(run_program_operation=holding)
        (step,) = run.steps(build_goal("a", size=1))
        assert (step.op, step.old, step.skipped) == (Op.SAME, None, True)
        assert step.new is not None
        assert (step.urn, step.new.urn) == (A, A)
        assert run.host.checks == []

    @pytest.mark.parametrize("holding", ["refresh", "destroy"])
    def test_components_and_providers_are_created(self, holding: Any):
        run = build_run(run_program_operation=holding)
        assert run.ops(build_goal("a", custom=False)) == [("create", "a")]
        assert run.ops(build_goal("p", "pulumi:providers:lab")) == [("create", "p")]

    def test_a_refresh_reads_a_resource_when_it_is_declared(self):
        old = build_entry("a")
        (step,) = build_run(old, run_program_operation="refresh").steps(build_goal("a", size=9))
        assert (step.op, step.urn, step.result_op) == (Op.REFRESH, A, Op.SAME)
        assert step.old is old
        assert step.new is old

    def test_a_refresh_of_targets_leaves_the_others(self):
        run = build_run(
            build_entry("a"),
            build_entry("b"),
            run_program_operation="refresh",
            selection=targets("b"),
        )
        assert run.ops(build_goal("a", size=9)) == [("same", "a")]
        assert run.ops(build_goal("b", size=9)) == [("refresh", "b")]

    def test_a_refresh_reads_a_provider_before_its_step(self):
        type_ = "pulumi:providers:lab"
        run = build_run(build_entry("p", type_), run_program_operation="refresh")
        assert run.ops(build_goal("p", type_, size=1)) == [("refresh", "p"), ("same", "p")]
        run = build_run(build_entry("p", type_), run_program_operation="destroy")
        assert run.ops(build_goal("p", type_, size=1)) == [("same", "p")]

    def test_a_destroy_uses_the_options_of_the_program(self):
        old = build_entry("a", external=True, pending_replacement=True)
        run = build_run(old, run_program_operation="destroy")
        (step,) = run.steps(build_goal("a", size=9, opt_retain_on_delete=True))
        assert (step.op, step.urn, step.old) == (Op.SAME, A, old)
        held = run.generator.destroy_goals[old.urn]
        assert held is step.new
        assert held.retain_on_delete
        assert (held.inputs, held.external, held.pending_replacement) == ({"size": 1}, True, True)

    @pytest.mark.parametrize(("holding", "op"), [("refresh", "refresh"), ("destroy", "same")])
    def test_dependents_of_a_resource_that_is_not_created_are_skipped(self, holding: Any, op: str):
        old = build_entry("b")
        run = build_run(old, run_program_operation=holding)
        run.steps(build_goal("a", size=1))
        assert run.ops(build_goal("b", size=1, opt_dependencies=[A])) == [(op, "b")]
        assert run.generator.destroy_goals == {}
        third = run.steps(build_goal("c", custom=False, opt_dependencies=[B]))
        assert [step.skipped for step in third] == [holding == "destroy"]

    def test_children_of_a_renamed_untargeted_parent_are_untargeted(self):
        child = build_entry("c", parent=A)
        run = build_run(build_entry("a"), child, run_program_operation="destroy")
        run.steps(build_goal("x", size=1))
        run.steps(
            build_goal(
                "b",
                size=1,
                opt_aliases=(Alias(urn=A),),
                opt_protect=True,
                opt_dependencies=[build_urn("x")],
            )
        )
        run.steps(build_goal("c", size=1, opt_parent=A))
        assert run.generator.destroy_goals[child.urn].protect
