"""The step rules, one behaviour at a time: real programs, and a provider that keeps books."""

import asyncio

import pytest
from pulumi.runtime import stack

from gpuform.providers.values import UNKNOWN, Secret
from gpuform.schemas.plan import PlanReason


def test_a_new_resource_is_created_and_then_unchanged(lab):
    program = "a = Machine('a', size=1)\npulumi.export('address', a.address)\n"
    preview = lab.preview(program)
    assert lab.steps == [("create", "a")]
    assert preview.outputs["address"] is UNKNOWN
    assert lab.platform_objects == {}
    created = lab.up(program)
    assert created.succeeded
    assert created.outputs == {"address": "10.0.0.1"}
    assert lab.platform_objects == {"m-1": {"size": 1}}
    assert not lab.preview(program).has_changes
    again = lab.up(program)
    assert lab.steps == [("same", "a")]
    assert again.changes == {"same": 2}


def test_a_changed_property_is_updated_in_place(lab):
    lab.up("Machine('a', size=1)")
    preview = lab.preview("Machine('a', size=2)")
    (change,) = [c for c in preview.planned if c.name == "a"]
    assert [(c.path, c.before, c.after) for c in change.changes] == [("size", 1, 2)]
    lab.up("Machine('a', size=2)")
    assert lab.steps == [("update", "a")]
    assert lab.platform_objects == {"m-1": {"size": 2}}
    assert lab.state("a").id == "m-1"


def test_a_replacement_creates_first_unless_the_provider_deletes_first(lab):
    program = "a = Machine('a', rack={!r})\nMachine('b', uses=a.address)\n"
    lab.up(program.format("x"))
    lab.preview(program.format("y"))
    assert lab.steps == [
        ("create-replacement", "a"),
        ("replace", "a"),
        ("update", "b"),
        ("delete-replaced", "a"),
    ]
    outcome = lab.up(program.format("y"))
    assert [c["verb"] for c in lab.calls if c["verb"] != "check"] == ["create", "update", "delete"]
    assert outcome.changes == {"same": 1, "replace": 1, "update": 1}
    assert sorted(lab.platform_objects) == ["m-2", "m-3"]
    assert sorted(lab.names) == ["a", "b"]


def test_a_delete_first_replacement_replaces_dependents(lab):
    program = (
        "a = Machine('a', slot={!r})\n"
        "Machine('replaced', rack=a.address)\n"
        "Machine('updated', uses=a.address)\n"
        "Machine('ordered', opts=ResourceOptions(depends_on=[a]))\n"
    )
    lab.up(program.format("x"))
    lab.preview(program.format("y"))
    planned = lab.steps
    lab.up(program.format("y"))
    assert sorted(lab.steps) == sorted(planned)
    assert lab.steps[:4] == [
        ("delete-replaced", "replaced"),
        ("delete-replaced", "a"),
        ("replace", "a"),
        ("create-replacement", "a"),
    ]
    assert ("create-replacement", "replaced") in lab.steps
    assert ("update", "updated") in lab.steps
    assert ("same", "ordered") in lab.steps
    assert len(lab.platform_objects) == 4


def test_a_plan_has_the_reason_of_a_replacement(lab):
    program = "a = Machine('a', slot={!r})\nMachine('b', rack=a.address)\n"
    lab.up(program.format("x"))
    planned = {c.name: c for c in lab.preview(program.format("y")).planned}
    assert planned["a"].reason is PlanReason.FIELD_FORCES_REPLACEMENT
    assert planned["a"].replace_paths == ("slot",)
    assert planned["b"].reason is PlanReason.DEPENDENCY_REPLACED


def test_delete_before_replace_overrides_the_order_of_a_replacement(lab):
    program = "Machine('a', rack={!r}, opts=ResourceOptions(delete_before_replace=True))"
    lab.up(program.format("x"))
    lab.up(program.format("y"))
    assert [c["verb"] for c in lab.calls if c["verb"] != "check"] == ["delete", "create"]


def test_a_replacement_whose_create_fails_is_finished_by_the_next_run(lab):
    lab.up("Machine('a', slot='x')")
    failed = lab.up("Machine('a', slot='y', refuse='create')")
    assert not failed.succeeded
    assert lab.state("a").pending_replacement
    lab.up("Machine('a', slot='y')")
    assert lab.steps == [("replace", "a"), ("create-replacement", "a")]
    assert [c["verb"] for c in lab.calls if c["verb"] != "check"] == ["create"]
    assert not lab.state("a").pending_replacement
    assert list(lab.platform_objects) == ["m-2"]


def test_an_undeclared_resource_pending_replacement_is_forgotten_without_a_call(lab):
    lab.up("Machine('a', slot='x')")
    lab.up("Machine('a', slot='y', refuse='create')")
    assert lab.up("").succeeded
    assert lab.names == []
    assert [c for c in lab.calls if c["verb"] == "delete"] == []


def test_undeclared_resources_are_deleted_dependents_first(lab):
    lab.up("a = Machine('a')\nb = Machine('b', uses=a.address)\nMachine('c', uses=b.address)\n")
    outcome = lab.up("Machine('d')")
    assert lab.steps == [("create", "d"), ("delete", "c"), ("delete", "b"), ("delete", "a")]
    assert outcome.changes == {"same": 1, "create": 1, "delete": 3}
    assert list(lab.platform_objects) == ["m-4"]


def test_destroy_deletes_everything_without_running_the_program(lab):
    lab.up("a = Machine('a')\nMachine('b', uses=a.address)\n")
    outcome = lab.run("destroy", "raise Exception('not run')")
    assert outcome.succeeded
    assert lab.steps == [("delete", "b"), ("delete", "a")]
    assert lab.snapshot.resources == []
    assert lab.platform_objects == {}


def test_a_failed_delete_is_retried_by_the_next_run(lab):
    lab.up("Machine('a', rack='x', refuse='delete')")
    assert not lab.up("Machine('a', rack='y')").succeeded
    assert [r.delete for r in lab.snapshot.resources if "Machine" in r.urn] == [False, True]
    assert not lab.up("Machine('a', rack='y')").succeeded
    assert ("delete-replaced", "a") in lab.failures
    assert sorted(lab.platform_objects) == ["m-1", "m-2"]


def test_a_failed_create_saves_nothing_and_starts_no_dependents(lab):
    program = "a = Machine('a')\nb = Machine('b', uses=a.address{})\nMachine('c', uses=b.address)\n"
    outcome = lab.up(program.format(", refuse='create'"))
    assert not outcome.succeeded
    assert lab.names == ["a"]
    assert outcome.snapshot.pending_operations == []
    assert "no machine today" in lab.errors[0]
    assert lab.up(program.format("")).succeeded
    assert sorted(lab.names) == ["a", "b", "c"]


def test_a_failed_update_keeps_the_old_state(lab):
    lab.up("Machine('a', size=1)")
    assert not lab.up("Machine('a', size=2, refuse='update')").succeeded
    assert lab.state("a").inputs["size"] == 1
    lab.up("Machine('a', size=2)")
    assert lab.steps == [("update", "a")]


def test_a_failing_program_deletes_nothing_and_keeps_outputs(lab):
    lab.up("Machine('a')\nMachine('b')\npulumi.export('x', 1)\n")
    outcome = lab.up("Machine('c')\nraise ValueError('stop here')\n")
    assert not outcome.succeeded
    assert {"a", "b"} <= set(lab.names)
    assert outcome.outputs["x"] == 1
    assert "ValueError: stop here" in lab.errors[-1]
    assert "step_executor" not in lab.errors[-1]


def test_all_check_failures_are_reported_together_and_stop_dependents(lab):
    program = "a = Machine('a', size=-1)\nMachine('b', size=-1)\nMachine('c', uses=a.address)\n"
    outcome = lab.preview(program)
    assert not outcome.succeeded
    assert len(lab.errors) == 2
    assert all(
        "property size value -1 has a problem: must not be negative" in e for e in lab.errors
    )
    assert [c["news"].get("uses") for c in lab.calls if c["verb"] == "check"] == [None, None]


def test_a_protected_resource_is_not_deleted(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True))")
    assert not lab.up("").succeeded
    assert "protect" in lab.errors[0]
    assert not lab.run("destroy").succeeded
    assert not lab.preview("Machine('a', rack='z', opts=ResourceOptions(protect=True))").succeeded
    assert list(lab.platform_objects) == ["m-1"]
    assert lab.up("Machine('a')").succeeded
    assert lab.up("").succeeded
    assert lab.platform_objects == {}


def test_protect_is_inherited_from_a_component(lab):
    program = (
        "protected = ResourceOptions(protect=True)\n"
        "group = pulumi.ComponentResource('lab:index:Group', 'g', {}, protected)\n"
        "Machine('a', opts=ResourceOptions(parent=group))\n"
    )
    lab.up(program)
    assert lab.state("a").protect


def test_retain_on_delete_keeps_the_object_and_removes_the_entry(lab):
    lab.up("Machine('a', opts=ResourceOptions(retain_on_delete=True))")
    assert lab.up("").succeeded
    assert lab.names == []
    assert list(lab.platform_objects) == ["m-1"]


def test_an_ignored_change_keeps_the_old_input(lab):
    lab.up("Machine('a', size=1, labels={'x': 1, 'y': 1})")
    options = "opts=ResourceOptions(ignore_changes=['size', 'labels.x'])"
    lab.up(f"Machine('a', size=2, labels={{'x': 2, 'y': 2}}, {options})")
    assert lab.platform_objects["m-1"] == {"size": 1, "labels": {"x": 1, "y": 2}}


def test_inputs_are_compared_if_the_provider_has_no_diff(lab):
    lab.up("Machine('a', lazy=True, size=1)")
    assert not lab.preview("Machine('a', lazy=True, size=1)").has_changes
    lab.up("Machine('a', lazy=True, size=2)")
    assert lab.steps == [("update", "a")]
    options = "opts=ResourceOptions(replace_on_changes=['size'])"
    lab.preview(f"Machine('a', lazy=True, size=3, {options})")
    assert ("replace", "a") in lab.steps


def test_an_alias_renames_a_resource_without_a_change(lab):
    lab.up("a = Machine('a')\nMachine('b', uses=a.address)\n")
    program = (
        "a = Machine('new', opts=ResourceOptions(aliases=[pulumi.Alias(name='a')]))\n"
        "Machine('b', uses=a.address)\n"
    )
    assert not lab.preview(program).has_changes
    assert not lab.up(program).has_changes
    assert sorted(lab.names) == ["b", "new"]
    assert lab.state("b").dependencies == [lab.state("new").urn]


def test_a_type_alias_moves_a_resource_from_the_plugin_form(lab):
    lab.up("Machine('a')")
    state = lab.state("a")
    state.urn = state.urn.replace("pulumi-python:dynamic/lab:Machine", "lab:index:Machine")
    state.type = "lab:index:Machine"
    alias = "opts=ResourceOptions(aliases=[pulumi.Alias(type_='lab:index:Machine')])"
    assert not lab.up(f"Machine('a', {alias})").has_changes
    assert lab.state("a").id == "m-1"


def test_a_duplicate_urn_is_an_error_with_both_lines(lab):
    outcome = lab.preview("Machine('a')\nMachine('a')\n")
    assert not outcome.succeeded
    assert "__main__.py:4" in lab.errors[0]
    assert "__main__.py:5" in lab.errors[0]


def test_components_have_children_and_outputs(lab):
    program = """
        class Group(pulumi.ComponentResource):
            def __init__(self, name, size):
                super().__init__("lab:index:Group", name, {})
                self.machine = Machine("inner", size=size, opts=ResourceOptions(parent=self))
                self.register_outputs({"address": self.machine.address})

        group = Group("g", 1)
        pulumi.export("address", group.machine.address)
        """
    outcome = lab.up(program)
    assert outcome.outputs == {"address": "10.0.0.1"}
    assert lab.state("g").outputs == {"address": "10.0.0.1"}
    assert lab.state("inner").parent == lab.state("g").urn
    assert "lab:index:Group$pulumi-python:dynamic/lab:Machine::inner" in lab.state("inner").urn
    assert not lab.up(program).has_changes


def test_secrets_are_encrypted_in_the_state_and_unwrapped_for_the_provider(lab):
    lab.config, lab.secret_keys = {"lab:token": "hush-hush"}, ["lab:token"]
    program = """
        token = pulumi.Config().require_secret("token")
        a = Machine("a", token=token, labels={"t": token}, size=1)
        pulumi.export("token", a.token if hasattr(a, "token") else token)
        """
    outcome = lab.up(program)
    assert lab.platform_objects["m-1"]["token"] == "hush-hush"
    assert outcome.outputs["token"] == Secret("hush-hush")
    assert lab.state("a").outputs["token"] == Secret("hush-hush")
    assert b"hush-hush" not in lab.written[-1]
    written = len(lab.written)
    assert not lab.up(program).has_changes
    assert len(lab.written) == written, "an unchanged stack is not written again"


def test_additional_secret_outputs_are_secret(lab):
    lab.up("Machine('a', opts=ResourceOptions(additional_secret_outputs=['address']))")
    assert lab.state("a").outputs["address"] == Secret("10.0.0.1")


def test_providers_get_numbers_as_floats_and_no_missing_values(lab):
    lab.up("Machine('a', size=1, nested={'n': 2, 'none': None}, nothing=None)")
    (create,) = [c for c in lab.calls if c["verb"] == "create"]
    assert create["props"] == {"size": 1, "nested": {"n": 2}}
    assert isinstance(create["props"]["size"], float)
    assert isinstance(create["props"]["nested"]["n"], float)


def test_program_output_and_logs_are_reported(lab):
    lab.up("print('hello')\npulumi.log.warn('careful')\npulumi.log.error('only words')\n")
    assert "hello" in lab.list_messages("info")
    assert "careful" in lab.list_messages("warning")
    assert lab.events[-1].result == "succeeded"


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("pulumi.CustomResource('aws:s3/bucket:Bucket', 'b', {})", "aws"),
        ("pulumi.runtime.invoke('aws:index:getRegion', {})", "aws:index:getRegion"),
    ],
)
def test_unsupported_features_are_refused_by_name_before_any_change(lab, program, named):
    outcome = lab.up(program)
    assert not outcome.succeeded
    assert any(named in e and "Pulumi CLI" in e for e in lab.errors), lab.errors
    assert lab.platform_objects == {}


def test_refresh_saves_the_outputs_of_the_platform(lab):
    program = "Machine('a', size=1)\nMachine('b', size=1)\n"
    lab.up(program)
    lab.change_platform_object("m-1", {"size": 7})
    outcome = lab.run("refresh")
    drifted = [c for c in outcome.planned if c.changes]
    assert [[(p.path, p.before, p.after) for p in c.changes] for c in drifted] == [[("size", 1, 7)]]
    assert outcome.changes == {"same": 2, "update": 1}
    lab.up(program)
    assert lab.platform_objects["m-1"] == {"size": 1}


def test_refresh_removes_missing_objects_and_references_to_them(lab):
    program = "a = Machine('a')\nMachine('b', uses=a.address)\n"
    lab.up(program)
    lab.change_platform_object("m-1", None)
    assert lab.run("refresh").changes == {"same": 2, "delete": 1}
    assert lab.names == ["b"]
    assert lab.state("b").property_dependencies == {}
    lab.up(program)
    assert ("create", "a") in lab.steps
    assert lab.state("b").property_dependencies["uses"] == [lab.state("a").urn]


def test_refresh_reads_objects_pending_deletion(lab):
    lab.up("Machine('a', rack='x', refuse='delete')")
    assert not lab.up("Machine('a', rack='y')").succeeded
    lab.change_platform_object("m-1", None)
    assert lab.run("refresh").changes == {"same": 2, "delete": 1}
    assert [r.delete for r in lab.snapshot.resources if "Machine" in r.urn] == [False]
    assert lab.up("Machine('a', rack='y')").succeeded
    assert list(lab.platform_objects) == ["m-2"]


def test_a_preview_of_a_refresh_changes_nothing(lab):
    program = "a = Machine('a')\nMachine('b', uses=a.address)\n"
    lab.up(program)
    lab.change_platform_object("m-1", None)
    written = len(lab.written)
    assert lab.run("refresh", preview=True).changes == {"same": 2, "delete": 1}
    assert len(lab.written) == written
    assert lab.preview(program, refresh=True).changes == {"same": 1, "create": 1, "update": 1}
    assert lab.names == ["a", "b"]


def test_an_update_with_refresh_reverts_drift_in_one_run(lab):
    lab.up("Machine('a', size=1)")
    lab.change_platform_object("m-1", {"size": 7})
    assert lab.preview("Machine('a', size=1)", refresh=True).has_changes
    assert lab.up("Machine('a', size=1)", refresh=True).changes == {"same": 1, "update": 1}
    assert lab.platform_objects["m-1"] == {"size": 1}


def test_a_missing_provider_module_is_an_error_with_its_name(lab):
    lab.up("Machine('a')")
    (lab.directory / "lab.py").unlink()
    assert not lab.run("destroy").succeeded
    assert "No module named 'lab'" in lab.errors[0]
    assert lab.names == ["a"]


ALIASED = "Machine({!r}, opts=ResourceOptions(aliases=[pulumi.Alias(name='a')]))\n"


@pytest.mark.parametrize(
    "program",
    [
        ALIASED.format("b") + "Machine('a')\n",
        "Machine('a')\n" + ALIASED.format("b"),
        ALIASED.format("b") + ALIASED.format("c"),
    ],
)
def test_an_object_claimed_by_two_resources_is_an_error(lab, program):
    lab.up("Machine('a')")
    assert not lab.preview(program).succeeded
    assert "alias" in lab.errors[0]
    assert not lab.up(program).succeeded
    assert [r.id for r in lab.snapshot.resources].count("m-1") == 1
    assert "m-1" in lab.platform_objects


def test_a_replaced_dependent_can_be_renamed_in_the_same_run(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address)\n")
    program = (
        "a = Machine('a', slot='y')\n"
        "Machine('c', rack=a.address, opts=ResourceOptions(aliases=[pulumi.Alias(name='b')]))\n"
    )
    lab.preview(program)
    planned = sorted(lab.steps)
    assert lab.up(program).succeeded
    assert sorted(lab.steps) == planned
    assert sorted(lab.names) == ["a", "c"]
    assert sorted(lab.platform_objects) == sorted([lab.state("a").id, lab.state("c").id])


def test_an_undeclared_dependent_of_a_replaced_resource_is_deleted_once(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address)\n")
    program = "Machine('a', slot='y')"
    lab.preview(program)
    planned = sorted(lab.steps)
    assert lab.up(program).succeeded
    assert sorted(lab.steps) == planned
    assert [c["id"] for c in lab.calls if c["verb"] == "delete"] == ["m-2", "m-1"]
    assert lab.names == ["a"]


def test_a_tainted_resource_is_replaced(lab):
    lab.up("Machine('a')")
    lab.state("a").taint = True
    assert lab.up("Machine('a')").changes == {"same": 1, "replace": 1}
    assert not lab.state("a").taint
    assert list(lab.platform_objects) == ["m-2"]


def test_a_declared_external_resource_is_created_and_the_read_object_kept(lab):
    lab.up("Machine('a')")
    lab.state("a").external = True
    assert lab.up("Machine('a')").succeeded
    assert not lab.state("a").external
    assert sorted(lab.platform_objects) == ["m-1", "m-2"]


def test_configuration_secrets_are_masked_in_messages(lab):
    lab.config, lab.secret_keys = {"lab:token": "hush-hush", "lab:n": "1"}, ["lab:token", "lab:n"]
    program = """
        token = pulumi.Config().require("token")
        print("the token is", token)
        raise ValueError(f"{token} is wrong 1 time")
        """
    assert not lab.up(program).succeeded
    assert "the token is [secret]" in lab.list_messages("info")
    assert "[secret] is wrong 1 time" in lab.errors[0]
    assert "hush-hush" not in str(lab.events)


def test_an_exported_resource_has_the_same_form_in_a_preview(lab):
    program = "pulumi.export('a', {'list': [Machine('a', size=1)]})"
    planned = lab.preview(program).outputs["a"]["list"][0]
    made = lab.up(program).outputs["a"]["list"][0]
    assert planned.keys() == made.keys()


def test_concurrent_prints_stay_whole_lines(lab):
    lab.up("""
        import threading

        def say(word):
            for _ in range(50):
                print(word, word)

        threads = [threading.Thread(target=say, args=(word,)) for word in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("the end", end="")
        """)
    assert sorted(lab.list_messages("info")) == ["one one"] * 50 + ["the end"] + ["two two"] * 50


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [0, 1, 3])
def test_many_resources_with_parallel_1_make_one_call_at_a_time(lab, parallel):
    program = """
        last = Machine("first")
        for i in range(40):
            made = Machine(f"a{i}", uses=last.address)
            last = made if i % 3 else last
        """
    assert lab.up(program, parallel=parallel).succeeded
    assert not lab.preview(program, parallel=parallel).has_changes
    assert lab.run("destroy", parallel=parallel).succeeded
    assert lab.platform_objects == {}


@pytest.mark.slow
def test_the_program_waits_once_for_all_outstanding_registrations(lab, monkeypatch):
    waits = []
    wait = asyncio.wait
    monkeypatch.setattr(asyncio, "wait", lambda *a, **kw: waits.append(1) or wait(*a, **kw))
    assert lab.up("for i in range(40):\n    Machine(f'a{i}')\n").succeeded
    assert len(waits) < 10
    assert stack.asyncio is asyncio


def test_a_protected_resource_pending_replacement_is_still_replaced(lab):
    lab.up("Machine('a', slot='x')")
    assert not lab.up("Machine('a', slot='y', refuse='create')").succeeded
    lab.state("a").protect = True
    assert lab.up("Machine('a', slot='y', opts=ResourceOptions(protect=True))").succeeded
    assert list(lab.platform_objects) == ["m-2"]
    assert lab.state("a").protect
