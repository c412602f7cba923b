"""Print a WorkflowTemplate of Argo Workflows that plans, reviews and applies all stacks.

The parts travel as artifacts with keys in the artifact repository of the cluster (an S3 bucket):
https://argo-workflows.readthedocs.io/en/latest/key-only-artifacts/
"""

import sys
from typing import Any

from hera.workflows import (
    Container,
    Env,
    GitArtifact,
    NoneArchiveStrategy,
    Parameter,
    S3Artifact,
    SecretEnvFrom,
    Step,
    Steps,
    WorkflowTemplate,
    models,
)
from hera.workflows.models import (
    Inputs,
    IntOrString,
    RetryStrategy,
    SuspendTemplate,
    Template,
    ValueFrom,
)

IMAGE = "registry.example.com/gpuform:0.1.0"
KEYS = "{{workflow.uid}}"
"""The folder of a workflow in the bucket."""

DATA = "/tmp"  # noqa: S108 - each pod has its own
GIT = [
    Env(name="GIT_CONFIG_COUNT", value="1"),
    Env(name="GIT_CONFIG_KEY_0", value="safe.directory"),
    Env(name="GIT_CONFIG_VALUE_0", value="/work"),
]
"""Argo clones as another user than the image's, and git reads such a folder only with this."""

WAVES = """\
gpuform plan-part --waves --runners "$RUNNERS" --parts /tmp/parts > /tmp/waves
python3 -c 'import json; print(len(json.load(open("/tmp/waves"))))' > /tmp/count
"""
PICK = """\
python3 - <<END
import json, os
waves, index = json.load(open("/tmp/waves")), int(os.environ["INDEX"])
print(json.dumps(waves[index]), file=open("/tmp/elements", "w"))
print(index + 1, file=open("/tmp/next", "w"))
END
"""
PLAN = """\
gpuform plan-part $STACKS --gates-from "origin/$BASE" --parts /tmp/parts
mkdir /tmp/new
cd /tmp/parts
cp --parents $(printf '%s.json ' $STACKS) /tmp/new
"""
JOIN = """\
gpuform join --parts /tmp/parts --gates-from "origin/$BASE" --require-checks \
  --save-plan /tmp/plan.json
sha256sum /tmp/plan.json | cut -d ' ' -f 1 > /tmp/digest
"""
APPLY = """\
gpuform up --all --plan /tmp/plan.json --digest "$DIGEST" --gates-from "origin/$BASE" --yes \
  --require-checks --lock-timeout 10m $(printf -- '--filter %s ' $STACKS)
"""


def keep(name: str, file: str | None = None) -> S3Artifact:
    """Return a file or folder of DATA as an artifact with a key.

    Without an archive, the artifacts of many parts add to one folder.
    """
    path, archive = f"{DATA}/{file or name}", NoneArchiveStrategy()
    return S3Artifact(name=name, path=path, key=f"{KEYS}/{name}", archive=archive)


def run(name: str, script: str, secrets: list[str], **options: list[Any]) -> Container:
    """Return a template that runs a script in a checkout, with the variables of some secrets.

    Values come in variables: text that Argo puts into a script could be commands. A pod that was
    lost with its node runs again.
    """
    base = "{{workflow.parameters.base}}"
    source = GitArtifact(
        name="source",
        path="/work",
        repo="{{workflow.parameters.repository}}",
        revision="{{workflow.parameters.revision}}",
        # The gates of this branch judge the plan: a change that removes a gate is judged by it.
        fetch=[f"+refs/heads/{base}:refs/remotes/origin/{base}"],
    )
    return Container(
        name=name,
        image=IMAGE,
        command=["sh", "-euc"],
        args=[script],
        working_dir="/work",
        env=[*GIT, Env(name="BASE", value=base), *options.get("env", [])],
        env_from=[SecretEnvFrom(name=secret) for secret in secrets],
        inputs=[source, *options.get("inputs", [])],
        outputs=options.get("outputs", []),
        retry_strategy=RetryStrategy(limit=IntOrString(root="2"), retry_policy="OnError"),
    )


def define_wave(name: str, part: Container, pick: Container, *facts: str) -> Steps:
    """Return a template that runs a part for each element of a wave, and then the next wave.

    Each part also gets the parameters named in `facts`.
    """
    values = {name: f"{{{{inputs.parameters.{name}}}}}" for name in ("index", "count", *facts)}
    with Steps(name=name, inputs=[Parameter(name=name) for name in values]) as wave:
        Step(name="pick", template=pick, arguments={"index": values["index"]})
        Step(
            name="parts",
            template=part,
            arguments={"stacks": "{{item.stacks}}", **{name: values[name] for name in facts}},
            with_param="{{steps.pick.outputs.parameters.elements}}",
        )
        following = "{{steps.pick.outputs.parameters.next}}"
        Step(
            name="next",
            template=wave,
            arguments={**values, "index": following},
            when=f"{following} < {values['count']}",
        )
    return wave


def write(name: str) -> Parameter:
    """Return an output parameter with the content of a file of DATA."""
    return Parameter(name=name, value_from=ValueFrom(path=f"{DATA}/{name}"))


with WorkflowTemplate(
    name="gpuform",
    entrypoint="main",
    arguments=[
        Parameter(name="repository", value="https://git.example.com/team/clusters.git"),
        Parameter(name="revision"),
        Parameter(name="base", value="main"),
        Parameter(name="runners", value="8"),
    ],
) as workflow:
    stacks = Env(name="STACKS", value="{{inputs.parameters.stacks}}")
    waves = run(
        "waves",
        WAVES,
        [],
        env=[Env(name="RUNNERS", value="{{workflow.parameters.runners}}")],
        outputs=[
            write("count"),
            keep("waves"),
            keep("parts"),
        ],
    )
    pick = run(
        "pick",
        PICK,
        [],
        env=[Env(name="INDEX", value="{{inputs.parameters.index}}")],
        inputs=[Parameter(name="index"), keep("waves")],
        outputs=[write("elements"), write("next")],
    )
    new = keep("parts", "new")
    plan = run(
        "plan",
        PLAN,
        ["gpuform-read"],
        env=[stacks],
        inputs=[Parameter(name="stacks"), keep("parts")],
        outputs=[new],
    )
    join = run(
        "join",
        JOIN,
        ["gpuform-passphrase"],
        inputs=[keep("parts")],
        outputs=[write("digest"), keep("plan", "plan.json")],
    )
    apply = run(
        "apply",
        APPLY,
        ["gpuform-write"],
        env=[stacks, Env(name="DIGEST", value="{{inputs.parameters.digest}}")],
        inputs=[Parameter(name="stacks"), Parameter(name="digest"), keep("plan", "plan.json")],
    )
    # The parameter shows the person which plan is approved.
    approve = Template(
        name="approve",
        inputs=Inputs(parameters=[models.Parameter(name="digest")]),
        suspend=SuspendTemplate(),
    )
    workflow.templates.append(approve)
    plan_wave, apply_wave = (
        define_wave("plan-wave", plan, pick),
        define_wave("apply-wave", apply, pick, "digest"),
    )
    with Steps(name="main") as main:
        Step(name="waves", template=waves)
        count = "{{steps.waves.outputs.parameters.count}}"
        arguments, when = {"index": "0", "count": count}, f"{count} > 0"
        Step(name="plan", template=plan_wave, arguments=arguments, when=when)
        Step(name="join", template=join, when=when)
        digest = {"digest": "{{steps.join.outputs.parameters.digest}}"}
        Step(name="approve", template=approve, arguments=digest, when=when)
        Step(name="apply", template=apply_wave, arguments={**arguments, **digest}, when=when)

if __name__ == "__main__":
    sys.stdout.write(workflow.to_yaml())  # pyright: ignore[reportUnknownMemberType]
