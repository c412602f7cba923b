"""The WorkflowTemplate of Argo Workflows is valid, and its scripts plan and apply all stacks.

hera's models are generated from Argo's own API definition (`api/openapi-spec` of
argoproj/argo-workflows), so that a field that Argo does not know is lost in them. What they do not
know is checked here: names, references between templates, artifacts and parameters, by the pages
"Fields" and "Workflow Variables" of Argo's documentation.
"""

import hashlib
import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hera.workflows import models
from processes.commands import build_path_with_gpuform
from support.stacks.workspace import create_workspace

from gpuform.providers.emulator.server import serve

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples/many-runners/argo_workflow.py"
VARIABLE = re.compile(r"\{\{([^}]*)\}\}")
TEMPLATE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.safe_load(runpy.run_path(str(PROGRAM))["workflow"].to_yaml())


@pytest.fixture(scope="module")
def templates(document: Any) -> dict[str, Any]:
    return {template["name"]: template for template in document["spec"]["templates"]}


def list_steps(template: Mapping[str, Any]) -> list[Any]:
    return [step for group in template.get("steps", ()) for step in group]


def list_names(template: Mapping[str, Any], side: str, kind: str) -> set[str]:
    """Return the names of the parameters or artifacts that a template receives or writes."""
    return {item["name"] for item in template.get(side, {}).get(kind, ())}


def list_variables(value: object) -> set[str]:
    return {name.strip() for name in VARIABLE.findall(json.dumps(value))}


def find_known_fields(document: Any) -> Any:
    """Return the document without the fields that Argo does not know."""
    model = models.WorkflowTemplate.model_validate(document)
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True))


def test_argo_knows_every_field(document: Any) -> None:
    assert find_known_fields(document) == document
    assert find_known_fields({**document, "other": 1}) == document


def test_every_template_has_a_name_of_kubernetes_and_is_used(templates: dict[str, Any]) -> None:
    used = {step["template"] for template in templates.values() for step in list_steps(template)}
    assert used | {"main"} == templates.keys()
    assert all(TEMPLATE_NAME.fullmatch(name) for name in templates)


def test_every_step_gives_the_parameters_of_its_template(templates: dict[str, Any]) -> None:
    for template in templates.values():
        for step in list_steps(template):
            given = {item["name"] for item in step.get("arguments", {}).get("parameters", ())}
            assert given == list_names(templates[step["template"]], "inputs", "parameters"), step


def test_every_variable_is_one_of_its_template(document: Any, templates: dict[str, Any]) -> None:
    arguments = {item["name"] for item in document["spec"]["arguments"]["parameters"]}
    known = {"workflow.uid", "item.stacks", *(f"workflow.parameters.{name}" for name in arguments)}
    for template in templates.values():
        own = {f"inputs.parameters.{name}" for name in list_names(template, "inputs", "parameters")}
        for step in list_steps(template):
            before = set(own)
            assert list_variables(step) <= known | before, step["name"]
            outputs = list_names(templates[step["template"]], "outputs", "parameters")
            own |= {f"steps.{step['name']}.outputs.parameters.{name}" for name in outputs}
        if "steps" not in template:
            assert list_variables(template) <= known | own, template["name"]


def test_no_script_contains_a_variable_of_argo(templates: dict[str, Any]) -> None:
    for template in templates.values():
        container = template.get("container", {})
        assert not list_variables([container.get("command"), container.get("args")])


def test_every_artifact_is_written_under_the_key_where_it_is_read(
    templates: dict[str, Any],
) -> None:
    def list_keys(side: str) -> set[str]:
        return {
            artifact["s3"]["key"]
            for template in templates.values()
            for artifact in template.get(side, {}).get("artifacts", ())
            if "s3" in artifact
        }

    assert list_keys("inputs") == list_keys("outputs")
    assert all(key.startswith("{{workflow.uid}}/") for key in list_keys("outputs"))


def test_only_the_apply_has_keys_that_write(templates: dict[str, Any]) -> None:
    secrets = {
        name: [source["secretRef"]["name"] for source in template["container"].get("envFrom", ())]
        for name, template in templates.items()
        if "container" in template
    }
    assert secrets == {
        "waves": [],
        "pick": [],
        "plan": ["gpuform-read"],
        "join": ["gpuform-passphrase"],
        "apply": ["gpuform-write"],
    }


class PodFailedError(Exception):
    """The container of a pod has ended with an exit code, which ends the workflow."""


@dataclass
class Argo:
    """Plays steps, loops, conditions, parameters and artifacts of a workflow on this machine."""

    templates: Mapping[str, Any]
    checkout: Path
    bucket: Path
    environ: Mapping[str, str]
    parameters: Mapping[str, str]
    lost: set[str] = field(default_factory=set)
    """Templates of which the next pod is lost with its node, after its work."""
    pods: list[str] = field(default_factory=list)
    output: str = ""
    on_approval: Callable[[str], None] = lambda _digest: None
    """Does what happens while the workflow is suspended; receives the shown digest."""

    def run(self, name: str, inputs: Mapping[str, str]) -> dict[str, str]:
        """Run a template, and return its output parameters as variables of its step."""
        template = self.templates[name]
        variables = {f"inputs.parameters.{key}": value for key, value in inputs.items()}
        variables |= {f"workflow.parameters.{key}": it for key, it in self.parameters.items()}
        variables["workflow.uid"] = "uid"
        if "suspend" in template:
            self.on_approval(inputs["digest"])
        if "container" in template:
            if name in self.lost:
                self.lost.remove(name)
                assert template["retryStrategy"]["retryPolicy"] == "OnError"
                # Its artifacts and parameters are lost with it.
                self.run_pod({**template, "outputs": {}}, variables)
            return self.run_pod(template, variables)
        for step in list_steps(template):
            if not self.is_met(self.fill(step.get("when", "1 > 0"), variables)):
                continue
            items = json.loads(self.fill(step.get("withParam", "[{}]"), variables))
            for item in items:
                own = {**variables, **{f"item.{key}": value for key, value in item.items()}}
                arguments = {
                    it["name"]: self.fill(it["value"], own)
                    for it in step.get("arguments", {}).get("parameters", ())
                }
                outputs = self.run(step["template"], arguments)
                prefix = f"steps.{step['name']}.outputs.parameters."
                variables |= {prefix + key: value for key, value in outputs.items()}
        return {}

    def run_pod(self, template: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
        """Run the container of a template in an empty folder in place of /tmp."""
        self.pods.append(template["name"])
        data = self.bucket.parent / f"pod-{len(self.pods)}"
        data.mkdir()
        for artifact in self.list_artifacts(template, "inputs"):
            source = self.bucket / self.fill(artifact["s3"]["key"], variables)
            target = data / Path(artifact["path"]).name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        container = template["container"]
        env = {it["name"]: self.fill(it["value"], variables) for it in container["env"]}
        script = container["args"][0].replace("/tmp/", f"{data}/")
        done = subprocess.run(
            [*container["command"], script],
            cwd=self.checkout,
            env={**self.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        self.output = done.stdout + done.stderr
        if done.returncode:
            raise PodFailedError(done.returncode)
        for artifact in self.list_artifacts(template, "outputs"):
            source = data / Path(artifact["path"]).name
            target = self.bucket / self.fill(artifact["s3"]["key"], variables)
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)
        return {
            it["name"]: (data / Path(it["valueFrom"]["path"]).name).read_text().strip()
            for it in template.get("outputs", {}).get("parameters", ())
        }

    @staticmethod
    def list_artifacts(template: Mapping[str, Any], side: str) -> list[Any]:
        return [it for it in template.get(side, {}).get("artifacts", ()) if "s3" in it]

    @staticmethod
    def fill(text: str, variables: Mapping[str, str]) -> str:
        return VARIABLE.sub(lambda match: variables[match[1]], text)

    @staticmethod
    def is_met(condition: str) -> bool:
        left, sign, right = condition.split()
        return int(left) > int(right) if sign == ">" else int(left) < int(right)


@pytest.fixture
def argo(templates: dict[str, Any], tmp_path: Path) -> Iterator[Argo]:
    with serve(seed="argo") as server:
        workspace = create_workspace(tmp_path / "fleet", server.url, {}, {})
        (tmp_path / "bucket").mkdir()
        environ = {**workspace.variables, "PATH": build_path_with_gpuform()}
        commit(workspace.root, "Begin")
        parameters = {"runners": "8", "repository": "", "revision": "", "base": "main"}
        yield Argo(templates, workspace.root, tmp_path / "bucket", environ, parameters)


def commit(folder: Path, message: str) -> None:
    """Commit everything on `main`; the fetched branch is one commit behind, if there are two."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    is_first = not (folder / ".git").is_dir()
    if is_first:
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, *identity, "commit", "-q", "-m", message)
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD" if is_first else "HEAD^")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_workflow_plans_and_applies_every_stack_in_its_wave(argo: Argo) -> None:
    """Two pods are lost with their nodes: each is one pod more, and changes nothing twice."""
    argo.lost = {"plan", "apply"}
    approved: list[str] = []
    argo.on_approval = approved.append

    argo.run("main", {})

    assert argo.pods == [
        *("waves", "pick", "plan", "plan", *["pick", "plan"] * 2, "join"),
        *("pick", "apply", "apply", *["pick", "apply"] * 2),
    ]
    assert approved == [hashlib.sha256((argo.bucket / "uid/plan").read_bytes()).hexdigest()]
    subprocess.run(
        ["gpuform", "preview", "--all", "--expect-no-changes"],
        cwd=argo.checkout,
        env=dict(argo.environ),
        check=True,
        capture_output=True,
    )


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_removed_gate_and_a_replaced_plan_end_the_workflow(argo: Argo) -> None:
    stacks = argo.checkout / "stacks.yaml"
    declared = stacks.read_text()
    gates = "gates:\n  types: {allowed_gpu_types: [A100]}\n"
    stacks.write_text(declared + gates)
    commit(argo.checkout, "Allow one type")
    stacks.write_text(declared)
    commit(argo.checkout, "Remove the gate")
    with pytest.raises(PodFailedError, match="5"):
        argo.run("main", {})
    assert argo.pods[-1] == "join"
    assert "gate types: stops the plan: training/dev train" in argo.output

    git(argo.checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    plan = argo.bucket / "uid/plan"
    argo.on_approval = lambda _digest: plan.write_text(json.dumps(json.loads(plan.read_bytes())))
    argo.pods.clear()
    shutil.rmtree(argo.bucket / "uid")
    for folder in argo.bucket.parent.glob("pod-*"):
        shutil.rmtree(folder)
    with pytest.raises(PodFailedError, match="1"):
        argo.run("main", {})
    assert argo.pods[-2:] == ["pick", "apply"]
    assert "is not the reviewed plan: its digest is" in argo.output
