"""Test that plans, questions, logs and reviews show dangerous changes."""

import json
import re
import urllib.request
from datetime import datetime
from typing import Any

import pytest
from support.platforms.lens_document import CONSUMERS
from support.stacks.planned_project import PlannedProject

VOLUME = 'data = SharedVolume("data", volume_name="training-data", region=region, size_tib=5)\n'
LOST = "destroys a volume of 5 TiB and its data"


def call_emulator(planned_project: PlannedProject, path: str, body: Any) -> None:
    data = json.dumps(body).encode()
    urllib.request.urlopen(f"{planned_project.url}/_emulator/{path}", data).close()


def declare_volumes(planned_project: PlannedProject, *names: str, options: str = "") -> None:
    """Write a program that declares only volumes of these names."""
    (planned_project.project / "__main__.py").write_text(
        "import pulumi\n"
        "from gpuform.providers.together import SharedVolume\n"
        f"for name in {[*names]}:\n"
        "    SharedVolume(name, volume_name=name, region='us-central-8', size_tib=5,\n"
        f"        opts=pulumi.ResourceOptions({options}))\n"
    )


@pytest.fixture
def removed_volume(planned_project: PlannedProject) -> PlannedProject:
    """Create two volumes, and remove the declaration of `data`."""
    declare_volumes(planned_project, "data", "other")
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    declare_volumes(planned_project, "other")
    return planned_project


TRAIN = """\
import pulumi
from gpuform.providers.together import Cluster, SharedVolume, VolumeClaim
data = SharedVolume("data", volume_name="data", region="us-central-8", size_tib=5)
train = Cluster("train", cluster_name="train", region="us-central-8", gpu_type="H100_SXM",
    num_gpus=8, billing_type="ON_DEMAND", cuda_version="12.6", volume_id=data.id,
    nvidia_driver_version="{driver}")
VolumeClaim("corpus", cluster_id=train.id, name="corpus", storage="1Ti", {storage})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("storage", "loses_data"),
    [
        ("volume_name=data.volume_name", False),
        ("storage_class_name='local-storage-class'", True),
    ],
)
def test_a_driver_change_destroys_no_data_of_a_claim_on_a_kept_volume(
    planned_project: PlannedProject, storage: str, loses_data: bool
) -> None:
    program = planned_project.project / "__main__.py"
    program.write_text(TRAIN.format(driver="560", storage=storage))
    made = planned_project.run("up", "--yes", "--skip-preview")
    assert made.code == 0, made.out
    program.write_text(TRAIN.format(driver="565", storage=storage))
    plan = planned_project.run("preview").out
    assert "replace corpus" in plan
    assert ("a volume and its data" in plan) is loses_data


class TestDeletedVolume:
    @pytest.mark.slow
    def test_every_plan_and_review_shows_the_deletion_as_dangerous(
        self, removed_volume: PlannedProject
    ) -> None:
        removed_volume.save_plan()
        message = f"Dangerous changes:\n    delete data: {LOST}\n"
        assert message in removed_volume.run("preview").out
        for form in ("text", "markdown", "github", "html", "json"):
            assert LOST in removed_volume.run("review", "plan.json", "--format", form).out
        assert message in removed_volume.run("up", "--yes").out
        assert "    delete data: destroys a volume and its data" in removed_volume.run("logs").out

    @pytest.mark.slow
    def test_up_asks_for_the_stack_name_to_delete_a_volume(
        self, removed_volume: PlannedProject, terminal: None
    ) -> None:
        ran = removed_volume.run("up", answers="yes\ny\nno\n")
        assert ran.code == 1
        question = (
            "Perform this update? The data on data will be lost.  Type the stack's name to "
            "confirm. [dev/no/details] "
        )
        assert ran.out.count(question) == 3
        assert ran.out.count("Answer dev, no or details.") == 2
        assert removed_volume.run("up", answers="dev\n").code == 0

    @pytest.mark.slow
    def test_event_streams_show_the_danger_as_a_diagnostic(
        self, removed_volume: PlannedProject
    ) -> None:
        warning = {"severity": "warning", "message": f"delete data: {LOST}"}
        (diagnostic,) = removed_volume.run("preview", "--json").json["diagnostics"]
        assert warning.items() <= diagnostic.items()
        lines = removed_volume.run("up", "--yes", "--json").lines
        kinds = [next(key for key in line if key.endswith("Event")) for line in lines]
        at = kinds.index("diagnosticEvent")
        assert warning.items() <= lines[at]["diagnosticEvent"].items()
        assert kinds[at + 1 : at + 3] == ["summaryEvent", "cancelEvent"]
        assert [line["sequence"] for line in lines] == list(range(len(lines)))

    @pytest.mark.slow
    def test_a_retained_volume_is_not_reported_as_destroyed(
        self, removed_volume: PlannedProject
    ) -> None:
        declare_volumes(removed_volume, "data", "other", options="retain_on_delete=True")
        assert removed_volume.run("up", "--yes", "--skip-preview").code == 0
        declare_volumes(removed_volume, "other", options="retain_on_delete=True")
        ran = removed_volume.run("up", "--yes")
        assert "delete data: is removed from the stack: it stays on the platform" in ran.out
        assert "destroys" not in ran.out


class TestMountedVolume:
    REFUSED = "cannot be deleted or replaced: cluster 'train' mounts it and is not deleted"

    def expect_refusal(self, applied_project: PlannedProject, *command: str) -> None:
        before = applied_project.sent_changes
        ran = applied_project.run(*command)
        assert ran.code == 1
        assert self.REFUSED in ran.out
        assert "keep the volume unchanged, or delete the cluster" in ran.out
        assert applied_project.sent_changes == before

    @pytest.mark.slow
    def test_a_volume_is_not_deleted_while_a_kept_cluster_mounts_it(
        self, applied_project: PlannedProject
    ) -> None:
        resources = json.loads(applied_project.state_file)["checkpoint"]["latest"]["resources"]
        (id_,) = (resource["id"] for resource in resources if resource["urn"].endswith("::data"))
        applied_project.edit_program(
            (VOLUME, ""),
            ("volume_id=data.id", f"volume_id={id_!r}"),
        )
        for command in (["preview"], ["up", "--yes"], ["up", "--yes", "--skip-preview"]):
            self.expect_refusal(applied_project, *command)
        self.expect_refusal(applied_project, "destroy", "--yes", "--target", "data")
        assert applied_project.run("destroy", "--yes").code == 0

    @pytest.mark.slow
    def test_a_volume_is_deleted_in_one_run_with_its_cluster(
        self, applied_project: PlannedProject
    ) -> None:
        (applied_project.project / "__main__.py").write_text("import pulumi\n")
        assert applied_project.run("preview").code == 0
        assert applied_project.run("up", "--yes").code == 0

    @pytest.mark.slow
    def test_a_volume_is_not_replaced_while_a_kept_cluster_mounts_it(
        self, applied_project: PlannedProject
    ) -> None:
        resources = json.loads(applied_project.state_file)["checkpoint"]["latest"]["resources"]
        (id_,) = (resource["id"] for resource in resources if resource["urn"].endswith("::data"))
        applied_project.edit_program(("volume_id=data.id", f"volume_id={id_!r}"))
        assert applied_project.run("up", "--yes", "--skip-preview").code == 0
        applied_project.edit_program(("training-data", "other-data"))
        self.expect_refusal(applied_project, "preview")
        applied_project.run("config", "set", "type", "H200_SXM")
        assert applied_project.run("preview").code == 0, "the cluster is replaced, too"


class TestLostCapacity:
    @pytest.mark.slow
    def test_the_question_shows_lost_gpus_and_the_cost(
        self, applied_project: PlannedProject, terminal: None
    ) -> None:
        (applied_project.project / "prices.yaml").write_text(
            "currency: USD\n"
            "gpus: [{platform: together, gpu_type: H100_SXM, per_hour: 3}]\n"
            "storage: [{platform: together, unit: TiB, per_month: 73}]\n"
        )
        applied_project.run("config", "set", "gpus", "8")
        ran = applied_project.run("up", answers="no\n")
        assert (
            "Perform this update? 8 GPUs will be lost. Cost: 48.50 USD/h (35,405.00 USD/month) => "
            "24.50 USD/h (17,885.00 USD/month). [yes/no/details] "
        ) in ran.out
        ran = applied_project.run("destroy", answers="yes\nno\n")
        assert (
            "This deletes 2 resources of stack dev and what is on them. 16 GPUs and the data on "
            "data will be lost."
        ) in ran.out

    @pytest.mark.parametrize("answer", ["y", "Y", "yes"])
    def test_y_confirms_an_update_that_loses_nothing(
        self, planned_project: PlannedProject, terminal: None, answer: str
    ) -> None:
        declare_volumes(planned_project, "data")
        assert planned_project.run("up", answers=f"{answer}\n").code == 0

    @pytest.mark.slow
    def test_preview_reports_jobs_that_lens_shows_on_a_replaced_cluster(
        self, applied_project: PlannedProject
    ) -> None:
        # The word of the cluster's own scheduler would go before that of Lens.
        silent = {"method": "GET", "path": "/api/v1/nodes$", "status": 503, "count": None}
        call_emulator(applied_project, "faults", silent)
        call_emulator(applied_project, "lens/settings", {"consumers": CONSUMERS["data"]["data"]})
        applied_project.run("config", "set", "type", "H200_SXM")
        ran = applied_project.run("preview")
        assert ran.code == 0
        assert "    train may be in use by " in ran.out
        rule = {"method": "GET", "path": "^/api/clusters/consumers", "status": 400, "count": None}
        call_emulator(applied_project, "faults", rule)
        ran = applied_project.run("preview")
        assert "    whether train is in use is unknown: lens: GET /clusters/c" in ran.out

    def test_destroy_reports_use_that_the_platform_measures(
        self, planned_project: PlannedProject
    ) -> None:
        (planned_project.project / "__main__.py").write_text(
            "from gpuform.providers.tensorone import Cluster\n"
            "Cluster('dev', name='dev', gpu_type='A100', gpu_count=1, storage_gb=100,\n"
            "        region='us-west-2', project_id='proj_1', docker_image='pytorch:2')\n"
        )
        assert planned_project.run("up", "--yes", "--skip-preview").code == 0
        out = planned_project.run("destroy", "--yes").out
        assert "    delete dev: destroys 1 GPU and 100 GB of storage with its data; in use: " in out

    def test_refresh_asks_before_forgetting_resources_that_no_longer_exist(
        self, applied_project: PlannedProject, terminal: None
    ) -> None:
        call_emulator(applied_project, "reset", {})
        ran = applied_project.run("refresh", answers="no\n")
        assert "delete train: no longer exists on the platform, with 16 GPUs" in ran.out
        assert (
            "Perform this refresh? 2 resources no longer exist on the platforms. [yes/no" in ran.out
        )

    def test_destroy_shows_until_when_lost_capacity_is_prepaid(
        self, planned_project: PlannedProject
    ) -> None:
        planned_project.edit_program(('"ON_DEMAND"', '"RESERVED", duration_days=30'))
        assert planned_project.run("up", "--yes", "--skip-preview").code == 0
        out = planned_project.run("destroy", "--preview-only", "--allow", "destroy-reserved").out
        match = re.search(r"destroys 16 GPUs; the prepaid time until (\d{4}-\d\d-\S+) is lost", out)
        assert match, out
        assert datetime.fromisoformat(match[1]).tzinfo is not None
