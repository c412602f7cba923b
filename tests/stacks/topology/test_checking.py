"""Every entry against its model: all problems at once, each where it is written."""

from pathlib import Path

import pytest
from support.topologies.topology_planner import Topologies, declare_cluster, declare_volume


def declare_train(**more: str) -> str:
    return f"clusters:\n  train:\n    {declare_cluster(**more)}"


def test_all_problems_are_told_at_once_each_at_its_place(topologies: Topologies) -> None:
    result = topologies("""
        clusters:
          train:
            platform: together
            cluster_name: training
            region: us-central-8
            gpu_typ: H100_SXM
            num_gpus: "16"
            driver_version: CUDA_12_6_560
            billing_type: ON_DEMAND
            options: {protect: yes, timouts: {create: 45m}}
        outputs: {a: "{{ clusters.train.nothing }}"}
    """)
    assert [(p.position.line, p.position.column) for p in result.problems] == [
        *((7, 5), (8, 15), (11, 24), (11, 29), (12, 18))
    ]
    assert result.messages[0] == "clusters.train.gpu_typ: is not known: did you mean gpu_type?"
    assert result.messages[1].startswith("clusters.train.num_gpus: must be a whole number")


def test_a_number_for_a_text_is_told_with_quotes(topologies: Topologies) -> None:
    assert topologies(declare_train(cluster_name="007", region="5")).messages == [
        'clusters.train.region: must be text, not 5: write it in quotes, "5"'
    ]


def test_rules_over_several_resources(topologies: Topologies) -> None:
    entry = declare_cluster(volume='"{{ shared_volumes.data }}"')
    (message,) = topologies(f"""
        clusters: {{train: {entry}}}
        shared_volumes: {{data: {declare_volume(region="us-east-2")}}}
    """).messages
    assert message.startswith("clusters.train.volume_id: shared volume 'data' is in us-east-2")


def test_a_region_that_is_not_there(topologies: Topologies) -> None:
    fabric = "platform: scp, node_pool_id: P, cluster_fabric_name: train-a, region_id: "
    assert topologies(f"fabrics: {{f: {{{fabric}kr-wst1}}}}").messages == [
        "fabrics.f.region_id: kr-wst1 is not a region of Samsung SCP: did you mean kr-west1?"
    ]
    assert topologies(f"fabrics: {{f: {{{fabric}kr-west1}}}}").messages == []


def test_what_is_not_known_yet_is_not_checked(topologies: Topologies) -> None:
    topology_yaml = "config: {n: {type: integer}}\n" + declare_train(num_gpus='"{{ config.n }}"')
    assert topologies(topology_yaml, planning=False).positioned_messages == []
    assert topologies(topology_yaml, n="12").messages[0].startswith("clusters.train.num_gpus: ")


def test_of_an_object_that_is_only_read_no_property_is_required(topologies: Topologies) -> None:
    topologies.plan_valid("clusters: {train: {platform: together, options: {id: abc}}}")
    entry = "{platform: together, options: {id: '{{ none }}'}}"
    assert "clusters.train.cluster_name: is required: " in "".join(
        topologies(f"clusters: {{train: {entry}}}").messages
    )
    entry = "{platform: together, cluster_nam: a, options: {id: abc}}"
    assert topologies(f"clusters: {{train: {entry}}}").messages == [
        "clusters.train.cluster_nam: is not known: did you mean cluster_name?"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "{depends_on: []}",
        "{depends_on: '{{ clusters.none }}'}",
        "{depends_on: ['{{ clusters.some }}', '{{ clusters.some.a }}', '{{ clusters.one }}']}",
        "{parent: '{{ clusters.one }}', deleted_with: '{{ clusters.some.a }}'}",
        "{replacement_trigger: {a: ['{{ clusters.one.id }}', '{{ config.hidden }}']}}",
        "{protect: '{{ config.on }}', timeouts: {create: '{{ config.minutes }}m'}}",
        "{aliases: [{name: a, type: b}, {parent: '{{ clusters.one }}'}, {parent: 'urn:a'}]}",
        "{protect: null, parent: null, depends_on: null, timeouts: null}",
    ],
)
def test_options(topologies: Topologies, options: str) -> None:
    topologies.plan_valid(_with_options(options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "{protect: '{{ clusters.one.ready }}'}",
            "protect must be known while planning, but the values",
        ),
        ("{protect: '{{ config.hidden }}'}", "protect must be known while planning"),
        ("{aliases: [{name: '{{ config.hidden }}'}]}", "aliases must be known while planning"),
        ("{ignore_changes: num_gpus}", "ignore_changes: must be a list"),
        ("{timeouts: {create: 45}}", "timeouts.create: must be text, not 45"),
        ("{timeouts: {create: 45x}}", "timeouts.create: '45x' is not a duration"),
        ("{dependsOn: []}", "dependsOn: is called depends_on here"),
        ("{import: a, id: b}", "import: conflicts with id"),
    ],
)
def test_options_that_are_refused(topologies: Topologies, options: str, message: str) -> None:
    (problem_message,) = topologies(_with_options(options)).messages
    assert problem_message.startswith(f"clusters.train.options.{message}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{depends_on: clusters.one}", "depends_on must refer to resources"),
        ("{depends_on: ['{{ clusters.one.id }}']}", "depends_on must refer to resources"),
        ("{depends_on: '{{ [clusters.one] }}'}", "depends_on must refer to resources"),
        ("{depends_on: '{{ clusters.two }}'}", "clusters.two does not exist"),
        ("{parent: '{{ clusters.some }}'}", "parent must refer to one resource"),
        ("{deleted_with: ['{{ clusters.one }}']}", "deleted_with must refer to one resource"),
        ("{parent: '{{ clusters.none }}'}", "parent must refer to one resource"),
        ("{aliases: [{parent: '{{ clusters.some }}'}]}", "parent must refer to one resource"),
    ],
)
def test_options_that_name_no_resource(topologies: Topologies, options: str, message: str) -> None:
    assert topologies(_with_options(options)).messages == [message]


def _with_options(options: str) -> str:
    return f"""
        config:
          hidden: {{secret: true, default: a}}
          on: {{type: boolean, default: true}}
          minutes: {{type: integer, default: 45}}
        clusters:
          train: {declare_cluster(options=options)}
          one: {declare_cluster()}
          some: {declare_cluster(for_each="[a, b]")}
          none: {declare_cluster(for_each="[a]", when="false")}
    """


@pytest.mark.parametrize("name", ["5", "null", "[a]", "'{{ 1 }}'", "'{{ clusters.train.id }}'"])
def test_a_stack_reference_is_a_text_known_while_planning(
    topologies: Topologies, name: str
) -> None:
    topology_yaml = f"stack_references: {{net: {name}}}\n{declare_train()}"
    (message,) = topologies(topology_yaml).messages
    assert message.startswith("stack_references.net must be ")


BROKEN_VOLUME = """
shared_volumes: {{data: {{{entry}}}}}
clusters: {{train: {cluster}}}
outputs:
  id: "{{{{ shared_volumes.data.id }}}}"
  size: "{{{{ shared_volumes.data.size_tib * 2 }}}}"
  all: "{{{{ shared_volumes.data }}}}"
"""


def test_references_to_an_entry_with_a_wrong_platform_are_no_problems_of_their_own(
    topologies: Topologies,
) -> None:
    topology_yaml = BROKEN_VOLUME.format(
        entry="platform: togther, size_tib: 5",
        cluster=declare_cluster(
            volume='"{{ shared_volumes.data }}"',
            options='{depends_on: ["{{ shared_volumes.data }}"]}',
        ),
    )
    assert topologies(topology_yaml).messages == ["togther is not a platform"]


def test_references_below_a_misspelled_section_are_no_problems_of_their_own(
    topologies: Topologies,
) -> None:
    topology_yaml = BROKEN_VOLUME.format(
        entry=declare_volume()[1:-1],
        cluster=declare_cluster(volume='"{{ shared_volumes.data }}"'),
    ).replace("\nshared_volumes:", "\nshared_volume:")
    assert topologies(topology_yaml).messages == ["shared_volume is not known"]


def test_references_into_a_file_that_cannot_be_read_are_no_problems_of_their_own(
    topologies: Topologies, tmp_path: Path
) -> None:
    (tmp_path / "volumes.yaml").write_text("config: {size: {type: integer}}\nshared_volumes: [\n")
    cluster = declare_cluster(volume='"{{ shared_volumes.data }}"')
    result = topologies(f"""
        include: [volumes.yaml]
        clusters: {{train: {cluster}}}
        outputs: {{size: "{{{{ config.size }}}}"}}
    """)
    assert [message[:18] for message in result.messages] == ["this is not YAML: "]


def test_a_reference_beside_a_broken_entry_to_a_name_of_no_entry_is_a_problem(
    topologies: Topologies,
) -> None:
    result = topologies("""
        clusters: {train: {platform: togther}}
        outputs: {id: "{{ clusters.trian.id }}"}
    """)
    assert result.messages == ["togther is not a platform", "clusters.trian does not exist"]


def test_a_name_with_other_words_for_a_number_gets_the_field_with_the_same_words(
    topologies: Topologies,
) -> None:
    topology_yaml = declare_train().replace("num_gpus", "gpu_count")
    assert topologies(topology_yaml).messages == [
        "clusters.train.gpu_count: is not known: did you mean num_gpus?"
    ]
