"""`plan-part` and `join`: the plan of several machines is the plan of one."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stacks.workspace import SECRET, Workspace, create_workspace

from gpuform.providers.emulator.server import serve
from gpuform.schemas.stacks_plan import compute_stacks_digest

pytestmark = pytest.mark.slow

BUDGET = "gates:\n  few: {max_destroyed_gpus: 8}\n  types: {allowed_gpu_types: [A100]}\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="parts") as server:
        yield create_workspace(tmp_path / "fleet", server.url, {}, {})


def plan_parts(workspace: Workspace) -> None:
    """Plan each part of each wave as its runner does."""
    waves = json.loads(workspace.run_successfully("plan-part", "--waves"))
    for wave in waves:
        for part in wave:
            workspace.run_successfully("plan-part", *part["stacks"].split())


@pytest.mark.sampled(1)
def test_a_joined_plan_its_review_and_gates_are_those_of_one_machine(workspace: Workspace) -> None:
    (workspace.root / "stacks.yaml").write_text("stacks:\n  - {folder: '*', stack: dev}\n" + BUDGET)
    single = workspace.run("preview", "--all", "--save-plan", "plan.json")
    review = workspace.run("review", "plan.json", "--format", "github")
    plan = (workspace.root / "plan.json").read_bytes()
    assert single.code == 5

    plan_parts(workspace)
    joined = workspace.run("join", "--save-plan", "plan.json")

    assert (workspace.root / "plan.json").read_bytes() == plan
    assert workspace.run("review", "plan.json", "--format", "github") == review
    assert joined.code == 5
    assert joined.stderr == single.stderr
    assert single.stdout.endswith(joined.stdout)
    for part in (workspace.root / "parts").rglob("*.json"):
        assert SECRET not in part.read_text()


@pytest.mark.exhaustive
def test_a_program_that_computes_a_reference_is_refused_and_says_what_to_write(
    workspace: Workspace,
) -> None:
    workspace.edit(
        "told/__main__.py", '"organization/training/"', '"/".join(["organization", "training", ""])'
    )
    waves = json.loads(workspace.run_successfully("plan-part", "--waves", "--runners", "1"))
    assert [part["stacks"].split() for part in waves[0]] == [["told/dev", "volumes/dev"]]
    refused = workspace.run("plan-part", "told/dev")
    assert refused.code == 1
    assert (
        "told/dev reads training/dev, which is planned in another part"
        in refused.stderr + refused.stdout
    )
    assert (
        "add `after: [training/dev]` to told/dev in stacks.yaml" in refused.stderr + refused.stdout
    )
    assert not (workspace.root / "parts/told/dev.json").exists()


@pytest.mark.exhaustive
def test_no_gate_is_passed_by_applying_one_stack_after_the_other(workspace: Workspace) -> None:
    stacks = "stacks:\n  - {folder: '*', stack: dev}\n"
    (workspace.root / "stacks.yaml").write_text(stacks + BUDGET)
    plan_parts(workspace)
    workspace.run("join", "--save-plan", "plan.json")
    apply = ("up", "--all", "--plan", "plan.json", "--yes", "--stack", "volumes/dev")

    stopped = workspace.run(*apply)

    assert stopped.code == 5
    assert "gate types: stops the plan: training/dev train" in stopped.stderr
    # The gates of today judge the plan, not those that the file of the plan remembers.
    (workspace.root / "stacks.yaml").write_text(stacks)
    assert "volumes/dev  done: 1 created" in workspace.run_successfully(*apply)
    assert "volumes/dev  done: it was applied before" in workspace.run_successfully(*apply)


@pytest.mark.exhaustive
def test_a_second_runner_waits_for_the_first_and_finds_the_part_applied(
    workspace: Workspace,
) -> None:
    """Both look at the history before they lock the stack: the second must look again."""
    plan_parts(workspace)
    workspace.run_successfully("join", "--save-plan", "plan.json")
    apply = ("up", "--all", "--plan", "plan.json", "--yes", "--stack", "volumes/dev")

    with (
        workspace.start(*apply, "--lock-timeout", "10m") as first,
        workspace.start(*apply, "--lock-timeout", "10m") as second,
    ):
        ends = [[*process.communicate(), process.returncode] for process in (first, second)]

    assert [code for _, _, code in ends] == [0, 0], ends
    outcomes = [out.rpartition("done: ")[2].strip() for out, _, _ in ends]
    assert sorted(outcomes) == ["1 created", "it was applied before"]
    state = workspace.export("volumes/dev")
    volumes = [it for it in state["resources"] if "SharedVolume" in it["type"]]
    assert len(volumes) == 1


@pytest.mark.exhaustive
def test_nothing_is_applied_of_a_plan_without_one_of_its_stacks(workspace: Workspace) -> None:
    workspace.run_successfully("preview", "--all", "--save-plan", "plan.json")
    path = workspace.root / "plan.json"
    saved = path.read_bytes()
    digest = hashlib.sha256(saved).hexdigest()
    review = workspace.run_successfully("review", "plan.json")
    assert f"gpuform up --all --plan plan.json --digest {digest}" in review
    apply = ("up", "--all", "--plan", "plan.json", "--yes", "--digest", digest)

    document = json.loads(saved)
    lost = document["plans"].pop()
    path.write_text(json.dumps(document))
    by_digest = workspace.run(*apply)
    by_stacks = workspace.run(*apply[:-2])
    names = [f"{plan['project']}/{plan['stack']}" for plan in document["plans"]]
    for plan in document["plans"]:
        plan["stacks_digest"] = compute_stacks_digest(document["commit"], names)
    path.write_text(json.dumps(document))
    by_seals = workspace.run(*apply[:-2])

    assert f"{lost['project']}/{lost['stack']}" not in names
    assert (by_digest.code, by_stacks.code, by_seals.code) == (1, 1, 1)
    assert "does not have exactly the stacks that were planned together" in by_stacks.stderr
    assert "plan.json was edited after it was saved" in by_seals.stdout + by_seals.stderr
    assert not workspace.export("volumes/dev").get("resources")
    path.write_bytes(saved)
    assert f"Digest: {digest}" in workspace.run_successfully(*apply)
