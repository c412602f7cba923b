"""What newcomers do in their first days, with the command `gpuform` alone: each journey is a test.

Asserted is what a person decides by: what would be lost, in which world, and what to do next.
"""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from processes.commands import path_with_gpuform
from processes.limits import LAST_RESORT

from gpuform.providers.emulator.server import Server, environment
from gpuform.stacks.projects import templates

pytestmark = [pytest.mark.slow, pytest.mark.sampled(6)]

AN_HOUR = 3600
BY_HAND = {
    "cluster_name": "by hand",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "billing_type": "ON_DEMAND",
}


@dataclass(frozen=True)
class Newcomer:
    """Somebody at a terminal in `folder`, whose commands are typed as one line each."""

    folder: Path
    environ: dict[str, str]

    def types(self, line: str, code: int = 0) -> str:
        """What is printed, on stdout and stderr, by a command that ends with this exit code."""
        words = line.split()
        assert words[0] == "gpuform"
        done = subprocess.run(
            [shutil.which("gpuform", path=path_with_gpuform()) or "", *words[1:]],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
            timeout=LAST_RESORT,
        )
        assert done.returncode == code, done.stdout
        assert "Traceback" not in done.stdout
        assert not re.search(r"\b1 (GPUs|resources|nodes|problems|checks)\b", done.stdout)
        return done.stdout

    def goes_to(self, folder: str) -> "Newcomer":
        path = self.folder / folder
        path.mkdir(exist_ok=True)
        return Newcomer(path, self.environ)

    def edits(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    """An empty home, no credentials of any platform."""
    home = tmp_path / "home"
    home.mkdir()
    projects = tmp_path / "projects"
    projects.mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PULUMI_HOME": str(home / ".pulumi"),
        "PULUMI_CONFIG_PASSPHRASE": "only a newcomer's",
    }
    return Newcomer(projects, environ)


@pytest.fixture
def trainer(newcomer: Newcomer) -> Newcomer:
    """In a project of the training template, with an emulated stack that is up: 16 GPUs."""
    newcomer.types("gpuform new together-training --dir training")
    there = newcomer.goes_to("training")
    there.types("gpuform stack init dev --emulate")
    there.types("gpuform up --emulate --yes")
    return there


@dataclass(frozen=True)
class Colleague:
    """Somebody who works past every stack, in the console of the platform."""

    url: str

    def asks(self, method: str, path: str, body: dict[str, object]) -> dict[str, object]:
        headers = {"Authorization": "Bearer emulator-admin-key"}
        answer = httpx.request(
            method,
            f"{self.url}/{path}",
            json=body,
            headers=headers,
            trust_env=False,
            verify=False,
        )
        return answer.raise_for_status().json()

    def sleeps(self, seconds: int) -> None:
        self.asks("POST", "_emulator/clock", {"advance": seconds})

    def makes_a_cluster(self) -> str:
        made = self.asks("POST", "together/v1/compute/clusters", BY_HAND)
        self.sleeps(2 * AN_HOUR)
        return str(made["cluster_id"])

    def resizes(self, cluster: str, gpus: int) -> None:
        self.asks("PUT", f"together/v1/compute/clusters/{cluster}", {"num_gpus": gpus})
        self.sleeps(2 * AN_HOUR)


@pytest.fixture
def colleague(emulator: Server) -> Colleague:
    found = Colleague(emulator.url)
    found.asks("POST", "_emulator/reset", {})
    return found


@pytest.fixture
def beside(newcomer: Newcomer, colleague: Colleague) -> Newcomer:
    """As `trainer`, but the emulator is a server, and the colleague works on it, too."""
    newcomer.environ.update(environment(colleague.url))
    newcomer.types("gpuform new together-training --dir training")
    there = newcomer.goes_to("training")
    there.types("gpuform stack init dev")
    there.types("gpuform up --yes")
    return there


@pytest.mark.parametrize("template", sorted(templates()))
def test_a_first_stack_from_a_template(newcomer: Newcomer, template: str) -> None:
    assert template in newcomer.types("gpuform new")
    told = newcomer.types(f"gpuform new {template} --dir first")
    assert "\n  gpuform stack init dev --emulate\n  gpuform up --emulate\n" in told

    there = newcomer.goes_to("first")
    assert " on the emulator." in there.types("gpuform stack init dev --emulate")
    plan = there.types("gpuform preview --emulate")
    assert plan.startswith("Previewing update (dev, emulated):")
    (planned,) = re.findall(r"\+ (\d+) to create", plan)

    done = there.types("gpuform up --emulate --yes")
    assert f"+ {planned} created" in done
    assert "The plan is not fully checked" not in done
    assert f"{planned} unchanged" in there.types("gpuform preview --emulate --expect-no-changes")

    status = there.types("gpuform status --emulate")
    assert status.startswith("Stack dev lives on the emulator: its resources are not real.")
    assert re.search(rf"^{planned} resources?\b", status, re.MULTILINE)
    counted = int(planned) + 2  # the stack and its provider, which Pulumi's list counts
    assert f" {counted} " in there.types("gpuform stack ls")
    assert re.search(rf"\n  resources +{planned}\n", there.types("gpuform about"))

    gone = there.types("gpuform destroy --emulate --yes --remove")
    assert f"- {planned} deleted" in gone
    assert "dev" not in there.types("gpuform stack ls")


def test_growing_and_shrinking(trainer: Newcomer) -> None:
    assert "did you mean gpus?" in trainer.types("gpuform config set gpu 24", code=1)
    assert "not a multiple of 8" in trainer.types("gpuform config set gpus 20", code=1)

    trainer.types("gpuform config set gpus 24")
    grown = trainer.types("gpuform up --emulate --yes")
    assert "~ num_gpus: 16 => 24" in grown
    assert "Dangerous changes" not in grown
    assert "2 resources, 24 GPUs" in trainer.types("gpuform status --emulate")

    trainer.types("gpuform config set gpus 8")
    plan = trainer.types("gpuform preview --emulate")
    assert "update train: removes 16 GPUs" in plan
    assert plan.count(": idle\n") == 2
    assert "~ 1 updated" in trainer.types("gpuform up --emulate --yes")
    assert "2 resources, 8 GPUs" in trainer.types("gpuform status --emulate")


def test_replacing_by_a_reviewed_plan(trainer: Newcomer) -> None:
    trainer.edits("topology.yaml", "us-central-8", "us-central-4")
    lost = (
        "replace train: destroys 16 GPUs",
        "replace data: destroys a volume of 5 TiB and its data",
    )

    planned = trainer.types("gpuform preview --emulate --save-plan plan.json")
    assert all(each in planned for each in lost)
    review = trainer.types("gpuform review plan.json --fail-on-danger", code=3)
    assert review.startswith("Plan of training/dev (emulated): update")
    assert all(each in review for each in lost)
    assert "16 destroyed, 16 added" in review
    (told,) = re.findall(r"^    (gpuform up .*)$", review, re.MULTILINE)
    assert "cannot ask for it here" in trainer.types(told, code=1)

    done = trainer.types(f"{told} --yes")
    assert all(each in done for each in lost)
    assert "+-2 replaced" in done
    assert "a plan can be applied only once" in trainer.types(f"{told} --yes", code=1)
    trainer.types("gpuform preview --emulate --expect-no-changes")


def test_destroying_by_a_reviewed_plan(trainer: Newcomer) -> None:
    planned = trainer.types("gpuform destroy --emulate --save-plan gone.json")
    assert "- 2 to delete" in planned
    assert "delete data: destroys a volume of 5 TiB and its data" in planned
    assert "2 resources, 16 GPUs" in trainer.types("gpuform status --emulate")

    review = trainer.types("gpuform review gone.json")
    assert review.startswith("Plan of training/dev (emulated): destroy")
    (told,) = re.findall(r"^    (gpuform destroy .*)$", review, re.MULTILINE)
    assert "cannot ask for it here" in trainer.types(told, code=1)
    assert "- 2 deleted" in trainer.types("gpuform up --emulate --plan gone.json --yes")
    assert "has no resources" in trainer.types("gpuform status --emulate")


def test_taking_over_what_somebody_made_by_hand(beside: Newcomer, colleague: Colleague) -> None:
    made = colleague.makes_a_cluster()
    assert made in beside.types("gpuform orphans", code=3)
    shown = beside.types(f"gpuform import together:Cluster hand {made} --preview-only")
    assert f"options: {{import: {made}}}" in shown

    done = beside.types(f"gpuform import together:Cluster hand {made} --yes")
    assert "topology.yaml: 1 entry added" in done
    assert "import: the stack takes over the existing object unchanged" in done
    assert "= 1 imported" in done
    assert "\n  hand:\n    platform: together\n" in (beside.folder / "topology.yaml").read_text()
    beside.types("gpuform preview --expect-no-changes")
    assert "Nothing to import." in beside.types(
        f"gpuform import together:Cluster hand {made} --yes"
    )
    beside.types("gpuform orphans")
    assert "3 resources, 24 GPUs" in beside.types("gpuform status")


def test_drift_is_seen_and_undone(beside: Newcomer, colleague: Colleague) -> None:
    assert "Nothing was changed outside." in beside.types("gpuform drift --detailed-exitcode")
    cluster = beside.types("gpuform stack output cluster_id").strip()
    colleague.resizes(cluster, 24)

    assert "2 unchanged" in beside.types("gpuform preview")
    drift = beside.types("gpuform drift --detailed-exitcode", code=2)
    assert drift.startswith("Drift of training/dev (emulated)")
    assert "~ num_gpus: 16 => 24" in drift

    undone = beside.types("gpuform up --refresh --yes")
    assert "train  together:Cluster  refreshed: changed outside of this stack" in undone
    assert "~ num_gpus: 24 => 16" in undone
    assert "update train: removes 8 GPUs" in undone
    beside.types("gpuform drift --detailed-exitcode")
    assert "2 resources, 16 GPUs" in beside.types("gpuform status --refresh")


def test_drift_is_taken_over(beside: Newcomer, colleague: Colleague) -> None:
    cluster = beside.types("gpuform stack output cluster_id").strip()
    colleague.resizes(cluster, 24)
    assert "~ num_gpus: 16 => 24" in beside.types("gpuform refresh --yes")
    assert "2 resources, 24 GPUs" in beside.types("gpuform status")
    beside.types("gpuform config set gpus 24")
    beside.types("gpuform preview --expect-no-changes")


def test_what_has_expired_goes(beside: Newcomer, colleague: Colleague) -> None:
    beside.edits("topology.yaml", "ON_DEMAND", "ON_DEMAND\n    ttl: 1d")
    told = beside.types("gpuform up --yes")
    assert "a setting of gpuform: nothing is sent" in told
    assert "train: expires in " in told
    assert "train: expires in " in beside.types("gpuform status")
    assert "2 unchanged" in beside.types("gpuform expire --dry-run")

    colleague.sleeps(25 * AN_HOUR)
    due = beside.types("gpuform expire --dry-run", code=3)
    assert "delete: it has expired  (-16 GPUs)" in due
    assert "delete train: destroys 16 GPUs" in due
    assert "- 1 deleted" in beside.types("gpuform expire --yes")
    assert "train" not in beside.types("gpuform status")

    refused = beside.types("gpuform up --yes", code=1)
    assert "topology.yaml:22:10" in refused
    assert "--allow renew-expired" in refused
    again = beside.types("gpuform up --yes --allow renew-expired")
    assert "+ 1 created" in again


@pytest.mark.parametrize(
    ("forge", "workflow"),
    [("github", ".github/workflows/gpuform.yml"), ("gitlab", ".gitlab-ci.yml")],
)
def test_workflows_for_the_repository(newcomer: Newcomer, forge: str, workflow: str) -> None:
    newcomer.types("gpuform new tensorone-dev --dir bench")
    there = newcomer.goes_to("bench")
    assert "--forge" in there.types("gpuform new ci --stack prod", code=2)

    told = there.types(f"gpuform new ci --stack prod --forge {forge}")
    assert workflow in told
    assert f"The first lines of {workflow} list the variables" in told
    assert "warning: the state is in file://" in told
    assert "run the command again with --force --backend URL" in told
    again = f"gpuform new ci --stack prod --forge {forge} --backend s3://team?region=eu-central-1"
    assert f"overwrite   {workflow}" in there.types(again, code=1)
    assert "warning" not in there.types(f"{again} --force")
    assert "up --stack 'prod' --plan plan.json" in (there.folder / workflow).read_text()
    (wheel,) = (there.folder / "wheels").iterdir()
    needed = (there.folder / "requirements.txt").read_text()
    assert f"./wheels/{wheel.name}[cloud]" in needed


def test_a_module_for_each_team(newcomer: Newcomer) -> None:
    newcomer.types("gpuform new together-training --dir teams")
    there = newcomer.goes_to("teams")
    (there.folder / "pool.yaml").write_text(POOL)
    (there.folder / "topology.yaml").write_text(TEAMS)
    there.types("gpuform stack init dev --emulate")

    there.edits("pool.yaml", "H100_SXM", "H100_SMX")
    wrong = there.types("gpuform validate", code=1)
    assert "pool.yaml:7:77, included at topology.yaml:2:5: " in wrong
    assert "did you mean H100_SXM?" in wrong
    there.edits("pool.yaml", "H100_SMX", "H100_SXM")
    there.edits("topology.yaml", "gpus: 8", "gpu: 8")
    assert "did you mean gpus?" in there.types("gpuform preview --emulate", code=1)
    there.edits("topology.yaml", "gpu: 8", "gpus: 8")

    there.types("gpuform validate")
    assert "+  team-nlp-train  together:Cluster  create  (+8 GPUs)" in there.types(
        "gpuform up --emulate --yes"
    )
    status = there.types("gpuform status --emulate")
    assert "team-vision-train" in status
    assert "16 GPUs" in status
    there.edits("topology.yaml", ", vision: us-central-4", "")
    assert "delete team-vision-train: destroys 8 GPUs" in there.types("gpuform preview --emulate")


POOL = """\
inputs:
  label: {}
  region: {}
  gpus: {type: integer, multiple_of: 8}
clusters:
  train: {platform: together, cluster_name: "{{ inputs.label }}", region: "{{ inputs.region }}",
    num_gpus: "{{ inputs.gpus }}", driver_version: CUDA_12_6_560, gpu_type: H100_SXM,
    billing_type: ON_DEMAND}
"""
TEAMS = """\
include:
  - file: pool.yaml
    name: team
    for_each: {nlp: us-central-8, vision: us-central-4}
    with: {label: "team-{{ each.key }}", region: "{{ each.value }}", gpus: 8}
"""


def test_looking_round(trainer: Newcomer) -> None:
    offers = trainer.types("gpuform offers --emulate --platform together --gpu H100")
    assert re.search(r"together +us-central-8 +GPU type +gpu_type +H100_SXM ", offers)
    assert "H200" not in offers
    listed = json.loads(trainer.types("gpuform offers --emulate --platform together --json"))
    assert listed

    assert trainer.types("gpuform console --emulate -e clusters.train.num_gpus*2") == "32\n"
    assert trainer.types("gpuform console --emulate -e clusters.train.kube_config") == "[secret]\n"
    assert "did you mean clusters.train?" in trainer.types(
        "gpuform console --emulate -e clusters.tran.id", code=1
    )


def test_the_emulated_and_the_real_world(trainer: Newcomer) -> None:
    looks = ("preview", "drift", "status --refresh")
    for command in (*looks, "up --yes", "destroy --yes", "refresh --yes"):
        refused = trainer.types(f"gpuform {command}", code=1)
        assert "the stack lives on the emulator" in refused
        assert "add --emulate" in refused
        assert "gpuform stack init NAME" in refused

    assert "lives on the emulator" in trainer.types("gpuform status")

    trainer.types("gpuform stack init prod")
    plan = trainer.types("gpuform preview")
    assert plan.startswith(
        "Previewing update (prod):\n\nThe plan is not fully checked: 1 check could not run"
    )
    assert "Set TOGETHER_API_KEY" in plan
    trainer.types("gpuform preview --require-checks", code=4)
    failed = trainer.types("gpuform up --yes", code=1)
    assert "gpuform config set --secret together:apiKey" in failed
    for command in ("up --yes", "destroy --yes", "refresh --yes", "status"):
        assert "real platforms" in trainer.types(f"gpuform {command} --emulate", code=1)
    assert "2 resources, 16 GPUs" in trainer.types("gpuform status --emulate --stack dev")


def test_a_selector_with_a_typing_error(trainer: Newcomer) -> None:
    for command in (
        "destroy --exclude trian --yes",
        "destroy --target trian --yes",
        "up --target trian --yes",
        "up --replace trian --yes",
        "preview --target-replace trian",
        "preview --exclude trian",
        "refresh --target trian --yes",
    ):
        assert "did you mean train?" in trainer.types(f"gpuform {command} --emulate", code=1)
    assert "2 unchanged" in trainer.types("gpuform preview --emulate --expect-no-changes")

    kept = trainer.types("gpuform destroy --exclude train --preview-only --emulate")
    assert "--exclude train also leaves unchanged: data (train depends on it)" in kept
    assert "delete" not in kept


def test_work_in_a_subfolder(trainer: Newcomer) -> None:
    there = trainer.goes_to("notes").goes_to("today")
    there.types("gpuform preview --emulate --expect-no-changes")
    assert "2 resources, 16 GPUs" in there.types("gpuform status --emulate")
    there.types("gpuform preview --emulate --save-plan plan.json")
    assert (there.folder / "plan.json").exists()  # what is typed is relative to where it is typed
    assert {path.name for path in there.folder.iterdir()} == {"plan.json"}
    assert "- 2 deleted" in there.types("gpuform destroy --emulate --yes")
    assert "has no resources" in trainer.types("gpuform status --emulate")
