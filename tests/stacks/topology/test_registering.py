"""Test the registrations of topologies: the same as Python's, and secret where Python's are."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from support.stacks.state_comparison import normalize_export
from support.topologies.declarations import CLUSTER
from support.topologies.topology_planner import declare_cluster, declare_volume

URN = "urn:pulumi:dev::demo::a:b:C::x"
SECRET = "planted-in-4-test"
HEAD = f"""
import pulumi
from pulumi import Alias, CustomTimeouts, ResourceOptions
from gpuform.providers.together import Cluster, SharedVolume

def cluster(name, opts=None, **more):
    return Cluster(name, opts, **{{**{CLUSTER!r}, "cluster_name": name, **more}})

"""


def declare_entry(name: str, **more: str) -> str:
    return f"  {name}: {declare_cluster(cluster_name=name, **more)}\n"


def declare_each(name: str, for_each: str, **more: str) -> str:
    topology_yaml = declare_cluster(
        cluster_name=f'"{name}-{{{{ each.key }}}}"', for_each=for_each, **more
    )
    return f"  {name}: {topology_yaml}\n"


OPTIONS = {
    "protect: true, retain_on_delete: true": "protect=True, retain_on_delete=True",
    "delete_before_replace: false": "delete_before_replace=False",
    "ignore_changes: [num_gpus]": "ignore_changes=['num_gpus']",
    "replace_on_changes: [cluster_name]": "replace_on_changes=['cluster_name']",
    "depends_on: '{{ clusters.some }}'": "depends_on=some",
    "depends_on: ['{{ clusters.one }}', '{{ clusters.some.x }}']": "depends_on=[one, some[0]]",
    "parent: '{{ clusters.one }}'": "parent=one",
    "aliases: [{name: a}, {type: 'a:b:C'}]": "aliases=[Alias(name='a'), Alias(type_='a:b:C')]",
    "aliases: [{parent: '{{ clusters.one }}'}]": "aliases=[Alias(parent=one)]",
    f"aliases: [{{name: b, parent: '{URN}'}}]": f"aliases=[Alias(name='b', parent='{URN}')]",
    "deleted_with: '{{ clusters.one }}'": "deleted_with=one",
    "replace_with: ['{{ clusters.some.x }}']": "replace_with=[some[0]]",
    "replacement_trigger: {a: [1, '{{ clusters.one.id }}']}": (
        "replacement_trigger={'a': [1, one.id]}"
    ),
    "additional_secret_outputs: [status]": "additional_secret_outputs=['status']",
    "timeouts: {create: 45m, update: 10m, delete: 1h30m}": (
        "custom_timeouts=CustomTimeouts(create='45m', update='10m', delete='1h30m')"
    ),
}


@pytest.mark.slow
def test_options_are_those_of_pulumi(make_stack: Callable[[str], Any]) -> None:
    yaml = make_stack("yaml")
    yaml.write_topology(
        "clusters:\n"
        + "".join(
            declare_entry(f"train-{n}", options=f"{{{option}}}", num_gpus="8")
            for n, option in enumerate(OPTIONS)
        )
        + declare_entry("one")
        + declare_each("some", "[x, y]")
    )
    yaml.up()
    assert yaml.list_steps() == []
    program = make_stack("python")
    program.write_program(
        f"{HEAD}one = cluster('one')\nsome = [cluster('some-x'), cluster('some-y')]\n"
        + "".join(
            f"cluster('train-{n}', ResourceOptions({option}), num_gpus=8)\n"
            for n, option in enumerate(OPTIONS.values())
        )
    )
    program.up()
    assert len(program.names) == len(OPTIONS) + 3
    assert normalize_export(yaml.state) == normalize_export(program.state)


@pytest.mark.slow
def test_values_are_those_of_python(make_stack: Callable[[str], Any]) -> None:
    yaml = make_stack("yaml")
    yaml.write_topology(
        "config: {key: {secret: true, default: hidden}}\n"
        f"shared_volumes:\n  data: {declare_volume(for_each='[a]')}\n"
        "clusters:\n"
        + declare_entry("read", options="{id: '{{ clusters.one.id }}'}")
        + declare_entry("one", volume="'{{ shared_volumes.data.a }}'")
        + "  two: "
        + declare_cluster(
            for_each="{k: '{{ clusters.one.status }}'}",
            cluster_name='"x-{{ each.value | lower }}-{{ config.key | length }}"',
        )
        + "\noutputs: {a: '{{ clusters.read.status }}', b: ['{{ clusters.one.id }}', {c: null}]}\n"
    )
    yaml.up()
    python = make_stack("python")
    python.write_program(f"""{HEAD}
data = SharedVolume("data-a", volume_name="data", region="us-central-8", size_tib=5)
one = cluster("one", volume_id=data.id)
read = Cluster.get("read", one.id)
length = pulumi.Output.secret("hidden").apply(len)
status = one.status.apply(str.lower)
cluster("two-k", cluster_name=pulumi.Output.format("x-{{0}}-{{1}}", status, length))
pulumi.export("a", read.status)
pulumi.export("b", [one.id, {{"c": None}}])
""")
    python.up()
    assert yaml.names == python.names
    assert normalize_export(yaml.state) == normalize_export(python.state)


@pytest.mark.slow
def test_an_object_that_exists_is_imported(stack: Any) -> None:
    stack.write_topology("clusters:\n" + declare_entry("train"))
    stack.up()
    (state_entry,) = [
        r for r in stack.state["deployment"]["resources"] if r["urn"].endswith("::train")
    ]
    stack("state", "delete", "--yes", state_entry["urn"])
    stack.write_topology(
        "clusters:\n" + declare_entry("train", options=f"{{import: {state_entry['id']}}}")
    )
    assert stack.list_steps() == [("import", "train")]
    stack.up()
    stack.write_topology("clusters:\n" + declare_entry("train"))
    assert stack.list_steps() == []


@pytest.mark.slow
def test_only_what_changes_is_planned(stack: Any) -> None:
    topology_yaml = (
        "config: {gpus: {type: integer, default: 16}, on: {type: boolean, default: true}}\n"
        "clusters:\n"
        + declare_each("train", "{a: 1, b: 2}", num_gpus="'{{ config.gpus }}'")
        + declare_entry("more", when="'{{ config.on }}'")
    )
    stack.write_topology(topology_yaml)
    stack.up()
    assert stack.list_steps() == []
    stack("config", "set", "gpus", "24")
    assert stack.list_steps() == [("update", "train-a"), ("update", "train-b")]
    stack("config", "rm", "gpus")
    stack("config", "set", "on", "false")
    assert stack.list_steps() == [("delete", "more")]
    stack("config", "rm", "on")
    stack.write_topology(topology_yaml.replace("{a: 1, b: 2}", "{b: 2}"))
    assert stack.list_steps() == [("delete", "train-a")]
    stack.write_topology(topology_yaml.replace("{a: 1, b: 2}", "[c, b, a]"))
    assert stack.list_steps() == [("create", "train-c")]


EXPRESSIONS = {
    "itself": "'{{ config.key }}'",
    "text": "'a {{ config.key }} b'",
    "filter": "'{{ config.key | b64encode }}'",
    "upper": "'{{ config.key | upper }}'",
    "list": "[1, '{{ config.key }}']",
    "nested": "{a: [{b: '{{ config.key }}'}]}",
    "literal": "\"{{ {'k': [config.key]} | tojson }}\"",
    "parts": "\"{{ config.key.split('-') }}\"",
    "object": "'{{ config.object.inner[0] }}'",
    "each": "'{{ clusters.train }}'",
    "kube": "'{{ clusters.train.a.kube_config }}'",
    "kube_text": "\"kube: {{ clusters.train.a.kube_config | replace('Version', 'x') }}\"",
}


@pytest.mark.slow
def test_secrets_stay_secret(stack: Any) -> None:
    stack("config", "set", "--secret", "key", SECRET)
    stack("config", "set", "--secret", "object", f'{{"inner": ["{SECRET}"]}}')
    stack.write_topology(
        "config: {key: {}, object: {type: object}}\nclusters:\n"
        + declare_each(
            "train",
            "{a: '{{ config.key }}'}",
            options="{replacement_trigger: '{{ each.value }}'}",
        )
        + "outputs:\n"
        + "".join(f"  {name}: {topology_yaml}\n" for name, topology_yaml in EXPRESSIONS.items())
    )
    commands = (
        *(["validate"], ["validate", "--stack", "dev", "--format", "json"], ["preview", "--json"]),
        *(["up", "--yes"], ["stack", "output"], ["preview"], ["refresh", "--yes"]),
    )
    printed = "".join(stack(*command) for command in commands)
    encoded = b64encode(SECRET.encode()).decode()
    assert stack.get_output("filter") == encoded
    assert stack.get_output("parts") == SECRET.split("-")
    assert stack.get_output("each").keys() == {"a"}
    assert f'{{a: "{stack.get_output("each")["a"]}"}}' in stack("stack", "output")
    kube = stack.get_output("kube")
    for secret in (SECRET, "planted", encoded, "Version: v1", kube.splitlines()[-1].strip()):
        assert stack.find_files_with(secret) == []
        assert secret.lower() not in printed.lower()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "expression", "why"),
    [
        (
            "outputs",
            "config.key | int",
            "the expression cannot be evaluated with the values of its references",
        ),
        (
            "outputs",
            "{config.key: 1}.nothing",
            "the expression cannot be evaluated with the values of its references",
        ),
        (
            "outputs",
            "clusters.one.kube_config | b64decode",
            "the value is not the base64 form of a text",
        ),
        (
            "clusters",
            "config.key + 1",
            "the expression cannot be evaluated with the values of its references",
        ),
        (
            "clusters",
            "clusters.one.kube_config | fromjson",
            ("the expression cannot be evaluated with the values"),
        ),
        ("clusters", "'a' ~ clusters.one.not_ready_reason", "null cannot be part of a string"),
    ],
)
def test_what_fails_with_its_values_is_told_at_its_place(
    stack: Any, where: str, expression: str, why: str
) -> None:
    stack("config", "set", "--secret", "key", SECRET)
    topology_yaml = "config: {key: {secret: true}}\nclusters:\n" + declare_entry("one")
    value = f'"{{{{ {expression} }}}}"'
    if where == "outputs":
        topology_yaml += f"outputs:\n  o: {value}\n"
    else:
        topology_yaml += declare_entry("two", num_gpus=value)
    stack.write_topology(topology_yaml)
    printed = stack.up(code=1)
    line, column = (
        (5, 6) if where == "outputs" else (4, topology_yaml.splitlines()[3].index(value) + 1)
    )
    (error_line,) = [line for line in printed.splitlines() if "error:" in line]
    assert error_line.strip().startswith(f"error: topology.yaml:{line}:{column}: {why}")
    assert SECRET not in printed
    assert "apiVersion" not in printed
    # What was made is kept, and the next run goes on from there.
    made = stack.names
    assert "two" not in made
    stack.write_topology("clusters:\n" + declare_entry("one") + declare_entry("two"))
    stack.up()
    assert stack.names == ["one", "two"]
    assert set(made) <= {"one"}


@pytest.mark.slow
def test_outputs_of_another_stack(stack: Any) -> None:
    stack.write_topology(
        f"config: {{key: {{secret: true, default: {SECRET}}}}}\n"
        "outputs: {shown: plain, hidden: '{{ config.key }}'}\n"
    )
    stack.up()
    salt = (stack.folder / "Pulumi.dev.yaml").read_text()
    (stack.folder / "Pulumi.two.yaml").write_text(salt)
    stack("stack", "init", "two")
    stack("stack", "select", "two")
    topology_yaml = "stack_references:\n  other: organization/demo/dev\noutputs:\n"
    stack.write_topology(
        f"{topology_yaml}  a: '{{{{ stack_references.other.shown | upper }}}}'\n"
        "  b: ['{{ stack_references.other.hidden }}']\n"
    )
    stack.up()
    assert (stack.get_output("a"), stack.get_output("b")) == ("PLAIN", [SECRET])
    assert '"PLAIN"' in stack("stack", "output")
    assert stack.find_files_with(SECRET) == []
    stack.write_topology(f"{topology_yaml}  a: '{{{{ stack_references.other.showm }}}}'\n")
    printed = stack.up(code=1)
    assert "topology.yaml:2:3: the stack of stack_references.other has no output showm" in printed
    assert "its outputs are hidden, shown" in printed
    stack.write_topology(
        f"{topology_yaml}  a: 'x{{{{ stack_references.other.shown }}}}'\n".replace("dev", "no")
    )
    printed = stack.up(code=1)
    assert "unknown stack 'organization/demo/no'" in printed
    assert "Warning" not in printed
