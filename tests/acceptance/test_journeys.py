"""The first days of newcomers with the command `gpuform` alone: each journey is a test.

The tests assert what a person decides by: possible losses, the environment, and the next step.
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
from processes.commands import build_path_with_gpuform
from processes.limits import LAST_RESORT

from gpuform.providers.emulator.server import Server, environment
from gpuform.stacks.new_project import list_templates

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
    """Somebody at a terminal in `folder`, who types commands as one line each."""

    folder: Path
    environ: dict[str, str]

    def run(self, line: str, code: int = 0) -> str:
        """Run a command, check the exit code, and return stdout and stderr."""
        words = line.split()
        assert words[0] == "gpuform"
        done = subprocess.run(
            [shutil.which("gpuform", path=build_path_with_gpuform()) or "", *words[1:]],
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

    def enter(self, folder: str) -> "Newcomer":
        path = self.folder / folder
        path.mkdir(exist_ok=True)
        return Newcomer(path, self.environ)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new))


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    """Return a newcomer with an empty home, without credentials of any platform."""
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
    """Return a newcomer in a training project, with an emulated stack of 16 GPUs."""
    newcomer.run("gpuform new together-training --dir training")
    there = newcomer.enter("training")
    there.run("gpuform stack init dev --emulate")
    there.run("gpuform up --emulate --yes")
    return there


@dataclass(frozen=True)
class Colleague:
    """Somebody who changes objects in the platform's console, outside of every stack."""

    url: str

    def send_request(self, method: str, path: str, body: dict[str, object]) -> dict[str, object]:
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

    def advance_clock(self, seconds: int) -> None:
        self.send_request("POST", "_emulator/clock", {"advance": seconds})

    def create_cluster(self) -> str:
        made = self.send_request("POST", "together/v1/compute/clusters", BY_HAND)
        self.advance_clock(2 * AN_HOUR)
        return str(made["cluster_id"])

    def resize_cluster(self, cluster: str, gpus: int) -> None:
        self.send_request("PUT", f"together/v1/compute/clusters/{cluster}", {"num_gpus": gpus})
        self.advance_clock(2 * AN_HOUR)


@pytest.fixture
def colleague(emulator: Server) -> Colleague:
    colleague_at_console = Colleague(emulator.url)
    colleague_at_console.send_request("POST", "_emulator/reset", {})
    return colleague_at_console


@pytest.fixture
def shared_trainer(newcomer: Newcomer, colleague: Colleague) -> Newcomer:
    """Return a newcomer like `trainer`, on the colleague's emulator."""
    newcomer.environ.update(environment(colleague.url))
    newcomer.run("gpuform new together-training --dir training")
    there = newcomer.enter("training")
    there.run("gpuform stack init dev")
    there.run("gpuform up --yes")
    return there


@pytest.mark.parametrize("template", sorted(list_templates()))
def test_a_first_stack_from_a_template(newcomer: Newcomer, template: str) -> None:
    assert template in newcomer.run("gpuform new")
    output = newcomer.run(f"gpuform new {template} --dir first")
    assert "\n  gpuform stack init dev --emulate\n  gpuform up --emulate\n" in output

    there = newcomer.enter("first")
    assert " on the emulator." in there.run("gpuform stack init dev --emulate")
    plan = there.run("gpuform preview --emulate")
    assert plan.startswith("Previewing update (dev, emulated):")
    (planned,) = re.findall(r"\+ (\d+) to create", plan)

    done = there.run("gpuform up --emulate --yes")
    assert f"+ {planned} created" in done
    assert "The plan is not fully checked" not in done
    assert f"{planned} unchanged" in there.run("gpuform preview --emulate --expect-no-changes")

    status = there.run("gpuform status --emulate")
    assert status.startswith("Stack dev lives on the emulator: its resources are not real.")
    assert re.search(rf"^{planned} resources?\b", status, re.MULTILINE)
    counted = int(planned) + 2  # the stack and its provider, which Pulumi's list counts
    assert f" {counted} " in there.run("gpuform stack ls")
    assert re.search(rf"\n  resources +{planned}\n", there.run("gpuform about"))

    gone = there.run("gpuform destroy --emulate --yes --remove")
    assert f"- {planned} deleted" in gone
    assert "dev" not in there.run("gpuform stack ls")


def test_a_cluster_grows_and_shrinks(trainer: Newcomer) -> None:
    assert "did you mean gpus?" in trainer.run("gpuform config set gpu 24", code=1)
    assert "not a multiple of 8" in trainer.run("gpuform config set gpus 20", code=1)

    trainer.run("gpuform config set gpus 24")
    grown = trainer.run("gpuform up --emulate --yes")
    assert "~ num_gpus: 16 => 24" in grown
    assert "Dangerous changes" not in grown
    assert "2 resources, 24 GPUs" in trainer.run("gpuform status --emulate")

    trainer.run("gpuform config set gpus 8")
    plan = trainer.run("gpuform preview --emulate")
    assert "update train: removes 16 GPUs" in plan
    assert plan.count(": idle\n") == 2
    assert "~ 1 updated" in trainer.run("gpuform up --emulate --yes")
    assert "2 resources, 8 GPUs" in trainer.run("gpuform status --emulate")


def test_a_reviewed_plan_replaces_resources_once(trainer: Newcomer) -> None:
    trainer.edit("topology.yaml", "us-central-8", "us-central-4")
    lost = (
        "replace train: destroys 16 GPUs",
        "replace data: destroys a volume of 5 TiB and its data",
    )

    planned = trainer.run("gpuform preview --emulate --save-plan plan.json")
    assert all(loss in planned for loss in lost)
    review = trainer.run("gpuform review plan.json --fail-on-danger", code=3)
    assert review.startswith("Plan of training/dev (emulated): update")
    assert all(loss in review for loss in lost)
    assert "16 destroyed, 16 added" in review
    (command,) = re.findall(r"^    (gpuform up .*)$", review, re.MULTILINE)
    assert "cannot ask for it here" in trainer.run(command, code=1)

    done = trainer.run(f"{command} --yes")
    assert all(loss in done for loss in lost)
    assert "+-2 replaced" in done
    assert "a plan can be applied only once" in trainer.run(f"{command} --yes", code=1)
    trainer.run("gpuform preview --emulate --expect-no-changes")


def test_a_reviewed_plan_destroys_a_stack(trainer: Newcomer) -> None:
    planned = trainer.run("gpuform destroy --emulate --save-plan gone.json")
    assert "- 2 to delete" in planned
    assert "delete data: destroys a volume of 5 TiB and its data" in planned
    assert "2 resources, 16 GPUs" in trainer.run("gpuform status --emulate")

    review = trainer.run("gpuform review gone.json")
    assert review.startswith("Plan of training/dev (emulated): destroy")
    (command,) = re.findall(r"^    (gpuform destroy .*)$", review, re.MULTILINE)
    assert "cannot ask for it here" in trainer.run(command, code=1)
    assert "- 2 deleted" in trainer.run("gpuform up --emulate --plan gone.json --yes")
    assert "has no resources" in trainer.run("gpuform status --emulate")


def test_a_cluster_created_by_hand_is_imported(
    shared_trainer: Newcomer, colleague: Colleague
) -> None:
    made = colleague.create_cluster()
    assert made in shared_trainer.run("gpuform orphans", code=3)
    preview = shared_trainer.run(f"gpuform import together:Cluster hand {made} --preview-only")
    assert f"options: {{import: {made}}}" in preview

    done = shared_trainer.run(f"gpuform import together:Cluster hand {made} --yes")
    assert "topology.yaml: 1 entry added" in done
    assert "import: the stack takes over the existing object unchanged" in done
    assert "= 1 imported" in done
    assert (
        "\n  hand:\n    platform: together\n"
        in (shared_trainer.folder / "topology.yaml").read_text()
    )
    shared_trainer.run("gpuform preview --expect-no-changes")
    assert "Nothing to import." in shared_trainer.run(
        f"gpuform import together:Cluster hand {made} --yes"
    )
    shared_trainer.run("gpuform orphans")
    assert "3 resources, 24 GPUs" in shared_trainer.run("gpuform status")


def test_drift_is_reported_and_reverted(shared_trainer: Newcomer, colleague: Colleague) -> None:
    assert ("Nothing was changed outside of the stack.") in shared_trainer.run(
        "gpuform drift --detailed-exitcode"
    )
    cluster = shared_trainer.run("gpuform stack output cluster_id").strip()
    colleague.resize_cluster(cluster, 24)

    assert "2 unchanged" in shared_trainer.run("gpuform preview")
    drift = shared_trainer.run("gpuform drift --detailed-exitcode", code=2)
    assert drift.startswith("Drift of training/dev (emulated)")
    assert "~ num_gpus: 16 => 24" in drift

    undone = shared_trainer.run("gpuform up --refresh --yes")
    assert "train  together:Cluster  refreshed: changed outside of this stack" in undone
    assert "~ num_gpus: 24 => 16" in undone
    assert "update train: removes 8 GPUs" in undone
    shared_trainer.run("gpuform drift --detailed-exitcode")
    assert "2 resources, 16 GPUs" in shared_trainer.run("gpuform status --refresh")


def test_drift_is_accepted_into_the_configuration(
    shared_trainer: Newcomer, colleague: Colleague
) -> None:
    cluster = shared_trainer.run("gpuform stack output cluster_id").strip()
    colleague.resize_cluster(cluster, 24)
    assert "~ num_gpus: 16 => 24" in shared_trainer.run("gpuform refresh --yes")
    assert "2 resources, 24 GPUs" in shared_trainer.run("gpuform status")
    shared_trainer.run("gpuform config set gpus 24")
    shared_trainer.run("gpuform preview --expect-no-changes")


def test_an_expired_cluster_is_deleted_and_renewed_only_with_permission(
    shared_trainer: Newcomer, colleague: Colleague
) -> None:
    shared_trainer.edit("topology.yaml", "ON_DEMAND", "ON_DEMAND\n    ttl: 1d")
    output = shared_trainer.run("gpuform up --yes")
    assert "a setting of gpuform: not sent to the platform" in output
    assert "train: expires in " in output
    assert "train: expires in " in shared_trainer.run("gpuform status")
    assert "2 unchanged" in shared_trainer.run("gpuform expire --dry-run")

    colleague.advance_clock(25 * AN_HOUR)
    due = shared_trainer.run("gpuform expire --dry-run", code=3)
    assert "delete: it has expired  (-16 GPUs)" in due
    assert "delete train: destroys 16 GPUs" in due
    assert "- 1 deleted" in shared_trainer.run("gpuform expire --yes")
    assert "train" not in shared_trainer.run("gpuform status")

    refused = shared_trainer.run("gpuform up --yes", code=1)
    assert "topology.yaml:22:10" in refused
    assert "--allow renew-expired" in refused
    again = shared_trainer.run("gpuform up --yes --allow renew-expired")
    assert "+ 1 created" in again


@pytest.mark.parametrize(
    ("host", "workflow"),
    [("github", ".github/workflows/gpuform.yml"), ("gitlab", ".gitlab-ci.yml")],
)
def test_workflows_are_written_for_the_repository(
    newcomer: Newcomer, host: str, workflow: str
) -> None:
    newcomer.run("gpuform new tensorone-dev --dir bench")
    there = newcomer.enter("bench")
    assert "--forge" in there.run("gpuform new ci --stack prod", code=2)

    output = there.run(f"gpuform new ci --stack prod --forge {host}")
    assert workflow in output
    assert f"The first lines of {workflow} list the variables" in output
    assert "warning: the state is in file://" in output
    assert "run the command again with --force --backend URL" in output
    assert "warning: Pulumi.prod.yaml is missing" in output
    (there.folder / "Pulumi.prod.yaml").touch()
    again = f"gpuform new ci --stack prod --forge {host} --backend s3://team?region=eu-central-1"
    assert f"overwrite   {workflow}" in there.run(again, code=1)
    assert "warning" not in there.run(f"{again} --force")
    assert "up --stack 'prod' --plan plan.json" in (there.folder / workflow).read_text()
    (wheel,) = (there.folder / "wheels").iterdir()
    needed = (there.folder / "requirements.txt").read_text()
    assert f"./wheels/{wheel.name}[cloud]" in needed


def test_a_module_is_instantiated_for_each_team(newcomer: Newcomer) -> None:
    newcomer.run("gpuform new together-training --dir teams")
    there = newcomer.enter("teams")
    (there.folder / "pool.yaml").write_text(POOL)
    (there.folder / "topology.yaml").write_text(TEAMS)
    there.run("gpuform stack init dev --emulate")

    there.edit("pool.yaml", "H100_SXM", "H100_SMX")
    wrong = there.run("gpuform validate", code=1)
    assert "pool.yaml:7:77, included at topology.yaml:2:5: " in wrong
    assert "did you mean H100_SXM?" in wrong
    there.edit("pool.yaml", "H100_SMX", "H100_SXM")
    there.edit("topology.yaml", "gpus: 8", "gpu: 8")
    assert "did you mean gpus?" in there.run("gpuform preview --emulate", code=1)
    there.edit("topology.yaml", "gpu: 8", "gpus: 8")

    there.run("gpuform validate")
    assert "+  team-nlp-train  together:Cluster  create  (+8 GPUs)" in there.run(
        "gpuform up --emulate --yes"
    )
    status = there.run("gpuform status --emulate")
    assert "team-vision-train" in status
    assert "16 GPUs" in status
    there.edit("topology.yaml", ", vision: us-central-4", "")
    assert "delete team-vision-train: destroys 8 GPUs" in there.run("gpuform preview --emulate")


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


def test_offers_and_expressions_are_shown_without_a_change(trainer: Newcomer) -> None:
    offers = trainer.run("gpuform offers --emulate --platform together --gpu H100")
    assert re.search(r"together +us-central-8 +GPU type +gpu_type +H100_SXM ", offers)
    assert "H200" not in offers
    listed = json.loads(trainer.run("gpuform offers --emulate --platform together --json"))
    assert listed

    assert trainer.run("gpuform console --emulate -e clusters.train.num_gpus*2") == "32\n"
    assert trainer.run("gpuform console --emulate -e clusters.train.kube_config") == "[secret]\n"
    assert "did you mean clusters.train?" in trainer.run(
        "gpuform console --emulate -e clusters.tran.id", code=1
    )


def test_emulated_and_real_stacks_are_never_mixed_up(trainer: Newcomer) -> None:
    looks = ("preview", "drift", "status --refresh")
    for command in (*looks, "up --yes", "destroy --yes", "refresh --yes"):
        refused = trainer.run(f"gpuform {command}", code=1)
        assert "the stack lives on the emulator" in refused
        assert "add --emulate" in refused
        assert "gpuform stack init NAME" in refused

    assert "lives on the emulator" in trainer.run("gpuform status")

    trainer.run("gpuform stack init prod")
    plan = trainer.run("gpuform preview")
    assert plan.startswith(
        "Previewing update (prod):\n\nThe plan is not fully checked: 1 check could not run"
    )
    assert "Set TOGETHER_API_KEY" in plan
    trainer.run("gpuform preview --require-checks", code=4)
    failed = trainer.run("gpuform up --yes", code=1)
    assert "gpuform config set --secret together:apiKey" in failed
    for command in ("up --yes", "destroy --yes", "refresh --yes", "status"):
        assert "real platforms" in trainer.run(f"gpuform {command} --emulate", code=1)
    assert "2 resources, 16 GPUs" in trainer.run("gpuform status --emulate --stack dev")


def test_a_selector_with_a_typing_error_changes_nothing(trainer: Newcomer) -> None:
    for command in (
        "destroy --exclude trian --yes",
        "destroy --target trian --yes",
        "up --target trian --yes",
        "up --replace trian --yes",
        "preview --target-replace trian",
        "preview --exclude trian",
        "refresh --target trian --yes",
    ):
        assert "did you mean train?" in trainer.run(f"gpuform {command} --emulate", code=1)
    assert "2 unchanged" in trainer.run("gpuform preview --emulate --expect-no-changes")

    preview = trainer.run("gpuform destroy --exclude train --preview-only --emulate")
    assert "--exclude train also leaves unchanged: data (train depends on it)" in preview
    assert "delete" not in preview


def test_commands_work_in_a_subfolder_of_the_project(trainer: Newcomer) -> None:
    there = trainer.enter("notes").enter("today")
    there.run("gpuform preview --emulate --expect-no-changes")
    assert "2 resources, 16 GPUs" in there.run("gpuform status --emulate")
    there.run("gpuform preview --emulate --save-plan plan.json")
    assert (there.folder / "plan.json").exists()  # what is typed is relative to where it is typed
    assert {path.name for path in there.folder.iterdir()} == {"plan.json"}
    assert "- 2 deleted" in there.run("gpuform destroy --emulate --yes")
    assert "has no resources" in trainer.run("gpuform status --emulate")
