"""Refusals: while planning, all problems at once; while applying, for lack of rights."""

import pytest
from support.topologies.declarations import CLUSTER, VOLUME

from gpuform.providers.emulator.together import MEMBER_KEY

pytestmark = pytest.mark.slow

RESERVED = {**CLUSTER, "billing_type": "RESERVED"}

WRONG = {
    "twelve GPUs": ({**CLUSTER, "num_gpus": 12}, "num_gpus", "8 or 16"),
    "a reservation without days": (RESERVED, "duration_days", "90"),
    "no days": ({**RESERVED, "duration_days": 0}, "duration_days", "the least is 1"),
    "too many days": ({**RESERVED, "duration_days": 91}, "duration_days", "90"),
    "days on demand": ({**CLUSTER, "duration_days": 30}, "duration_days", "RESERVED"),
    "contradicting drivers": (
        {**CLUSTER, "cuda_version": "12.8", "nvidia_driver_version": "570"},
        "driver_version",
        "12.8",
    ),
    "a misspelt GPU type": ({**CLUSTER, "gpu_type": "H100-SXM"}, "gpu_type", "H100_SXM"),
    "SLURM without its shared memory": (
        {**CLUSTER, "cluster_type": "SLURM"},
        "slurm_shm_size_gib",
        "SLURM",
    ),
    "a Terraform name": (
        {**{k: v for k, v in CLUSTER.items() if k != "gpu_type"}, "instance_type": "H100-SXM"},
        "instance_type",
        "gpu_type: H100_SXM",
    ),
    "a region that the platform lacks": ({**CLUSTER, "region": "mars-1"}, "region", "us-central-8"),
    "a GPU type that nobody knows": ({**CLUSTER, "gpu_type": "Z9"}, "gpu_type", "Z9"),
}


def test_all_problems_are_reported_at_once_with_their_paths(project):
    lines = ["from gpuform.providers.together import Cluster, SharedVolume"]
    lines += [f"Cluster({name!r}, **{wrong!r})" for name, (wrong, _, _) in WRONG.items()]
    elsewhere = {**VOLUME, "region": "us-east-2"}
    lines += [
        f"far = SharedVolume('far', **{elsewhere!r})",
        f"Cluster('apart', **{CLUSTER!r}, volume_id=far.id)",
    ]
    project.write_program("\n".join(lines))
    for command in (["preview"], ["up", "--yes"]):
        refused = project.run(*command)
        assert refused.code == 1
        output = " ".join(refused.text.split())
        for name, (_, path, hint) in WRONG.items():
            start = output.find(f"resource '{name}'")
            assert start >= 0, (name, refused.text)
            message = output[start : start + 600]
            assert path in message, message
            assert hint in message, message
        message = output[output.find("resource 'apart'") :]
        assert "volume_id" in message
        assert "us-east-2" in message
    assert project.list_requests("POST", "PUT", "DELETE") == []


def test_a_preview_without_a_key_lists_the_missing_checks(project):
    project.declare({**CLUSTER, "gpu_type": "Z9"})
    plan = project.run_ok("preview", TOGETHER_API_KEY=None)
    assert "TOGETHER_API_KEY" in plan.text
    assert "Z9" in plan.text
    assert "ot checked" in plan.text


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (None, ["TOGETHER_API_KEY", "gpuform config set --secret together:apiKey"]),
        ("tgp_wrong", ["401", "TOGETHER_API_KEY"]),
    ],
)
def test_applying_needs_the_right_key(project, key, words):
    project.declare(CLUSTER)
    refused = project.run("up", "--yes", TOGETHER_API_KEY=key)
    assert refused.code == 1
    for word in words:
        assert word in refused.text, refused.text
    assert project.objects["clusters"] == []
    assert [r["type"] for r in project.state["resources"]] == [
        "pulumi:pulumi:Stack",
        "pulumi:providers:pulumi-python",
    ]


def test_a_run_that_a_member_may_not_make_does_not_start(project):
    project.declare(CLUSTER)
    refused = project.run("up", "--yes", TOGETHER_API_KEY=MEMBER_KEY)
    assert refused.code == 1
    for words in ("role Member", "Admin", "nothing was started"):
        assert words in refused.text, refused.text
    assert project.objects["clusters"] == []
    assert "resources" not in project.state


def test_the_key_can_be_secret_configuration(project):
    key = project.environ["TOGETHER_API_KEY"]
    project.declare(None, VOLUME)
    project.run_ok("config", "set", "--secret", "together:apiKey", key)
    assert key not in (project.directory / "Pulumi.dev.yaml").read_text()
    assert project.run_ok("up", "--yes", TOGETHER_API_KEY=None)
    assert len(project.objects["volumes"]) == 1
    assert project.run_ok("destroy", "--yes", TOGETHER_API_KEY=None)
    assert project.objects["volumes"] == []


def test_a_wrong_and_a_missing_passphrase_are_errors(project):
    project.declare(CLUSTER)
    refused = project.run("preview", PULUMI_CONFIG_PASSPHRASE=None)
    assert refused.code == 1
    assert "PULUMI_CONFIG_PASSPHRASE" in refused.text
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" in refused.text
    wrong = project.run("preview", PULUMI_CONFIG_PASSPHRASE="wrong")
    assert wrong.code == 1
    assert "passphrase" in wrong.text


def test_a_command_without_a_stack_lists_the_stacks(project):
    project.declare(CLUSTER)
    missing = project.run("preview", "--stack", "prod")
    assert missing.code == 6
    assert "dev" in missing.text
    assert "gpuform stack init prod" in missing.text


def test_up_without_an_answer_changes_nothing(project):
    project.declare(CLUSTER)
    refused = project.run("up")
    assert refused.code == 1
    assert "--yes" in refused.text
    assert project.objects["clusters"] == []


def test_a_reserved_cluster_is_replaced_or_destroyed_only_with_permission(project):
    project.declare({**RESERVED, "duration_days": 30})
    project.up()
    (cluster,) = project.objects["clusters"]
    project.declare({**RESERVED, "duration_days": 30, "cluster_name": "other"})
    for command in (["preview"], ["up", "--yes"], ["destroy", "--yes"], ["destroy", "-y", "-f"]):
        refused = project.run(*command)
        assert refused.code == 1, refused.text
        assert "--allow destroy-reserved" in refused.text
    project.write_program("")
    refused = project.run("preview")
    assert (refused.code, "--allow destroy-reserved" in refused.text) == (1, True), refused.text
    project.declare({**RESERVED, "duration_days": 30, "cluster_name": "other"})
    assert project.objects["clusters"] == [cluster]
    misspelt = project.run("preview", "--allow", "destroy-all")
    assert misspelt.code == 1
    assert "destroy-reserved" in misspelt.text
    project.run_ok("preview", "--allow", "destroy-reserved")
    project.run_ok("up", "--yes", GPUFORM_ALLOW="destroy-reserved")
    assert [c["name"] for c in project.objects["clusters"]] == ["other"]
    project.run_ok("destroy", "--yes", "--allow", "destroy-reserved")
    assert project.objects["clusters"] == []
