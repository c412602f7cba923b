"""Test that features only the Pulumi CLI supports are refused by name before any operation."""

import pytest

AWS = "pulumi.CustomResource('aws:s3/bucket:Bucket', 'logs', {})\n"
HOOKS = "pulumi.ResourceHookBinding"
ERROR_HOOK = "pulumi.ErrorHook('again', lambda args: True)"

# What the program asks for, and how the refusal names it; all of it stands in line 5.
ASKED = {
    "resource": (AWS, "resource 'logs' is of package 'aws' (aws:s3/bucket:Bucket)"),
    "resource that depends on ours": (
        "pulumi.CustomResource('aws:s3/bucket:Bucket', 'logs', {'address': first.address})",
        "resource 'logs' is of package 'aws'",
    ),
    "read of a resource": (
        "pulumi.CustomResource('aws:s3/bucket:Bucket', 'logs', {}, ResourceOptions(id='b-1'))",
        "resource 'logs' is of package 'aws'",
    ),
    "stash": (
        "pulumi.CustomResource('pulumi:index:Stash', 'kept', {})",
        "resource 'kept' is of package 'pulumi'",
    ),
    "remote component": (
        "pulumi.ComponentResource('awsx:ec2:Vpc', 'net', {}, remote=True)",
        "resource 'net' is a remote component of package 'awsx' (awsx:ec2:Vpc)",
    ),
    "provider": (
        "pulumi.ProviderResource('aws', 'east', {})",
        "resource 'east' is an explicit provider (pulumi:providers:aws)",
    ),
    "our own provider": (
        "pulumi.ProviderResource('pulumi-python', 'mine', {})",
        "resource 'mine' is an explicit provider",
    ),
    "transforms": (
        "Machine('b', opts=ResourceOptions(transforms=[lambda args: None]))",
        "resource 'b' uses transforms",
    ),
    "state migrations": (
        "Machine('b', opts=ResourceOptions(state_migrations=[lambda args: None]))",
        "resource 'b' uses state_migrations",
    ),
    "hooks": (
        f"Machine('b', opts=ResourceOptions(hooks={HOOKS}(after_create=[lambda args: None])))",
        "resource 'b' uses hooks",
    ),
    "error hooks": (
        f"Machine('b', opts=ResourceOptions(hooks={HOOKS}(on_error=[{ERROR_HOOK}])))",
        "resource 'b' uses hooks",
    ),
    "stack transform": (
        "pulumi.runtime.register_stack_transform(lambda args: None)",
        "the program calls pulumi.runtime.register_stack_transform",
    ),
    "resource transform": (
        "pulumi.runtime.register_resource_transform(lambda args: None)",
        "the program calls pulumi.runtime.register_resource_transform",
    ),
    "invoke transform": (
        "pulumi.runtime.register_invoke_transform(lambda args: None)",
        "the program calls pulumi.runtime.register_invoke_transform",
    ),
    "function": (
        "pulumi.runtime.invoke('aws:ec2/getAmi:getAmi', {})",
        "the program calls aws:ec2/getAmi:getAmi",
    ),
    "function of outputs": (
        "pulumi.runtime.invoke_output('aws:ec2/getAmi:getAmi', {'name': first.address})",
        "the program calls aws:ec2/getAmi:getAmi",
    ),
    "method": (
        "pulumi.runtime.call('k8s:index:Cluster/getKubeconfig', {}, first)",
        "the program calls k8s:index:Cluster/getKubeconfig",
    ),
}


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
@pytest.mark.parametrize("what", ASKED)
def test_an_unsupported_feature_is_refused_with_its_line_before_any_request(lab, what, preview):
    asked, named = ASKED[what]
    outcome = lab.run("update", f"first = Machine('a')\n{asked}\nMachine('z')\n", preview=preview)
    assert not outcome.succeeded
    (error,) = lab.errors
    assert error.startswith(f"__main__.py:5: {named}"), error
    assert "pulumi up" in error
    assert (lab.calls, lab.steps, lab.platform_objects) == ([], [], {})


def test_all_unsupported_features_are_reported_together(lab):
    lab.preview("for n in range(12):\n    pulumi.CustomResource('aws:s3:Bucket', f'b{n}', {})\n")
    (error,) = lab.errors
    assert "resource 'b0'" in error
    assert "resource 'b9'" in error
    assert "resource 'b10'" not in error
    assert "and 2 more" in error


def test_a_refusal_cannot_be_caught_by_the_program(lab):
    lab.up("Machine('a')\n")
    program = (
        "Machine('b')\ntry:\n    pulumi.runtime.invoke('aws:index:getRegion', {})\n"
        "except Exception:\n    pass\n"
    )
    assert not lab.up(program).succeeded
    assert "aws:index:getRegion" in lab.errors[0]
    assert (lab.names, lab.calls) == (["a"], [])


def test_a_refusal_in_a_module_has_the_programs_line(lab):
    (lab.directory / "storage").mkdir()
    (lab.directory / "storage" / "__init__.py").write_text(
        "import pulumi\n\n\nclass Store(pulumi.ComponentResource):\n"
        "    def __init__(self, name):\n"
        "        super().__init__('my:index:Store', name)\n"
        "        pulumi.CustomResource('aws:s3:Bucket', name, {}, pulumi.ResourceOptions(self))\n"
    )
    lab.preview("from storage import Store\nStore('logs')\n")
    (error,) = lab.errors
    assert error.startswith("storage/__init__.py:7: resource 'logs' is of package 'aws'")


def test_a_refusal_inside_of_apply_stops_the_run_and_keeps_created_resources(lab):
    program = f"a = Machine('a')\na.address.apply(lambda _: {AWS.strip()})\n"
    assert lab.preview(program).succeeded  # nobody knows the address yet
    assert not lab.up("old = Machine('old')\n" + program).succeeded
    assert "is of package 'aws'" in lab.errors[0]
    lab.up("Machine('old')\nMachine('a')\n")
    assert not lab.up(program).succeeded
    assert "is of package 'aws'" in lab.errors[0]
    assert sorted(lab.names) == ["a", "old"]
    assert sorted(lab.platform_objects) == ["m-1", "m-2"]


def test_unsupported_options_added_by_a_transformation_are_refused(lab):
    program = (
        "def hooked(args):\n"
        "    args.opts.transforms = [lambda args: None]\n"
        "    return pulumi.ResourceTransformationResult(args.props, args.opts)\n"
        "Machine('a', opts=ResourceOptions(transformations=[hooked]))\n"
    )
    assert not lab.up(program).succeeded
    assert "resource 'a' uses transforms" in lab.errors[0]
    assert lab.platform_objects == {}


def test_supported_features_are_not_refused(lab):
    program = """
        def larger(args):
            return pulumi.ResourceTransformationResult({**args.props, "size": 2}, args.opts)
        pulumi.runtime.register_stack_transformation(larger)
        class Rack(pulumi.ComponentResource):
            def __init__(self, name, opts=None):
                super().__init__("my:index:Rack", name, None, opts)
        rack = Rack("r")
        hooks = pulumi.ResourceHookBinding()
        aliases = [pulumi.Alias(name="x")]
        Machine("a", opts=ResourceOptions(parent=rack, aliases=aliases, hooks=hooks))
        pulumi.ResourceHook("unused", lambda args: None)
    """
    assert lab.up(program).succeeded, lab.errors
    assert lab.state("a").inputs["size"] == 2
