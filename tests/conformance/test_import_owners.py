"""Test that an object and its parts have one owner among the stacks of a backend."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conformance.emulated import Platform
from conformance.scp_kinds import GPU_NODE, NODE_POOL
from conformance.stacks import DeclaredResource, EmbeddedStack, declare_one
from conformance.together_kinds import SHARED_VOLUME

from gpuform.stacks.engine.deployment import DeploymentTarget
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.store import Backend, Files, OtherStacks


@dataclass
class Beside(EmbeddedStack):
    """A stack with others in its backend."""

    others: OtherStacks | None = None

    def build_target(self) -> DeploymentTarget:
        return replace(super().build_target(), others=self.others)


def create_stack_beside(stack: EmbeddedStack, folder: Path) -> Beside:
    folder.mkdir()
    backend = Backend(Files(stack.directory), "file://")
    return Beside(
        folder, stack.crypter, others=OtherStacks(backend, "organization/conformance/own")
    )


def declare_node(stack: EmbeddedStack, id_: str) -> DeclaredResource:
    observed = next(
        gpu_node for gpu_node in stack.outputs["gpu_nodes"].values() if gpu_node["id"] == id_
    )
    own = {name: observed[name] for name in ("gpu_node_name", "cluster_fabric_id")}
    inputs = {**GPU_NODE.valid_inputs, **own}
    return DeclaredResource("solo", GPU_NODE, inputs, options={"import_": id_})


def assert_refused(stack: EmbeddedStack, declared: DeclaredResource, message: str) -> None:
    for result in (stack.plan(declared), stack.apply(declared)):
        assert not result.ok
        assert message in result.errors[0]
    assert stack.resources == []


@pytest.fixture
def pool(embedded: EmbeddedStack, platform: Platform) -> EmbeddedStack:
    """Return a stack with a pool of three nodes."""
    assert embedded.apply(declare_one(platform.prepare(NODE_POOL))).ok
    platform.forget_requests()
    return embedded


@pytest.mark.slow
def test_a_node_of_a_pool_cannot_be_imported_into_another_stack(
    pool: EmbeddedStack, platform: Platform, tmp_path: Path
) -> None:
    other, id_ = create_stack_beside(pool, tmp_path / "other"), pool.outputs["node_ids"][0]
    assert_refused(
        other,
        declare_node(pool, id_),
        f"import_ names {id_}, which belongs to urn:pulumi:dev::conformance::",
    )
    assert_refused(
        other,
        declare_node(pool, id_),
        "::thing of stack organization/conformance/dev",
    )
    assert pool.id is not None
    declared = replace(declare_one(NODE_POOL), options={"import_": pool.id})
    assert_refused(other, declared, "::thing of stack organization/conformance/dev")
    assert platform.list_writes() == []


@pytest.mark.slow
def test_a_pool_cannot_import_nodes_of_another_stack(
    platform: Platform, tmp_path: Path, crypter: PassphraseCrypter, pool: EmbeddedStack
) -> None:
    (tmp_path / "owner").mkdir()
    owner = EmbeddedStack(tmp_path / "owner", crypter)
    assert owner.apply(declare_node(pool, pool.outputs["node_ids"][1])).ok
    other = create_stack_beside(owner, tmp_path / "other")
    assert pool.id is not None
    declared = replace(declare_one(NODE_POOL), options={"import_": pool.id})
    assert_refused(other, declared, "::solo of stack organization/conformance/dev")


def test_no_import_while_the_objects_of_other_stacks_are_unknown(
    pool: EmbeddedStack, tmp_path: Path
) -> None:
    other, id_ = create_stack_beside(pool, tmp_path / "other"), pool.outputs["node_ids"][0]
    declared = declare_node(pool, id_)
    (pool.directory / ".pulumi/stacks/conformance/dev.json").write_text("{")
    assert_refused(
        other, declared, "the resources of stack organization/conformance/dev are unknown"
    )


def test_one_stack_imports_at_a_time(
    pool: EmbeddedStack, platform: Platform, tmp_path: Path
) -> None:
    """Two stacks could otherwise import an object that neither has yet."""
    other = create_stack_beside(pool, tmp_path / "other")
    held = OtherStacks(Backend(Files(pool.directory), "file://"), "organization/conformance/third")
    held.find_owners(claim=True)
    volume = platform.send(SHARED_VOLUME, SHARED_VOLUME.create)["volume_id"]
    platform.advance(600)
    declared = replace(declare_one(SHARED_VOLUME), options={"import_": volume})
    assert other.plan(declared).ok
    result = other.apply(declared)
    assert not result.ok
    assert "another command is importing into a stack of file://" in result.errors[0]
    held.release()
    assert other.apply(declared).ok
    assert not (pool.directory / ".pulumi/gpuform/import.lock").exists()
