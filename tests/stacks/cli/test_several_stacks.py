"""`--all`: several stacks as one plan, one review, one run."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.bucket_server import KEYS, BucketServer, build_bucket_url
from support.stacks.workspace import SECRET, STACK_NAMES, Workspace, create_workspace

from gpuform.providers.emulator.server import serve

pytestmark = pytest.mark.slow


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="several") as server:
        yield create_workspace(tmp_path / "fleet", server.url, {}, {})


def refuse_clusters(estate: Workspace) -> None:
    """The next cluster that is to be made finds no capacity."""
    fault = {"method": "POST", "path": "^/compute/clusters$", "capacity": True}
    body = json.dumps(fault).encode()
    address = f"{estate.variables['GPUFORM_CLOCK']}/_emulator/faults"
    request = urllib.request.Request(
        address, body, {"Content-Type": "application/json"}, method="POST"
    )
    urllib.request.urlopen(request).close()


def ordered(text: str, *parts: str) -> bool:
    """Whether a text has these parts, one after the other."""
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


@pytest.mark.sampled(1)
def test_the_life_of_several_stacks_over_two_backends(
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
            states.append(list(live(made, together=way == "all")))
    for together, single in zip(*states, strict=True):
        assert together == single


APART = """
stacks:
  - {folder: volumes, stack: dev}
  - {folder: training, stack: dev}
  - {folder: told, stack: dev, after: [training/dev]}
"""


def live(estate: Workspace, *, together: bool) -> Iterator[object]:
    """The states after each of its steps, by commands on all stacks or on one after the other.

    The last stack is in another backend, where it can read nothing of the two.
    """
    (estate.root / "told/__main__.py").write_text("import pulumi\npulumi.export('x', 1)\n")
    (estate.root / "stacks.yaml").write_text(APART)

    def do(command: str, *flags: str, reverse: bool = False) -> None:
        if together:
            estate.run_successfully(command, "--all", "--yes", *flags)
            return
        for name in reversed(STACK_NAMES) if reverse else STACK_NAMES:
            folder, _, stack = name.partition("/")
            estate.run_successfully(command, "--yes", "--stack", stack, *flags, folder=folder)

    do("up")
    yield estate.export_all()
    estate.edit("volumes/topology.yaml", "default: 5", "default: 6")
    estate.edit("training/topology.yaml", "default: 16", "default: 24")
    do("up")
    yield estate.export_all()
    do("destroy", reverse=True)
    yield estate.export_all()


def test_a_plan_of_all_is_saved_reviewed_and_applied(estate: Workspace) -> None:
    planned = estate.run_successfully("preview", "--all", "--save-plan", "plan.json")
    assert 'region:                "us-central-8"' in planned
    assert "volume_id:             [known after apply]" in planned
    assert '+ place:      "in us-central-8"' in planned
    assert SECRET not in planned + (estate.root / "plan.json").read_text()
    document = json.loads((estate.root / "plan.json").read_text())
    assert [f"{each['project']}/{each['stack']}" for each in document["plans"]] == [*STACK_NAMES]
    review = estate.run_successfully("review", "plan.json", "--format", "github")
    assert "# gpuform plan: 3 stacks" in review
    assert "gpuform up --all --plan plan.json" in review

    done = estate.run_successfully("up", "--all", "--plan", "plan.json", "--yes")
    assert ordered(done, "Stacks:", *(f"{name:<12}  done" for name in STACK_NAMES))
    assert SECRET not in done
    outputs = json.loads(
        estate.run_successfully("stack", "output", "--json", "--stack", "dev", folder="told")
    )
    assert outputs["place"] == "in us-central-8"
    assert "expect" not in estate.run_successfully("preview", "--all", "--expect-no-changes")
    again = estate.run("up", "--all", "--plan", "plan.json", "--yes")
    assert again.code == 1
    assert "volumes/dev: the plan plan.json is out of date, and nothing was changed" in again.stderr
    assert "training/dev  not started: volumes/dev failed" in again.stdout


def test_an_overtaken_part_stops_what_depends_on_it_alone(estate: Workspace) -> None:
    estate.run_successfully("up", "--all", "--yes")
    estate.edit("volumes/topology.yaml", "default: 5", "default: 6")
    estate.edit("training/topology.yaml", "default: 16", "default: 24")
    estate.run_successfully("preview", "--all", "--save-plan", "plan.json")
    estate.edit("training/topology.yaml", "default: 24", "default: 32")
    done = estate.run("up", "--all", "--plan", "plan.json", "--yes")
    assert done.code == 1
    assert "volumes/dev   done: 1 updated" in done.stdout
    assert "training/dev  failed: the plan plan.json is out of date" in done.stdout
    assert "told/dev      not started: training/dev failed" in done.stdout
    assert "declares different inputs: num_gpus" in done.stderr


def test_a_preview_that_fails_changes_nothing_anywhere(estate: Workspace) -> None:
    estate.edit("training/topology.yaml", "gpu_type: H100_SXM", "gpu_type: NO_SUCH_GPU")
    done = estate.run("up", "--all", "--yes")
    assert done.code == 1
    assert "error: the plan failed: nothing was changed" in done.stderr
    assert "told/dev: not started: training/dev failed" in done.stdout
    assert estate.export("volumes/dev").get("resources") is None


def test_what_fails_stops_what_depends_on_it_and_the_next_run_goes_on(estate: Workspace) -> None:
    refuse_clusters(estate)
    done = estate.run("up", "--all", "--yes")
    assert done.code == 1
    assert "volumes/dev   done: 1 created" in done.stdout
    (failed,) = (each for each in done.stdout.splitlines() if "training/dev  failed" in each)
    assert "Together is out of capacity: it has no 16 H100_SXM GPUs free" in failed
    assert "told/dev      not started: training/dev failed" in done.stdout
    again = estate.run_successfully("up", "--all", "--yes")
    assert ordered(again, "Stacks:", *(f"{name:<12}  done" for name in STACK_NAMES))


STORAGE = "{platform: together, unit: TiB, per_month: 73}"


def test_one_gate_over_all(estate: Workspace) -> None:
    (estate.root / "stacks.yaml").write_text(
        "stacks:\n  - {folder: '*', stack: dev}\n"
        "gates:\n  budget: {max_hourly_cost: {amount: 10, currency: USD}}\n"
    )
    price = "{platform: together, gpu_type: H100_SXM, per_hour: 2.5}"
    prices = f"currency: USD\ngpus:\n  - {price}\nstorage: [{STORAGE}]\n"
    for project in ("training", "volumes"):
        (estate.root / project / "prices.yaml").write_text(prices)
    done = estate.run("up", "--all", "--yes")
    assert done.code == 5, done.stdout + done.stderr
    assert "the plan costs 40.50 USD/h: the limit is 10.00" in done.stderr
    assert estate.run("up", "--all", "--yes", "--allow", "gate:budget").code == 0
    estate.edit("volumes/topology.yaml", "default: 5", "default: 6")
    alone = estate.run("preview", "--all", "--filter", "volumes")
    assert "the plan costs 40.60 USD/h: the limit is 10.00" in alone.stderr, alone.stdout


def test_json(estate: Workspace) -> None:
    previews = json.loads(estate.run_successfully("preview", "--all", "--json"))
    assert [*previews["stacks"]] == [*STACK_NAMES]
    assert previews["stacks"]["volumes/dev"]["changeSummary"] == {"create": 2}
    lines = estate.run_successfully("up", "--all", "--json", "--yes").splitlines()
    events = [json.loads(line) for line in lines]
    assert {each["stack"] for each in events} == {*STACK_NAMES}
    assert SECRET not in "".join(lines)


def test_a_filter(estate: Workspace) -> None:
    done = estate.run_successfully("up", "--all", "--yes", "--filter", "volumes")
    assert "training/dev" not in done
    assert "training/dev: planned" in estate.run_successfully(
        "preview", "--all", "--filter", "...training"
    )
    missing = estate.run("preview", "--all", "--filter", "nothing")
    assert missing.code == 1
    assert "--filter nothing matches none of the stacks" in missing.stderr


def test_drift_of_all(estate: Workspace) -> None:
    estate.run_successfully("up", "--all", "--yes")
    done = estate.run("drift", "--all", "--detailed-exitcode")
    assert done.code == 0, done.stdout + done.stderr
    assert "Nothing was changed outside." in done.stdout
