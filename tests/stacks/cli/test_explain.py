"""`gpuform explain`: the life of a resource on the command line, and no secret in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.platforms.text_encodings import ENCODINGS
from support.stacks.planned_project import PlannedProject

from gpuform.schemas.timeline import Explanation

Run = Any

SECRET = 'hunter2&<q"7>/tüte+9\\8-vault'
PROGRAM = """
import pulumi
pulumi.Config().require_secret("token")
"""


@pytest.mark.slow
def test_a_cluster_and_its_nodes_are_explained_by_their_runs(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFORM_APPROVED_BY", "grace")
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REF": "refs/pull/12/merge",
        "GITHUB_ACTOR": "ada",
        "GITHUB_RUN_NUMBER": "42",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PULUMI_DISABLE_CI_DETECTION", raising=False)
    applied_project.run("config", "set", "gpus", "24")
    assert applied_project.run("preview", "--save-plan", "plan.json").code == 0
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")
    assert applied_project.run("up", "--yes", "--plan", "plan.json").code == 0
    explanation = Explanation.model_validate(applied_project.run("explain", "train", "-j").json)
    actions = [(it.action, it.run, it.node) for it in explanation.events]
    assert actions[0] == ("created", 1, "")
    assert ("added", 1, "training-worker-0") in actions
    assert actions[-2:] == [("changed", 2, ""), ("added", 2, "training-worker-2")]
    assert explanation.events[-2].changes == ("num_gpus: 16 -> 24",)
    run = explanation.runs[1]
    assert (run.user, run.pull_request, run.approved_by, run.approval) == (
        "ada",
        "12",
        "grace",
        "saved_plan",
    )
    seal = json.loads(Path("plan.json").read_text())["basis"]["seal"]
    assert (run.plan_digest, run.ci_job) == (seal, "GitHub Actions 42")
    text = applied_project.run("explain", "training-worker-2").out
    assert "added by run 2" in text
    assert "acceptance/tests passed on training-worker-0" in text
    assert f"plan {seal[:12]} of 20" in text
    assert "pull request 12" in text


def test_an_unknown_name_is_refused_with_the_nearest_one(dev: Run, project: Path) -> None:
    (project / "__main__.py").write_text("import pulumi\npulumi.ComponentResource('a:b:C', 'main')")
    assert dev("up", "--yes", "--skip-preview").code == 0
    assert "created by run 1" in dev("explain", "main").out
    ran = dev("explain", "mian")
    assert ran.code == 1
    assert "'mian': stack dev has no resource, node or object of this name" in ran.err
    assert "did you mean main?" in ran.err


def test_a_secret_in_any_encoding_is_in_no_explanation(dev: Run, project: Path) -> None:
    assert dev("config", "set", "--secret", "token", "--", SECRET).code == 0
    (project / "__main__.py").write_text(f"{PROGRAM}pulumi.ComponentResource('a:b:C', 'main')")
    assert dev("up", "--yes", "--skip-preview").code == 0
    (entry,) = (project / ".pulumi/history/demo/dev").glob("*.history.json")
    document = json.loads(entry.read_text())
    texts = [encode(SECRET) for encode in ENCODINGS.values()]
    document["message"] = "\n".join(texts)
    for name in ("git.headName", "gpuform.user", "gpuform.approvedBy", "ci.build.url"):
        document["environment"][name] = " ".join(texts)
    entry.write_text(json.dumps(document))
    for arguments in (("main",), ("main", "--json")):
        ran = dev("explain", *arguments)
        assert ran.code == 0
        assert "[secret]" in ran.out
        for text in texts:
            assert text not in ran.out
            assert json.dumps(text)[1:-1] not in ran.out
