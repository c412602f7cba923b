"""What other repositories call: the action, the reusable workflow and the component; and the image.

Their jobs are those of `gpuform new ci`, whose workflows are run end to end in `test_workflows`.
"""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings, render_workflows

ROOT = Path(__file__).parents[2]
PLAN = ROOT / ".github/workflows/plan.yml"
COMPONENT = ROOT / "templates/plan/template.yml"
REPOSITORY = Repository(Path("/r"), Path("/r/infra"))
CLOUDS = Clouds(("s3", "gs", "azblob"))
INPUTS = {
    "stack": "prod",
    "directory": "infra",
    "branch": "main",
    "suffix": "",
    "stage": "test",
    "image": "i",
}


def render(code_host: Any, path: str) -> Any:
    """Return the workflow that `gpuform new ci` writes for all clouds."""
    settings = WorkflowSettings(code_host, "prod", "main", CLOUDS)
    return yaml.safe_load(render_workflows(REPOSITORY, settings)[path])


def load_component(**inputs: str) -> Any:
    """Return the jobs of the component with these inputs in the place of the defaults."""
    text = COMPONENT.read_text().partition("\n---\n")[2]
    for name, value in (INPUTS | inputs).items():
        text = text.replace(f"$[[ inputs.{name} ]]", value)
    assert "$[[" not in text
    return yaml.safe_load(text)


def test_the_reusable_workflow_has_the_jobs_that_gpuform_writes() -> None:
    shared, written = (
        yaml.safe_load(PLAN.read_text()),
        render("github", ".github/workflows/gpuform.yml"),
    )
    assert shared["jobs"].keys() == {"plan", "fresh"}
    for name, job in shared["jobs"].items():
        expected = written["jobs"][name]
        assert (job["if"], job["permissions"]) == (expected["if"], expected["permissions"])
        assert list_commands(job) == list_commands(expected)
        actions = {step["uses"] for step in expected["steps"] if "uses" in step}
        assert {step["uses"] for step in job["steps"] if "uses" in step} == actions
        keys = [step["env"] for step in job["steps"] if "TOGETHER_API_KEY" in step.get("env", {})]
        assert keys == [
            step["env"] for step in expected["steps"] if "TOGETHER_API_KEY" in step.get("env", {})
        ]


OWN_JOB = ' --job "gpuform-plan$SUFFIX"'


def list_commands(job: Any) -> list[str]:
    """Return the gpuform commands of a job of GitHub's, with the names of the written workflow."""
    scripts = "\n".join(step.get("run", "") for step in job["steps"])
    lines = [line.strip() for line in scripts.splitlines() if line.strip().startswith("gpuform")]
    names = {'"$STACK"': "'prod'", '"origin/$BRANCH"': "'origin/main'", OWN_JOB: ""}
    for placeholder, name in names.items():
        lines = [line.replace(placeholder, name) for line in lines]
    return lines


def test_the_reusable_workflow_gets_secrets_by_name_and_puts_no_input_into_a_script() -> None:
    # `on` is a boolean of YAML 1.1.
    workflow: Any = yaml.load(PLAN.read_text(), Loader=yaml.BaseLoader)
    call = workflow["on"]["workflow_call"]
    used = set(re.findall(r": \$\{\{ secrets\.(\w+) \}\}$", PLAN.read_text(), re.MULTILINE))
    assert used == set(call["secrets"])
    required = [name for name, secret in call["secrets"].items() if secret["required"] == "true"]
    assert required == ["PULUMI_CONFIG_PASSPHRASE"]
    assert set(re.findall(r"inputs\.([\w-]+)", PLAN.read_text())) == set(call["inputs"])
    for job in workflow["jobs"].values():
        assert not any("${{" in step.get("run", "") for step in job["steps"])


def test_the_action_installs_what_the_project_has_locked(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    setup, install = action["runs"]["steps"]
    plan = render("github", ".github/workflows/gpuform.yml")["jobs"]["plan"]
    assert setup["uses"] in [step.get("uses") for step in plan["steps"]]
    assert install["env"] == {"DIRECTORY": "${{ inputs.directory }}"}
    assert "${{" not in install["run"]
    (tmp_path / "my infra").mkdir()
    for name, expected in (
        ("requirements.txt", "--requirement requirements.txt"),
        ("requirements.lock", "--require-hashes --requirement requirements.lock"),
    ):
        (tmp_path / "my infra" / name).touch()
        printed = run_script(install["run"], tmp_path, {"DIRECTORY": "my infra"})
        assert printed == f"-m pip install {expected}\n"
        assert (tmp_path / "output").read_text().endswith("version=1.2.3\n")


STUBS = """
python() { echo "$@"; }
gpuform() { echo gpuform 1.2.3; }
"""


def run_script(script: str, folder: Path, variables: dict[str, str]) -> str:
    """Return what a script prints whose programs are replaced by functions."""
    done = subprocess.run(
        ["bash", "-eu", "-c", STUBS + script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(folder / "output"), **variables},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_the_component_has_the_jobs_that_gpuform_writes() -> None:
    component, written = load_component(), render("gitlab", ".gitlab-ci.yml")
    for name in ("gpuform-plan", "gpuform-fresh"):
        job, expected = component[name], written[name]
        assert job["rules"] == expected["rules"]
        commands, expected_commands = (
            [
                line.replace("infra/plan.json", "plan.json").removesuffix(" --job 'gpuform-plan'")
                for line in jobs["script"]
            ]
            for jobs in (job, expected)
        )
        assert [line.replace("'plan.json'", "plan.json") for line in expected_commands] == [
            line for line in commands if "cp plan.json" not in line
        ]
    assert component["gpuform-plan"]["artifacts"]["paths"] == ["plan.json"]


def test_a_second_stack_has_jobs_and_artifacts_of_its_own() -> None:
    first, second = load_component(), load_component(suffix="-dev", stack="dev")
    assert not first.keys() & second.keys()
    fresh = second["gpuform-fresh-dev"]
    assert fresh["extends"] in second
    assert fresh["needs"][0]["job"] in second
    assert any("--job 'gpuform-plan-dev'" in line for line in fresh["script"])
    jobs = yaml.safe_load(PLAN.read_text())["jobs"]
    names = [jobs["plan"]["concurrency"]["group"], jobs["plan"]["steps"][-1]["with"]["name"]]
    assert all(name.startswith("gpuform-plan${{ inputs.suffix }}-") for name in names)
    assert any(step.get("run", "").endswith(OWN_JOB) for step in jobs["fresh"]["steps"])


@pytest.mark.slow
def test_the_component_is_valid_by_the_schema_of_gitlab(tmp_path: Path) -> None:
    file = tmp_path / ".gitlab-ci.yml"
    file.write_text(yaml.safe_dump(load_component(directory=".")))
    schema = ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]
    checked = CliRunner().invoke(check_jsonschema, [*schema, str(file)])
    assert checked.exit_code == 0, checked.output


def test_the_component_declares_its_inputs() -> None:
    """GitLab reads the first document, and finds components in templates/NAME/template.yml."""
    header, _, jobs = COMPONENT.read_text().partition("\n---\n")
    inputs = yaml.safe_load(header)["spec"]["inputs"]
    assert inputs.keys() == INPUTS.keys()
    assert [name for name, field in inputs.items() if "default" not in field] == ["stack"]
    assert set(re.findall(r"inputs\.(\w+)", jobs)) == inputs.keys()
    for name in ("stack", "directory", "branch", "suffix"):
        assert not re.fullmatch(inputs[name]["regex"], "a'; curl evil")


def test_jobs_of_the_component_have_read_only_keys_and_the_clouds_that_have_an_identity(
    tmp_path: Path,
) -> None:
    (tmp_path / "infra").mkdir()
    script = "\n".join(load_component()[".gpuform"]["before_script"])
    variables = {
        "CI_PROJECT_DIR": str(tmp_path / "p"),
        "GITLAB_OIDC_TOKEN": "a token",
        "TOGETHER_API_KEY": "writes",
        "TOGETHER_API_KEY_READ_ONLY": "reads",
        "AZURE_CLIENT_ID": "writes",
        "GCP_SERVICE_ACCOUNT_READ_ONLY": "reader@example.org",
        "GCP_WORKLOAD_IDENTITY_PROVIDER": "projects/1",
    }
    shown = 'echo "$TOGETHER_API_KEY" "${AZURE_CLIENT_ID-unset}" "$GOOGLE_APPLICATION_CREDENTIALS"'
    printed = run_script(f"{script}\n{shown}", tmp_path, variables).splitlines()
    assert printed[-1] == f"reads unset {tmp_path}/p.google.json"
    assert "reader@example.org:generate" in (tmp_path / "p.google.json").read_text()


def iterate_instructions() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the Containerfile, each in one line."""
    text = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, re.sub(r"\s+", " ", rest)


def test_the_image_is_debian_with_the_wheel_and_locked_packages_and_without_root() -> None:
    instructions = list(iterate_instructions())
    assert instructions[0] == ("ARG", "DEBIAN=debian:13-slim")
    words = [word for word, _ in instructions]
    assert "ADD" not in words
    bases = {rest.partition(" ")[0] for word, rest in instructions if word == "FROM"}
    assert bases == {"${DEBIAN}"}
    assert [rest for word, rest in instructions if word == "COPY"] == [
        "requirements.lock gpuform-*.whl /build/",
        "--from=build /opt/gpuform /opt/gpuform",
    ]
    last_stage = instructions[len(words) - words[::-1].index("FROM") :]
    user = [rest for word, rest in last_stage if word == "USER"]
    assert user == ["10001:10001"]
    assert [word for word, _ in last_stage].index("USER") > max(
        index for index, (word, _) in enumerate(last_stage) if word == "RUN"
    )
    installs = " ".join(rest for word, rest in instructions if word == "RUN").split("pip install")
    assert all("--require-hashes" in part or "--no-deps" in part for part in installs[1:])
    assert not re.search(r"(?i)token|secret|password|api_key", (ROOT / "Containerfile").read_text())


def test_the_release_pushes_the_image_and_the_site_of_the_checked_build() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    for name in ("image", "site"):
        assert jobs[name]["needs"] == "publish"
    scripts = [step["run"] for step in jobs["image"]["steps"] if "run" in step]
    trial, push = scripts
    assert "--entrypoint id trial -u" in trial
    assert "--sbom=true --provenance=mode=max --push" in push
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["site_dir"]
    uploads = [step["with"] for step in jobs["build"]["steps"] if "upload" in step.get("uses", "")]
    assert [upload["path"] for upload in uploads] == ["dist/", "container/", site]
    assert jobs["site"]["permissions"] == {"pages": "write", "id-token": "write"}
