"""Test that dependencies are declared first, and that cycles are reported as a path."""

import pytest
from support.topologies.topology_planner import Topologies, declare_cluster, declare_volume


@pytest.mark.parametrize(
    "more",
    [
        {"cluster_name": '"x-{{ clusters.z.id }}"'},
        {"add_ons": '[{name: "{{ clusters.z.id }}"}]'},
        {"for_each": '{k: "{{ clusters.z.id }}"}', "cluster_name": '"{{ each.value }}"'},
        {"for_each": '{k: ["{{ clusters.z.id }}"]}', "cluster_name": '"{{ each.value[0] }}"'},
        {"for_each": '{k: {x: "{{ clusters.z.id }}"}}', "cluster_name": '"{{ each.value.x }}"'},
        {"options": '{depends_on: "{{ clusters.z }}"}'},
        {"options": '{depends_on: ["{{ clusters.z }}"]}'},
        {"options": '{replace_with: ["{{ clusters.z }}"]}'},
        {"options": '{parent: "{{ clusters.z }}"}'},
        {"options": '{deleted_with: "{{ clusters.z }}"}'},
        {"options": '{aliases: [{parent: "{{ clusters.z }}"}]}'},
        {"options": '{replacement_trigger: ["{{ clusters.z.id }}"]}'},
        {"options": '{id: "{{ clusters.z.id }}"}'},
    ],
)
def test_what_is_named_comes_first(topologies: Topologies, more: dict[str, str]) -> None:
    result = topologies(f"clusters: {{a: {declare_cluster(**more)}, z: {declare_cluster()}}}")
    assert [resource.instance.declaration.name for resource in result.planned.resources] == [
        "z",
        "a",
    ]


def test_the_rest_is_in_the_order_of_the_file(topologies: Topologies) -> None:
    result = topologies.plan_valid(
        f"clusters: {{b: {declare_cluster()}, c: {declare_cluster()}, a: {declare_cluster()}}}"
    )
    assert result.names == ["b", "c", "a"]


def test_a_circle_is_told_once_as_its_way(topologies: Topologies) -> None:
    def depend_on(name: str) -> str:
        return declare_cluster(cluster_name=f'"{{{{ clusters.{name}.id }}}}"')

    assert topologies(f"""
        clusters:
          a: {depend_on("b")}
          b: {depend_on("c")}
          c: {depend_on("b")}
          d: {depend_on("c")}
    """).positioned_messages == [
        (
            "topology.yaml:4: these depend on each other in a cycle: "
            "clusters.b -> clusters.c -> clusters.b"
        )
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"cluster_name": '"{{ clusters.a.id }}"'},
        {"options": '{depends_on: "{{ clusters.a }}"}'},
        {"options": '{parent: "{{ clusters.a }}"}'},
    ],
)
def test_what_needs_itself(topologies: Topologies, more: dict[str, str]) -> None:
    assert topologies(f"clusters: {{a: {declare_cluster(**more)}}}").messages == [
        "these depend on each other in a cycle: clusters.a -> clusters.a"
    ]


@pytest.mark.slow
def test_a_chain_as_long_as_the_file(topologies: Topologies) -> None:
    names = [f'"{{{{ shared_volumes.v{n}.id }}}}"' for n in range(1, 1201)]
    entries = [f"v{n}: {declare_volume(volume_name=name)}" for n, name in enumerate(names)]
    topology_yaml = "shared_volumes:\n  " + "\n  ".join([*entries, f"v1200: {declare_volume()}"])
    assert topologies.plan_valid(topology_yaml).names == [f"v{n}" for n in range(1200, -1, -1)]
