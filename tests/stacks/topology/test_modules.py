"""Test modules in `include`: inputs, outputs, instances, names, and positions of problems."""

import pytest
from support.topologies.topology_planner import Topologies, declare_cluster, declare_volume

POOL = f"""
inputs:
  gpus: {{type: integer, multiple_of: 8}}
  label: {{default: pool}}
shared_volumes:
  data: {declare_volume(volume_name="'{{ inputs.label }}'")}
clusters:
  head: {declare_cluster(num_gpus="'{{ inputs.gpus }}'", volume="'{{ shared_volumes.data }}'")}
outputs:
  volume: "{{{{ shared_volumes.data }}}}"
  label: "{{{{ inputs.label }}}}"
"""
ONE = "include: {file: pool.yaml, name: train, with: {gpus: 16}}\n"
EACH = """
include:
  - file: pool.yaml
    name: train
    for_each: {a: one, b: two}
    with: {gpus: 16, label: "{{ each.value }}"}
"""


@pytest.fixture(autouse=True)
def pool(topologies: Topologies) -> None:
    """Write the module pool.yaml beside the topology."""
    topologies.write(POOL, "pool.yaml")


def test_what_is_in_a_module_is_named_after_it(topologies: Topologies) -> None:
    result = topologies.plan_valid(ONE)
    assert result.names == ["train-data", "train-head"]
    assert result.values("train-head")["num_gpus"] == 16
    assert result.values("train-data")["volume_name"] == "pool"


def test_instances(topologies: Topologies) -> None:
    result = topologies.plan_valid(EACH + 'outputs: {all: "{{ modules.train.b.label }}"}')
    assert sorted(result.names) == ["train-a-data", "train-a-head", "train-b-data", "train-b-head"]
    assert result.values("train-b-data")["volume_name"] == "two"


def test_a_module_that_is_not_there(topologies: Topologies) -> None:
    topology_yaml = ONE.replace("with:", 'when: "{{ config.wanted }}", with:')
    topology_yaml += "config: {wanted: {type: boolean, default: false}}\n"
    assert topologies.plan_valid(topology_yaml).names == []
    messages = topologies.plan_invalid(topology_yaml + 'outputs: {a: "{{ modules.train.label }}"}')
    assert messages == ["topology.yaml:3: modules.train is not declared: its `when` is false"]


def test_outputs_are_values_and_dependencies(topologies: Topologies) -> None:
    entry = declare_cluster(
        volume="'{{ modules.train.volume }}'", cluster_name="'{{ modules.train.label }}'"
    )
    result = topologies.plan_valid(ONE + f"clusters:\n  other: {entry}\n")
    assert result.values("other")["cluster_name"] == "pool"
    (other,) = [
        resource for resource in result.planned.resources if resource.instance.name == "other"
    ]
    assert [resource.name for resource in other.uses["volume_id"]] == ["train-data"]
    assert result.names.index("train-data") < result.names.index("other")


def test_resources_go_in_and_options_name_them(topologies: Topologies) -> None:
    volume_id = "'{{ inputs.volume }}'"
    entry = declare_cluster(volume=volume_id, options=f"{{depends_on: [{volume_id}]}}")
    topologies.write(f"inputs: {{volume: {{}}}}\nclusters:\n  head: {entry}\n", "inner.yaml")
    after = declare_volume(volume_name="last", options="{depends_on: ['{{ modules.a }}']}")
    topology_yaml = f"""
include:
  - {{file: inner.yaml, name: a, with: {{volume: "{{{{ shared_volumes.data }}}}"}}}}
shared_volumes:
  data: {declare_volume()}
  last: {after}
"""
    result = topologies.plan_valid(topology_yaml)
    by_name = {resource.instance.name: resource for resource in result.planned.resources}
    assert [resource.name for resource in by_name["a-head"].uses["volume_id"]] == ["data"]
    assert [resource.name for resource in by_name["a-head"].after] == ["data"]
    assert [resource.name for resource in by_name["last"].after] == ["a-head"]


def test_modules_in_modules(topologies: Topologies) -> None:
    outer = """
    inputs: {sizes: {type: object}}
    include:
      - file: pool.yaml
        name: inner
        for_each: "{{ inputs.sizes }}"
        with: {gpus: "{{ each.value }}"}
    outputs: {label: "{{ modules.inner.a.label }}"}
    """
    topologies.write(outer, "outer.yaml")
    topology_yaml = (
        "include: [{file: outer.yaml, name: east, with: {sizes: {a: 8, b: 12}}}]\n"
        "outputs: {label: '{{ modules.east.label }}'}"
    )
    result = topologies(topology_yaml)
    assert "east-inner-a-head" in result.names
    assert [str(problem) for problem in result.problems] == [
        (
            "outer.yaml:7:18, included at topology.yaml:1:11: "
            "modules.east.modules.inner.b.with.gpus: 12 is not a multiple of 8\n"
            "  the input is declared at pool.yaml:3:3"
        )
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            ONE.replace("16", "12"),
            (
                "topology.yaml:1:54: modules.train.with.gpus: 12 is not a multiple of 8\n"
                "  the input is declared at pool.yaml:3:3"
            ),
        ),
        (
            ONE.replace("gpus: 16", "gpus: 16, gpu: 8"),
            "topology.yaml:1:58: modules.train has no input gpu\n  did you mean gpus?",
        ),
        (
            ONE.replace("gpus: 16", ""),
            (
                "topology.yaml:1:10: modules.train: the input gpus is missing\n  add "
                "`with: {gpus: ...}`; the input is declared at pool.yaml:3:3"
            ),
        ),
        (
            ONE + "outputs: {a: '{{ modules.train.labl }}'}",
            (
                "topology.yaml:2:18: modules.train.labl does not exist\n"
                "  did you mean modules.train.label?"
            ),
        ),
        (
            ONE + "outputs: {a: '{{ modules.tran.label }}'}",
            "topology.yaml:2:18: modules.tran does not exist\n  did you mean modules.train?",
        ),
        (
            ONE + "outputs: {a: '{{ inputs.gpus }}'}",
            "topology.yaml:2:18: inputs are available only in modules\n  use config",
        ),
        (
            ONE.replace("name: train, ", ""),
            (
                "topology.yaml:1:10: include.name: is required: Prefix of the names of the "
                "module's resources: NAME-ENTRY, or NAME-KEY-ENTRY with `for_each`. Another prefix "
                "means other resources."
            ),
        ),
        (
            ONE.replace("pool.yaml", "pol.yaml"),
            (
                "topology.yaml:1:17: the file pol.yaml does not exist\n"
                "  paths are relative to this file"
            ),
        ),
    ],
)
def test_what_is_wrong_where_a_module_is_included(
    topologies: Topologies, text: str, told: str
) -> None:
    assert [str(problem) for problem in topologies(text).problems] == [told]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "outputs: {a: '{{ config.gpus }}'}",
            "module.yaml:2:18, included at topology.yaml:1:10: config is not available in a module",
        ),
        (
            "config: {gpus: {type: integer}}",
            (
                "module.yaml:2:1, included at topology.yaml:1:10: config is allowed only in "
                "the topology of a stack: this file has inputs, so it is a module"
            ),
        ),
        (
            "outptus: {}",
            "module.yaml:2:1, included at topology.yaml:1:10: outptus is not known",
        ),
        (
            "include: [{file: module.yaml, name: again}]",
            (
                "module.yaml:2:18, included at topology.yaml:1:10: files include each other: "
                "topology.yaml -> module.yaml -> module.yaml"
            ),
        ),
        (
            "include: [topology.yaml]",
            (
                "module.yaml:2:11, included at topology.yaml:1:10: files include each other: "
                "topology.yaml -> module.yaml -> topology.yaml"
            ),
        ),
    ],
)
def test_what_is_wrong_in_a_module(topologies: Topologies, line: str, told: str) -> None:
    topologies.write(f"inputs: {{}}\n{line}\n", "module.yaml")
    problems = topologies("include: {file: module.yaml, name: it}\n").problems
    assert [f"{problem.position}: {problem.message}" for problem in problems] == [told]


def test_a_problem_of_a_file_is_told_once(topologies: Topologies) -> None:
    topologies.write(POOL.replace("H100_SXM", "H100_SXM, gpu_typ: x"), "pool.yaml")
    topology_yaml = "include:\n" + "".join(
        f"  - {{file: pool.yaml, name: n{number}, with: {{gpus: 8}}}}\n" for number in (1, 2)
    )
    topology_yaml += "  - {file: pool.yaml, name: n1, with: {gpus: 8}}\n"
    messages = topologies.plan_invalid(topology_yaml)
    assert "topology.yaml:4: modules.n1 is declared twice: first at topology.yaml:2:29" in messages
    assert messages[0].startswith("pool.yaml:8: modules.n1.clusters.head.gpu_typ: is not known")
    assert len(messages) == 2


def test_values_that_are_made_of_themselves(topologies: Topologies) -> None:
    topologies.write("inputs: {x: {}}\noutputs: {y: '{{ inputs.x }}'}\n", "same.yaml")
    topology_yaml = """
    include:
      - {file: same.yaml, name: a, with: {x: "{{ modules.b.y }}"}}
      - {file: same.yaml, name: b, with: {x: "{{ modules.a.y }}"}}
    """
    messages = topologies.plan_invalid(topology_yaml)
    assert any("depends on itself" in message for message in messages)


def test_two_resources_of_one_name(topologies: Topologies) -> None:
    topology_yaml = ONE + f"shared_volumes:\n  train-data: {declare_volume()}\n"
    assert topologies.plan_invalid(topology_yaml) == [
        (
            "pool.yaml:6: shared_volumes.train-data and modules.train.shared_volumes.data "
            "would both have the name train-data"
        )
    ]


def test_many_modules_that_use_each_other(topologies: Topologies) -> None:
    """Each module uses the previous one twice, and every value is evaluated once."""
    topologies.write("inputs: {x: {}}\noutputs: {y: '{{ inputs.x }}'}\n", "same.yaml")
    lines = ["  - {file: same.yaml, name: n0, with: {x: a}}"]
    lines += [
        f'  - {{file: same.yaml, name: n{at}, with: {{x: "{{{{ (modules.n{at - 1}.y ~ '
        f'modules.n{at - 1}.y)[:1] }}}}"}}}}'
        for at in range(1, 40)
    ]
    topology_yaml = "include:\n" + "\n".join(lines) + "\noutputs: {end: '{{ modules.n39.y }}'}\n"
    topologies.plan_valid(topology_yaml)


def test_secrets_stay_unknown_while_checking(topologies: Topologies) -> None:
    topologies.write(
        "inputs: {key: {secret: true, min_length: 3}}\noutputs: {key: '{{ inputs.key }}'}\n",
        "secret.yaml",
    )
    diagnostics = topologies("include: {file: secret.yaml, name: a, with: {key: 'no'}}").problems
    assert [problem.message for problem in diagnostics] == [
        "modules.a.with.key: its value is shorter than 3"
    ]


def test_what_is_known_before_its_instances_are(topologies: Topologies) -> None:
    topology_yaml = ONE.replace("with:", "for_each: '{{ config.sites }}', with:").replace(
        "gpus:", "gpu:"
    )
    result = topologies(topology_yaml + "config: {sites: {type: array}}\n", planning=False)
    assert result.messages == [
        "modules.train: the input gpus is missing",
        "modules.train has no input gpu",
    ]
    assert result.planned.list_open_groups() == ["modules.train"]


def test_a_module_is_no_topology(topologies: Topologies) -> None:
    messages = topologies.plan_invalid(POOL)
    assert messages[0].endswith("topology.yaml has inputs, so it is a module")
    assert topologies(POOL, planning=False).problems == []
