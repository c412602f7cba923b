"""Run the scripts of a CI workflow as GitHub's and GitLab's runners do, in the parts they use."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from processes.limits import LAST_RESORT
from support.servers.code_host import TOKEN, FakeCodeHost

PASSPHRASE = "the passphrase of a test"


WAITING = -2
"""The code of a job that waits for an approval."""


def get_environment_name(job_spec: Mapping[str, Any]) -> str:
    """Return the environment of a job, as GitHub or GitLab writes it; empty without one."""
    environment = job_spec.get("environment") or ""
    return environment if isinstance(environment, str) else environment["name"]


@dataclass
class Runner:
    """Runs jobs, each in a new clone of `origin`; `outside` has the variables of the machine."""

    origin: Path
    work: Path
    code_host: FakeCodeHost
    outside: dict[str, str]
    secrets: dict[str, str]
    backend: str
    output: list[str] = field(default_factory=list)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    """The secrets of each environment; empty: all are of the repository and of one environment."""
    unapproved: set[str] = field(default_factory=set)
    """The environments whose jobs wait for an approval."""
    _jobs: int = 0

    def clone(self, commit: str) -> Path:
        self._jobs += 1
        folder = self.work / f"job{self._jobs}"
        for command in (
            ["git", "clone", "-q", str(self.origin), str(folder)],
            ["git", "-C", str(folder), "checkout", "-q", commit],
        ):
            subprocess.run(command, check=True, env=self.build_environ({}))
        return folder

    def list_job_secrets(self, job_spec: Mapping[str, Any]) -> dict[str, str]:
        """Return the secrets of a job: those of an environment only where the job names it.

        With `environments` no secret belongs to the repository.
        """
        if self.environments:
            return self.environments.get(get_environment_name(job_spec), {})
        common = {
            name: value
            for name, value in self.secrets.items()
            if name.endswith("_READ_ONLY") or name == "PULUMI_CONFIG_PASSPHRASE"
        }
        return self.secrets if "environment" in job_spec else common

    def waits_for_approval(self, job_spec: Mapping[str, Any]) -> bool:
        """Return True if people have to approve the job, and have not."""
        return get_environment_name(job_spec) in self.unapproved

    def find_base(self, commit: str) -> str:
        """Return the commit that a push of `commit` finds on the default branch."""
        listed = subprocess.run(
            ["git", "-C", str(self.origin), "rev-list", "--first-parent", "-n2", commit],
            check=True,
            capture_output=True,
            text=True,
        )
        return listed.stdout.split()[-1]

    def find_main(self) -> str:
        """Return the last commit of the default branch."""
        command = ["git", "-C", str(self.origin), "rev-parse", "main"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def run_script(self, script: str, folder: Path, environ: Mapping[str, str]) -> int:
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env=self.build_environ(environ),
            capture_output=True,
            text=True,
            timeout=LAST_RESORT,
            check=False,
        )
        self.output.append(f"$ {script}\n{ran.stdout}{ran.stderr}")
        return ran.returncode

    def build_environ(self, more: Mapping[str, str]) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if k in ("PYTHONPATH", "LANG")}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        home = {"HOME": str(self.work), "PULUMI_HOME": str(self.work / "home")}
        # What the jobs install is found, and not put over the gpuform that is tested.
        dry = {"PIP_DRY_RUN": "1"}
        return {**inherited, **home, **dry, "PATH": path, **self.outside, **more}


@dataclass
class GitHubRunner(Runner):
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The result and the outputs of each job that has run."""
    name = "github"

    def run_pull_request_job(self, job: str, commit: str, branch: str = "feature") -> int:
        """Run a job for a pull request at `commit`, and return the exit code."""
        self.code_host.head = commit
        head = {"sha": commit, "ref": branch, "repo": {"full_name": "o/r"}}
        return self.run(
            job, "pull_request", commit, {"number": self.code_host.number, "head": head}
        )

    def apply_commit(self, commit: str) -> int:
        """Run the apply of a commit on the default branch, and return the exit code."""
        return self.run("apply", "push", commit)

    def run(self, job: str, event: str, commit: str, pull: Mapping[str, Any] | None = None) -> int:
        """Run a job and return the exit code, or -1 if the job's condition is false.

        Needed jobs that have not run for this event count as skipped. WAITING stands for a job
        that waits for an approval, and then runs nothing.
        """
        outputs: dict[str, str] = {}
        code = self._run_steps(job, event, commit, pull, outputs)
        result = {-1: "skipped", 0: "success"}.get(code, "failure")
        self.results[job] = {"result": result, "outputs": outputs, "event": event}
        return code

    def _run_steps(
        self,
        job: str,
        event: str,
        commit: str,
        pull: Mapping[str, Any] | None,
        job_outputs: dict[str, str],
    ) -> int:
        folder = self.clone(commit)
        workflow = yaml.safe_load((folder / ".github/workflows/gpuform.yml").read_text())
        job_spec = workflow["jobs"][job]
        context: dict[str, Any] = {
            "github": {
                "event_name": event,
                "repository": "o/r",
                "token": TOKEN,
                "event": {"pull_request": {"base": {"sha": self.find_main()}, **pull}}
                if pull
                else {"before": self.find_base(commit)},
            },
            "secrets": self.list_job_secrets(job_spec),
            "vars": {"PULUMI_BACKEND_URL": self.backend},
            "needs": {
                name: result if result["event"] == event else {"result": "skipped"}
                for name, result in self.results.items()
            },
            "steps": {},
        }
        if not _evaluate_github_condition(job_spec.get("if", "True"), context):
            return -1
        if self.waits_for_approval(job_spec):
            return WAITING
        event_file = self.work / "event.json"
        event_file.write_text(json.dumps({"pull_request": pull} if pull else {}))
        queued = f"refs/heads/gh-readonly-queue/main/pr-{self.code_host.number}-{commit}"
        refs = {"pull_request": f"refs/pull/{self.code_host.number}/merge", "merge_group": queued}
        environ = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_API_URL": self.code_host.url,
            "GITHUB_EVENT_PATH": str(event_file),
            "GITHUB_REF": refs.get(event, "refs/heads/main"),
            "GITHUB_SHA": commit,
            "GITHUB_HEAD_REF": pull["head"].get("ref", "") if pull else "",
            "GITHUB_RUN_ID": "77",
            "GITHUB_STEP_SUMMARY": str(self.work / "summary.md"),
            **_substitute_expressions(workflow["env"], context),
        }
        working_directory = folder / workflow["defaults"]["run"]["working-directory"]
        for step in job_spec["steps"]:
            if "if" in step and not _evaluate_github_condition(step["if"], context):
                continue
            step_inputs = _substitute_expressions(step.get("with", {}), context)
            if "run" in step:
                step_file = self.work / f"outputs{self._jobs}-{step.get('id')}"
                step_file.touch()
                more = environ | _substitute_expressions(step.get("env", {}), context)
                more["GITHUB_OUTPUT"] = str(step_file)
                step_folder = folder / step.get("working-directory", working_directory)
                if code := self.run_script(step["run"], step_folder, more):
                    return code
                lines = step_file.read_text().splitlines()
                step_outputs = dict(line.split("=", 1) for line in lines)
                context["steps"][step.get("id")] = {"outputs": step_outputs}
            elif "upload-artifact" in step["uses"]:
                content = (folder / step_inputs["path"]).read_bytes()
                self.code_host.add_artifact(
                    step_inputs["name"], pull["head"]["sha"] if pull else "", content
                )
            else:
                assert step["uses"].partition("@")[0] in (
                    "actions/checkout",
                    "actions/setup-python",
                )
        job_outputs |= _substitute_expressions(job_spec.get("outputs", {}), context)
        return 0


@dataclass
class GitLabRunner(Runner):
    name = "gitlab"

    def run_pull_request_job(self, job: str, commit: str, branch: str = "feature") -> int:
        """Run a job for a merge request at `commit`, and return the exit code."""
        projects = {"CI_MERGE_REQUEST_PROJECT_ID": "7", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "7"}
        variables = {**projects, "CI_MERGE_REQUEST_IID": str(self.code_host.number)}
        variables["CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"] = branch
        return self.run(f"gpuform-{job}", "merge_request_event", commit, **variables)

    def apply_commit(self, commit: str) -> int:
        """Run the apply of a commit on the default branch, and return the exit code."""
        return self.run("gpuform-apply", "push", commit)

    def run(self, job: str, source: str, commit: str, **variables: str) -> int:
        """Run a job and return the exit code, or -1 if no rule of the job matches."""
        folder = self.clone(commit)
        workflow = yaml.safe_load((folder / ".gitlab-ci.yml").read_text())
        job_spec = workflow[job]
        environ = {
            "GITLAB_CI": "true",
            "CI_API_V4_URL": f"{self.code_host.url}/api/v4",
            "CI_PROJECT_ID": "7",
            "CI_PROJECT_DIR": str(folder),
            "CI_PIPELINE_SOURCE": source,
            "CI_COMMIT_SHA": commit,
            "CI_COMMIT_BEFORE_SHA": self.find_base(commit),
            "CI_COMMIT_BRANCH": "main" if source == "push" else "",
            "GITLAB_TOKEN": TOKEN,
            "PULUMI_BACKEND_URL": self.backend,
            "CI_ENVIRONMENT_NAME": get_environment_name(job_spec),
            **self.list_job_secrets(job_spec),
            **variables,
        }
        for rules in (workflow["workflow"]["rules"], job_spec["rules"]):
            rule = next(
                (
                    candidate
                    for candidate in rules
                    if _evaluate_gitlab_rule(candidate["if"], environ)
                ),
                {"when": "never"},
            )
            if rule.get("when") == "never":
                return -1
        lines = [*workflow["default"]["before_script"], *job_spec["script"]]
        code = self.run_script("\n".join(lines), folder, environ)
        if source == "merge_request_event" and job == "gpuform-plan":
            ended_job = {
                "id": 1000 + self._jobs,
                "name": job,
                "status": "failed" if code else "success",
            }
            paths = [] if code else job_spec["artifacts"]["paths"]
            files = {path: (folder / path).read_bytes() for path in paths}
            self.code_host.pipelines.append(
                {"id": self._jobs, "jobs": [{**ended_job, "files": files}]}
            )
        return code


def _substitute_expressions(
    values: Mapping[str, Any], context: Mapping[str, Any]
) -> dict[str, str]:
    """Return the values with each `${{ name }}` replaced; a name without a value becomes empty."""

    def value(names: re.Match[str]) -> str:
        found = (_look_up(name, context) for name in names[1].split(" || "))
        return str(next(filter(None, found), ""))

    return {k: re.sub(r"\$\{\{ ([\w.| -]+) \}\}", value, str(v)) for k, v in values.items()}


def _look_up(name: str, context: Mapping[str, Any]) -> Any:
    value: Any = context
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _evaluate_github_condition(condition: str, context: Mapping[str, Any]) -> bool:
    """Evaluate a condition of GitHub's, of names, texts, ==, && and ||."""
    expression = condition.removeprefix("${{").removesuffix("}}").strip()
    expression = re.sub(r"always\(\)|!(cancelled|failure)\(\)", "True", expression)
    expression = re.sub(
        r"'[^']*'|\b(?:github|needs|steps)[\w.-]+",
        lambda m: m[0] if m[0].startswith("'") else repr(_look_up(m[0], context)),
        expression,
    )
    return bool(eval(expression.replace("&&", "and").replace("||", "or")))


def _evaluate_gitlab_rule(condition: str, environ: Mapping[str, str]) -> bool:
    """Evaluate a rule of GitLab's, of variables, texts, == and &&."""
    expression = re.sub(r"\$(\w+)", lambda name: repr(environ.get(name[1], "")), condition)
    return bool(eval(expression.replace("&&", "and")))
