"""`--all`: several stacks as one plan, one review, one run."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.bucket_server import KEYS, BucketServer, build_bucket_url
from support.stacks.workspace import SECRET, STACK_NAMES, Workspace, create_workspace

from gpuform.providers.emulator.server import serve
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.operations import ExitReason, StackSelection, up_all

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="several") as server:
        yield create_workspace(tmp_path / "fleet", server.url, {}, {})


def refuse_clusters(workspace: Workspace) -> None:
    """Make the platform refuse the next create of a cluster for lack of capacity."""
    fault = {"method": "POST", "path": "^/compute/clusters$", "capacity": True}
    body = json.dumps(fault).encode()
    address = f"{workspace.variables['GPUFORM_CLOCK']}/_emulator/faults"
    request = urllib.request.Request(
        address, body, {"Content-Type": "application/json"}, method="POST"
    )
    urllib.request.urlopen(request).close()


def has_in_order(text: str, *parts: str) -> bool:
    """Return whether a text has these parts one after the other."""
    positions = [text.find(part) for part in parts]
    return -1 not in positions and positions == sorted(positions)


@pytest.mark.sampled(1)
def test_all_and_single_commands_leave_the_same_states(
    tmp_path: Path, bucket_server: BucketServer
) -> None:
    bucket = build_bucket_url(bucket_server.create_bucket(), bucket_server.port)
    backends = {"volumes": bucket, "training": bucket}
    states = []
    for way in ("all", "single"):
        with serve(seed="several") as server:
            made = create_workspace(
                tmp_path / way, server.url, KEYS, backends if way == "all" else {}
            )
            states.append(list(run_lifecycle(made, together=way == "all")))
    for together, single in zip(*states, strict=True):
        assert together == single


SEPARATE_STACKS = """
stacks:
  - {folder: volumes, stack: dev}
  - {folder: training, stack: dev}
  - {folder: told, stack: dev, after: [training/dev]}
"""


def run_lifecycle(workspace: Workspace, *, together: bool) -> Iterator[object]:
    """Yield the states after each step, by commands on all stacks or on one after the other.

    The last stack is in another backend, where it can read nothing of the two.
    """
    (workspace.root / "told/__main__.py").write_text("import pulumi\npulumi.export('x', 1)\n")
    (workspace.root / "stacks.yaml").write_text(SEPARATE_STACKS)

    def do(command: str, *flags: str, reverse: bool = False) -> None:
        if together:
            workspace.run_successfully(command, "--all", "--yes", *flags)
            return
        for name in reversed(STACK_NAMES) if reverse else STACK_NAMES:
            folder, _, stack = name.partition("/")
            workspace.run_successfully(command, "--yes", "--stack", stack, *flags, folder=folder)

    do("up")
    yield workspace.export_all()
    workspace.edit("volumes/topology.yaml", "default: 5", "default: 6")
    workspace.edit("training/topology.yaml", "default: 16", "default: 24")
    do("up")
    yield workspace.export_all()
    do("destroy", reverse=True)
    yield workspace.export_all()


def test_a_plan_of_all_stacks_is_saved_reviewed_and_applied(workspace: Workspace) -> None:
    planned = workspace.run_successfully("preview", "--all", "--save-plan", "plan.json")
    assert 'region:                "us-central-8"' in planned
    assert "volume_id:             [known after apply]" in planned
    assert '+ place:      "in us-central-8"' in planned
    assert SECRET not in planned + (workspace.root / "plan.json").read_text()
    document = json.loads((workspace.root / "plan.json").read_text())
    assert [f"{plan['project']}/{plan['stack']}" for plan in document["plans"]] == [*STACK_NAMES]
    review = workspace.run_successfully("review", "plan.json", "--format", "github")
    assert "# gpuform plan: 3 stacks" in review
    assert "gpuform up --all --plan plan.json" in review

    done = workspace.run_successfully("up", "--all", "--plan", "plan.json", "--yes")
    assert has_in_order(done, "Stacks:", *(f"{name:<12}  done" for name in STACK_NAMES))
    assert SECRET not in done
    outputs = json.loads(
        workspace.run_successfully("stack", "output", "--json", "--stack", "dev", folder="told")
    )
    assert outputs["place"] == "in us-central-8"
    assert "expect" not in workspace.run_successfully("preview", "--all", "--expect-no-changes")
    checked = workspace.run("preview", "--all", "--plan", "plan.json")
    assert (checked.code, "plan.json is out of date" in checked.stdout) == (1, True)
    again = workspace.run("up", "--all", "--plan", "plan.json", "--yes")
    assert again.code == 1
    assert "volumes/dev: the plan plan.json is out of date, and nothing was changed" in again.stderr
    assert "training/dev  not started: volumes/dev failed" in again.stdout


def test_an_outdated_stack_of_a_plan_stops_only_its_dependents(workspace: Workspace) -> None:
    workspace.run_successfully("up", "--all", "--yes")
    workspace.edit("volumes/topology.yaml", "default: 5", "default: 6")
    workspace.edit("training/topology.yaml", "default: 16", "default: 24")
    workspace.run_successfully("preview", "--all", "--save-plan", "plan.json")
    workspace.edit("training/topology.yaml", "default: 24", "default: 32")
    done = workspace.run("up", "--all", "--plan", "plan.json", "--yes")
    assert done.code == 1
    assert "volumes/dev   done: 1 updated" in done.stdout
    assert "training/dev  failed: the plan plan.json is out of date" in done.stdout
    assert "told/dev      not started: training/dev failed" in done.stdout
    assert "declares different inputs: num_gpus" in done.stderr


def test_a_failed_preview_changes_no_stack(workspace: Workspace) -> None:
    workspace.edit("training/topology.yaml", "gpu_type: H100_SXM", "gpu_type: NO_SUCH_GPU")
    done = workspace.run("up", "--all", "--yes")
    assert done.code == 1
    assert "error: the plan failed: nothing was changed" in done.stderr
    assert "told/dev: not started: training/dev failed" in done.stdout
    assert workspace.export("volumes/dev").get("resources") is None


def test_a_failed_stack_stops_its_dependents_and_the_next_run_resumes(workspace: Workspace) -> None:
    refuse_clusters(workspace)
    done = workspace.run("up", "--all", "--yes")
    assert done.code == 1
    assert "volumes/dev   done: 1 created" in done.stdout
    (failed,) = (line for line in done.stdout.splitlines() if "training/dev  failed" in line)
    assert "Together is out of capacity: it has no 16 H100_SXM GPUs free" in failed
    assert "told/dev      not started: training/dev failed" in done.stdout
    again = workspace.run_successfully("up", "--all", "--yes")
    assert has_in_order(again, "Stacks:", *(f"{name:<12}  done" for name in STACK_NAMES))


STORAGE = "{platform: together, unit: TiB, per_month: 73}"


def test_a_gate_over_all_stacks_sums_their_costs(workspace: Workspace) -> None:
    (workspace.root / "stacks.yaml").write_text(
        "stacks:\n  - {folder: '*', stack: dev}\n"
        "gates:\n  budget: {max_hourly_cost: {amount: 10, currency: USD}}\n"
    )
    price = "{platform: together, gpu_type: H100_SXM, per_hour: 2.5}"
    prices = f"currency: USD\ngpus:\n  - {price}\nstorage: [{STORAGE}]\n"
    for project in ("training", "volumes"):
        (workspace.root / project / "prices.yaml").write_text(prices)
    done = workspace.run("up", "--all", "--yes")
    assert done.code == 5, done.stdout + done.stderr
    assert "the plan costs 40.50 USD/h: the limit is 10.00" in done.stderr
    assert workspace.run("up", "--all", "--yes", "--allow", "gate:budget").code == 0
    workspace.edit("volumes/topology.yaml", "default: 5", "default: 6")
    alone = workspace.run("preview", "--all", "--filter", "volumes")
    assert "the plan costs 40.60 USD/h: the limit is 10.00" in alone.stderr, alone.stdout


def test_json_of_all_stacks_names_each_stack(workspace: Workspace) -> None:
    previews = json.loads(workspace.run_successfully("preview", "--all", "--json"))
    assert [*previews["stacks"]] == [*STACK_NAMES]
    assert previews["stacks"]["volumes/dev"]["changeSummary"] == {"create": 2}
    lines = workspace.run_successfully("up", "--all", "--json", "--yes").splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["stack"] for event in events} == {*STACK_NAMES}
    assert SECRET not in "".join(lines)


def test_filter_selects_stacks(workspace: Workspace) -> None:
    done = workspace.run_successfully("up", "--all", "--yes", "--filter", "volumes")
    assert "training/dev" not in done
    assert "training/dev: planned" in workspace.run_successfully(
        "preview", "--all", "--filter", "...training"
    )
    missing = workspace.run("preview", "--all", "--filter", "nothing")
    assert missing.code == 1
    assert "--filter nothing matches none of the stacks" in missing.stderr


def test_drift_of_all_stacks_is_clean_after_up(workspace: Workspace) -> None:
    workspace.run_successfully("up", "--all", "--yes")
    done = workspace.run("drift", "--all", "--detailed-exitcode")
    assert done.code == 0, done.stdout + done.stderr
    assert "Nothing was changed outside of the stack." in done.stdout


@pytest.mark.sampled(1)
def test_a_program_plans_declines_and_applies_all_stacks(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in workspace.variables.items():
        monkeypatch.setenv(name, value)
    selection = StackSelection(workspace.root, filters=["volumes"])
    shown: list[str] = []

    def decline(plan: StacksPlan) -> bool:
        shown.extend(f"{one.project}/{one.stack}" for one in plan.plans)
        return False

    declined = up_all(selection, confirm=decline)
    applied = up_all(selection)

    assert (declined.reason, shown) == (ExitReason.DECLINED, ["volumes/dev"])
    assert applied.succeeded
    assert applied.stacks["volumes/dev"].summary == "1 created"
