"""Test `for_each` and `when`: instances and refusals."""

import pytest
from support.topologies.topology_planner import Topologies, declare_cluster


def declare_clusters(for_each: str, **more: str) -> str:
    more = {"cluster_name": '"train-{{ each.key }}"', **more}
    return f"clusters: {{train: {declare_cluster(for_each=for_each, **more)}}}"


@pytest.mark.parametrize(
    ("for_each", "keys"),
    [
        ("{a: us-central-8, b: us-central-8}", ["a", "b"]),
        ("[x, 7]", ["x", "7"]),
        ("'{{ range(2, 4) }}'", ["2", "3"]),
        ("'{{ config.sites }}'", ["p", "q"]),
        ("['{{ config.first }}', '{{ pulumi.stack }}']", ["p", "dev"]),
        ("[items, get, id, a.b-c, '0', '-']", ["items", "get", "id", "a.b-c", "0", "-"]),
        ("[]", []),
        ("{}", []),
    ],
)
def test_there_is_one_for_each(topologies: Topologies, for_each: str, keys: list[str]) -> None:
    config = "config: {sites: {type: array}, first: {default: p}}\n"
    result = topologies.plan_valid(config + declare_clusters(for_each), sites='["p", "q"]')
    assert result.names == [f"train-{key}" for key in keys]
    for key in keys:
        assert result.values(f"train-{key}")["cluster_name"] == f"train-{key}"


def test_values_are_objects_and_keep_their_types(topologies: Topologies) -> None:
    result = topologies.plan_valid(
        declare_clusters(
            "{a: {gpus: 8, place: [us-central-8]}}",
            num_gpus='"{{ each.value.gpus }}"',
            region='"{{ each.value.place[0] }}"',
        )
    )
    assert result.values("train-a")["num_gpus"] == 8
    assert result.values("train-a")["region"] == "us-central-8"


@pytest.mark.parametrize(
    "for_each", ["5", "text", "null", "[1.5]", "[true]", "[null]", "[[a]]", "'{{ 1 }}'"]
)
def test_other_forms_are_refused(topologies: Topologies, for_each: str) -> None:
    (message,) = topologies.plan_invalid(declare_clusters(for_each))
    assert message.endswith("for_each must be a map, or a list of strings and whole numbers")


@pytest.mark.parametrize(
    ("for_each", "message"),
    [
        ("[a, a]", "clusters.train: 'a' is in the list twice"),
        ("[1, '1']", "clusters.train: '1' is in the list twice"),
        ("[a b]", "clusters.train: 'a b' cannot be part of a name"),
        ("['']", "clusters.train: '' cannot be part of a name"),
        ("{a/b: 1}", "clusters.train: 'a/b' cannot be part of a name"),
    ],
)
def test_keys_that_name_nothing(topologies: Topologies, for_each: str, message: str) -> None:
    assert topologies(declare_clusters(for_each)).messages == [message]


def test_two_resources_of_one_name(topologies: Topologies) -> None:
    single, other = declare_cluster(), declare_cluster(for_each="[b]")
    assert topologies(f"clusters: {{a-b: {single}, a: {other}}}").messages == [
        "clusters.a-b and clusters.a.b would both have the name a-b"
    ]


@pytest.mark.parametrize("when", ["'{{ each.value != 2 }}'", '\'{{ each.key in ["a", "c"] }}\''])
def test_when_leaves_instances_out(topologies: Topologies, when: str) -> None:
    assert topologies.plan_valid(declare_clusters("{a: 1, b: 2, c: 3}", when=when)).names == [
        "train-a",
        "train-c",
    ]


@pytest.mark.parametrize("when", ["null", "'no'", "yes", "0", "[]", "'{{ 1 }}'"])
def test_when_is_true_or_false(topologies: Topologies, when: str) -> None:
    topology_yaml = f"clusters: {{train: {declare_cluster(when=when)}}}"
    assert topologies(topology_yaml).messages == ["clusters.train: `when` must be true or false"]


@pytest.mark.parametrize("key", ["for_each", "when"])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("'{{ clusters.other.ready }}'", ", but the values of clusters are known only after apply"),
        ("'{{ stack_references.n.o }}'", ", but the values of stack_references "),
        ("'{{ config.hidden }}'", ""),
    ],
)
def test_what_is_declared_is_known_while_planning(
    topologies: Topologies, key: str, value: str, why: str
) -> None:
    topology_yaml = f"""
        config: {{hidden: {{secret: true, default: x}}}}
        stack_references: {{n: organization/network/dev}}
        clusters: {{train: {declare_cluster(**{key: value})}, other: {declare_cluster()}}}
    """
    (message,) = topologies(topology_yaml).messages
    assert message.startswith(f"clusters.train: {key} must be known while planning{why}")


def test_a_check_takes_what_no_stack_has_set(topologies: Topologies) -> None:
    topology_yaml = "config: {sites: {type: array}}\n" + declare_clusters("'{{ config.sites }}'")
    topology_yaml += "\noutputs: {o: '{{ clusters.train.a.status }}'}"
    assert topologies(topology_yaml, planning=False).positioned_messages == []
    assert topologies(topology_yaml).messages == ["config.sites has no value"]
