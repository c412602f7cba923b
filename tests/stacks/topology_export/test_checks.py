"""Nodes that belong together and are in several fabrics."""

from gpuform.schemas.resource_facts import NodePlacement, ResourcePlacement
from gpuform.stacks.topology_export.model import list_fabric_notices

POOL = "urn:pulumi:dev::demo::gpuform:scp:NodePool::train"
NODES = [f"urn:pulumi:dev::demo::gpuform:scp:GpuNode::n{number}" for number in range(3)]


def build_node(name: str, fabric_id: str, fabric: str = "train-a") -> NodePlacement:
    return NodePlacement(name=name, fabric_id=fabric_id, fabric=fabric)


def create_placement(*nodes: NodePlacement) -> ResourcePlacement:
    return ResourcePlacement(name="train", region="kr-west1", pool="POOL001", nodes=nodes)


def test_a_pool_in_one_fabric_is_as_it_should_be() -> None:
    assert (
        list(
            list_fabric_notices(
                [(POOL, create_placement(build_node("a", "1"), build_node("b", "1")))]
            )
        )
        == []
    )
    assert list(list_fabric_notices([(POOL, create_placement())])) == []
    unplaced = NodePlacement(name="c")
    assert (
        list(list_fabric_notices([(POOL, create_placement(build_node("a", "1"), unplaced))])) == []
    )


def test_a_pool_in_two_fabrics_is_told() -> None:
    apart = create_placement(
        *(build_node(f"t-{n}", "1") for n in range(5)), build_node("t-9", "2", "train-b")
    )
    (notice,) = list_fabric_notices([(POOL, apart)])
    assert (notice.kind, notice.urn, notice.name) == ("fabrics", POOL, "train")
    assert notice.text.startswith(
        "its nodes are in 2 fabrics: t-0, t-1, t-2 and 2 more in train-a (1); t-9 in train-b (2). "
    )


def test_nodes_of_one_fabric_name_in_two_fabrics_are_told() -> None:
    placements = [
        (NODES[0], create_placement(build_node("n0", "1"))),
        (NODES[1], create_placement(build_node("n1", "2"))),
        (NODES[2], create_placement(build_node("n2", "3", "other"))),
    ]
    (notice,) = list_fabric_notices(placements)
    assert notice.text.startswith(
        "the nodes of fabric train-a are in 2 fabrics: n0 in train-a (1); n1 in train-a"
    )


def test_the_same_name_in_another_pool_is_another_fabric() -> None:
    elsewhere = create_placement(build_node("n1", "2")).model_copy(update={"pool": "POOL002"})
    assert (
        list(
            list_fabric_notices(
                [(NODES[0], create_placement(build_node("n0", "1"))), (NODES[1], elsewhere)]
            )
        )
        == []
    )
