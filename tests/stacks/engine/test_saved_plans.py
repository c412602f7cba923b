"""Test saved plans: a plan is valid for its basis only, and a run may do less but never more."""

import pytest
from support.stacks.lab_plans import apply_plan, expect_no_change, find_refusals, save_plan

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import PendingOperation

M = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::"
STACK = "urn:pulumi:dev::lab::pulumi:pulumi:Stack::lab-dev"
TWO = """
a = Machine('a', size={0})
b = Machine('b', size=2, uses=a.address)
pulumi.export('b', b.address)
"""


def test_an_applied_plan_creates_the_planned_resources(lab):
    program = TWO.format(1)
    outcome = apply_plan(lab, save_plan(lab, program), program)
    assert outcome.succeeded
    assert outcome.changes == {"create": 3}
    assert len(lab.platform_objects) == 2


def test_an_applied_plan_makes_every_kind_of_change(lab):
    lab.up(
        """
        Machine('up', size=1)
        Machine('first', rack='r1')
        Machine('last', slot='s1')
        gone = Machine('gone')
        Machine('kept', opts=ResourceOptions(retain_on_delete=True))
        Machine('user', slot='s1', uses=gone.address)
        """
    )
    program = """
    Machine('up', size=2)
    Machine('first', rack='r2')
    Machine('last', slot='s2')
    g = pulumi.ComponentResource('lab:index:Group', 'g')
    Machine('new', opts=ResourceOptions(parent=g))
    Machine('user', slot='s2')
    """
    outcome = apply_plan(lab, save_plan(lab, program), program)
    assert outcome.succeeded, lab.errors
    assert outcome.effects == {
        f"{M}up": {"update"},
        f"{M}first": {"replace", "delete"},
        f"{M}last": {"replace", "delete"},
        f"{M}gone": {"delete"},
        f"{M}kept": {"forget"},
        f"{M}user": {"replace", "delete"},
        "urn:pulumi:dev::lab::lab:index:Group::g": {"create"},
        M.replace("lab::", "lab::lab:index:Group$") + "new": {"create"},
    }


def test_an_empty_plan_changes_nothing(lab):
    program = TWO.format(1)
    lab.up(program)
    outcome = apply_plan(lab, save_plan(lab, program), program)
    assert outcome.succeeded
    assert not outcome.has_changes


def test_a_plan_can_be_applied_once(lab):
    program = TWO.format(1)
    bound = save_plan(lab, program)
    apply_plan(lab, bound, program)
    with expect_no_change(lab):
        assert f"state of {M}a is new since the plan" in find_refusals(lab, bound, program)


def test_a_plan_cannot_be_applied_again_after_a_partial_run(lab):
    program = "Machine('a', size=1)\nMachine('b', refuse='create')"
    bound = save_plan(lab, program)
    assert not apply_plan(lab, bound, program, parallel=1).succeeded
    with expect_no_change(lab):
        assert any("since the plan" in reason for reason in find_refusals(lab, bound, program))


@pytest.mark.parametrize(
    ("meanwhile", "moved"),
    [
        (TWO.format(5), [f"state of {M}a changed"]),
        (TWO.format(1) + "Machine('c')", [f"state of {M}c is new"]),
        ("a = Machine('a', size=1)", [f"state of {M}b was deleted"]),
        (
            TWO.format(1).replace("size=2", "size=2, opts=ResourceOptions(protect=True)"),
            [f"state of {M}b changed"],
        ),
    ],
)
def test_a_plan_is_stale_after_another_run_changed_the_state(lab, meanwhile, moved):
    lab.up(TWO.format(1))
    bound = save_plan(lab, TWO.format(3))
    lab.up(meanwhile)
    with expect_no_change(lab):
        reasons = find_refusals(lab, bound, TWO.format(3))
    assert reasons == [f"{change} since the plan" for change in moved]


@pytest.mark.parametrize("properties", [{"size": 9}, None])
def test_a_plan_is_stale_after_a_refresh_found_drift(lab, properties):
    lab.up(TWO.format(1))
    bound = save_plan(lab, TWO.format(3))
    lab.change_platform_object(lab.state("a").id, properties)
    lab.run("refresh", TWO.format(1))
    how = "changed" if properties else "was deleted"
    with expect_no_change(lab):
        assert f"state of {M}a {how} since the plan" in find_refusals(lab, bound, TWO.format(3))


def test_a_plan_is_stale_if_a_refresh_changed_a_used_output(lab):
    program = "a = Machine('a', size=1)\nMachine('b', uses=a.address)\n"
    lab.up(program)
    bound = save_plan(lab, program + "Machine('c')")
    lab.change_platform_object("m-1", {"address": "10.1.1.1"})
    lab.run("refresh", program)
    with expect_no_change(lab):
        reasons = find_refusals(lab, bound, program + "Machine('c')")
    assert reasons == [f"program: {M}b declares different inputs: uses"]


def test_a_plan_is_stale_with_a_new_pending_operation(lab):
    lab.up(TWO.format(1))
    bound = save_plan(lab, TWO.format(3))
    lab.snapshot.pending_operations.append(PendingOperation(lab.state("a"), "updating"))
    assert find_refusals(lab, bound, TWO.format(3)) == [f"state of {M}a changed since the plan"]


def test_a_plan_stays_valid_after_runs_without_changes(lab):
    program = TWO.format(1) + "Machine('c', token=pulumi.Output.secret('hunter2'), lazy=1)\n"
    lab.up(program)
    bound = save_plan(lab, TWO.format(3))
    lab.up("\n\n" + program)
    lab.run("refresh", program)
    lab.up("# moved\n" * 5 + program)
    assert find_refusals(lab, bound, TWO.format(3)) == []


@pytest.mark.parametrize(
    ("config", "secret", "moved"),
    [
        ({"lab:gpus": "16"}, [], "configuration key lab:gpus changed"),
        ({}, [], "configuration key lab:gpus was removed"),
        ({"lab:gpus": "8", "lab:more": ""}, [], "configuration key lab:more was added"),
        ({"lab:gpus": "8"}, ["lab:gpus"], "configuration key lab:gpus changed"),
    ],
)
def test_a_plan_is_stale_after_a_configuration_change(lab, config, secret, moved):
    lab.config = {"lab:gpus": "8"}
    bound = save_plan(lab, TWO.format(1))
    lab.config, lab.secret_keys = config, secret
    with expect_no_change(lab):
        assert find_refusals(lab, bound, TWO.format(1)) == [f"{moved} since the plan"]


@pytest.mark.parametrize(
    ("program", "moved"),
    [
        ("Machine('a', size=2)", f"{M}a declares different inputs: size"),
        ("Machine('a', size=True)", f"{M}a declares different inputs: size"),
        ("Machine('a', size='1')", f"{M}a declares different inputs: size"),
        ("Machine('a', size=pulumi.Output.secret(1))", f"{M}a declares different inputs: size"),
        ("Machine('a')", f"{M}a declares different inputs: size"),
        ("Machine('a', size=1, rack='r')", f"{M}a declares different inputs: rack"),
        ("Machine('a', size=1)\nMachine('c')", f"{M}c is newly declared"),
        ("", f"{M}a is no longer declared"),
        (
            "Machine('a', size=1, opts=ResourceOptions(protect=True))",
            f"{M}a declares different options: protect",
        ),
        (
            "Machine('a', rack=1, opts=ResourceOptions(retain_on_delete=True))",
            f"{M}a declares different inputs: rack, size and options: retain_on_delete",
        ),
        ("Machine('a', size=1)\npulumi.export('n', 1)", f"{STACK} declares different outputs"),
    ],
)
def test_a_plan_is_stale_after_a_program_change(lab, program, moved):
    lab.up("Machine('a', size=0)")
    bound = save_plan(lab, "Machine('a', size=1)")
    with expect_no_change(lab):
        assert f"program: {moved}" in find_refusals(lab, bound, program)


def test_a_changed_secret_input_makes_a_plan_stale(lab):
    program = "Machine('a', token=pulumi.Output.secret('{0}'))"
    bound = save_plan(lab, program.format("hunter2"))
    assert find_refusals(lab, bound, program.format("hunter3")) == [
        f"program: {M}a declares different inputs: token"
    ]
    assert find_refusals(lab, bound, program.format("hunter2")) == []


def test_changed_provider_code_makes_a_plan_stale(lab):
    program = """
    class Own(pulumi.dynamic.ResourceProvider):
        def create(self, props):
            return pulumi.dynamic.CreateResult({0!r}, {{}})

    class Thing(pulumi.dynamic.Resource):
        def __init__(self, name):
            super().__init__(Own(), name, {{}})

    Thing('a')
    """
    bound = save_plan(lab, program.format("1"))
    assert find_refusals(lab, bound, program.format("1")) == []
    (moved,) = find_refusals(lab, bound, program.format("2"))
    assert moved.endswith("::a declares different inputs: its provider's code")


def test_all_changes_since_a_plan_are_reported_together(lab):
    program = "for name in 'abc': Machine(name, size={0})"
    lab.up(program.format(1))
    bound = save_plan(lab, program.format(2))
    lab.up(program.format(3))
    lab.config = {"lab:new": "1"}
    assert len(find_refusals(lab, bound, program.format(2))) == 4


def test_a_plan_stays_valid_in_another_registration_order(lab):
    lines = [
        "Machine('a', size=1, rack='r')",
        "Machine('b')",
        "Machine('c', more={'x': 1, 'y': 2})",
    ]
    bound = save_plan(lab, "\n".join(lines))
    other = [lines[1], "Machine('c', more={'y': 2, 'x': 1})", "Machine('a', rack='r', size=1)"]
    outcome = apply_plan(lab, bound, "\n".join(other))
    assert outcome.succeeded


def test_another_passphrase_makes_a_plan_stale(lab):
    bound = save_plan(lab, TWO.format(1))
    lab.crypter = PassphraseCrypter.create_new("another")
    assert find_refusals(lab, bound, TWO.format(1)) == ["the passphrase of the stack changed"]
