"""Test references in expressions: names, values, and refusals."""

import pytest
from support.topologies.topology_planner import Topologies, declare_cluster, declare_volume

from gpuform.schemas.values import UNKNOWN

NAMES = f"""
clusters:
  items: {declare_cluster()}
  id: {declare_cluster()}
  a-b: {declare_cluster()}
  a.b: {declare_cluster()}
  "9x": {declare_cluster()}
  get: {declare_cluster(for_each="[items, get, id, '0']")}
  off: {declare_cluster(when="false")}
config: {{which: {{default: items}}, x-y: {{default: z}}}}
stack_references: {{net-work: organization/network/dev}}
outputs:
  o: """


@pytest.mark.parametrize(
    "expression",
    [
        "clusters.items.id",
        "clusters.items",
        "clusters.id.id",
        "clusters['a-b'].status",
        "clusters['a.b'].status",
        "clusters['9x'].status",
        "clusters.get.items.id",
        "clusters.get.get.id",
        "clusters.get.id.id",
        "clusters.get['0'].id",
        "clusters.get[0].id",
        "clusters.get",
        "clusters.get.values() | map(attribute='id') | join",
        "clusters[config.which].id",
        "clusters.get[config.which].id",
        "config['x-y'] ~ pulumi.project",
        "stack_references['net-work'].output.of_it",
        "clusters.items.volumes[0].name | default('none')",
    ],
)
def test_names_of_every_form(topologies: Topologies, expression: str) -> None:
    topologies.plan_valid(f'{NAMES}"{{{{ {expression} }}}}"')


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("clusters.item.id", "clusters.item does not exist", "did you mean clusters.items?"),
        ("clusters.a-b.id", "clusters.a does not exist", "write a name with a hyphen in brackets"),
        (
            "clusters.items.statsu",
            "clusters.items.statsu does not exist",
            "did you mean clusters.it",
        ),
        (
            "clusters.get.itms.id",
            "clusters.get.itms does not exist",
            "did you mean clusters.get.it",
        ),
        ("clusters.get.zzz.id", "clusters.get.zzz does not exist", "clusters.get has for_each"),
        ("clusters.off.id", "clusters.off is not declared: its `when` is false", ""),
        ("clusters", "clusters does not name an entry", "write {{ clusters.NAME }}"),
        ("cluster.items", "cluster does not exist", "did you mean clusters?"),
        ("config.wich", "config.wich does not exist", "did you mean config.which?"),
        ("pulumi.stak", "pulumi.stak does not exist", "did you mean pulumi.stack?"),
        (
            "stack_references['net-work']",
            ("stack_references.net-work does not name an output"),
            "write {{ s",
        ),
        ("stack_references.a.b", "stack_references.a does not exist", ""),
        ("scp.image()", "scp.image does not exist", "did you mean scp.images?"),
        ("each.key", "`each` is available only in entries with for_each", ""),
    ],
)
def test_names_of_nothing(topologies: Topologies, expression: str, message: str, hint: str) -> None:
    (problem,) = topologies(f'{NAMES}"{{{{ {expression} }}}}"').problems
    assert problem.message.startswith(message)
    assert problem.hint.startswith(hint)


def test_a_property_uses_what_it_refers_to_at_any_depth(topologies: Topologies) -> None:
    result = topologies.plan_valid(f"""
        shared_volumes: {{data: {declare_volume(for_each="[a, b]")}}}
        clusters:
          train: {declare_cluster(for_each="[a]", volume='"{{ shared_volumes.data[each.key] }}"')}
          other: {declare_cluster(cluster_name='"x-{{ clusters.train.a.status | lower }}"')}
    """)
    uses = {resource.instance.name: resource for resource in result.planned.resources}
    assert [used.name for used in uses["train-a"].uses["volume_id"]] == ["data-a"]
    assert [used.name for used in uses["other"].uses["cluster_name"]] == ["train-a"]
    assert uses["other"].values["cluster_name"] is UNKNOWN


def test_an_id_is_that_of_one_resource(topologies: Topologies) -> None:
    entry = declare_cluster(volume='"{{ shared_volumes.data }}"')
    (problem,) = topologies(f"""
        shared_volumes: {{data: {declare_volume(for_each="[a, b]")}}}
        clusters: {{train: {entry}}}
    """).problems
    assert problem.message == "clusters.train.volume_id refers to several resources"
    assert problem.hint == "add a key: shared_volumes.data.a"
