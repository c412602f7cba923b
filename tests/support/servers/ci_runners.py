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
        """Return the secrets of a job: those of an environment only where the job names it."""
        common = {
            name: value
            for name, value in self.secrets.items()
            if name.endswith("_READ_ONLY") or name == "PULUMI_CONFIG_PASSPHRASE"
        }
        return self.secrets if "environment" in job_spec else common

    def find_base(self, commit: str) -> str:
        """Return the commit that a push of `commit` finds on the default branch."""
        listed = subprocess.run(
            ["git", "-C", str(self.origin), "rev-list", "--first-parent", "-n2", commit],
            check=True,
            capture_output=True,
            text=True,
        )
        return listed.stdout.split()[-1]

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
    plan_result: str = ""
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
        """Run a job and return the exit code, or -1 if the job's condition is false."""
        code = self._run_steps(job, event, commit, pull)
        if job == "plan":
            self.plan_result = {-1: "skipped", 0: "success"}.get(code, "failure")
        return code

    def _run_steps(self, job: str, event: str, commit: str, pull: Mapping[str, Any] | None) -> int:
        folder = self.clone(commit)
        workflow = yaml.safe_load((folder / ".github/workflows/gpuform.yml").read_text())
        job_spec = workflow["jobs"][job]
        context: dict[str, Any] = {
            "github": {
                "event_name": event,
                "repository": "o/r",
                "token": TOKEN,
                "event": {"pull_request": pull} if pull else {"before": self.find_base(commit)},
            },
            "secrets": self.list_job_secrets(job_spec),
            "vars": {"PULUMI_BACKEND_URL": self.backend},
            "needs": {"plan": {"result": self.plan_result if pull else "skipped"}},
        }
        if not _evaluate_github_condition(job_spec["if"], context):
            return -1
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
                more = environ | _substitute_expressions(step.get("env", {}), context)
                if code := self.run_script(step["run"], working_directory, more):
                    return code
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
            "CI_PIPELINE_SOURCE": source,
            "CI_COMMIT_SHA": commit,
            "CI_COMMIT_BEFORE_SHA": self.find_base(commit),
            "CI_COMMIT_BRANCH": "main" if source == "push" else "",
            "GITLAB_TOKEN": TOKEN,
            "PULUMI_BACKEND_URL": self.backend,
            "CI_ENVIRONMENT_NAME": (job_spec.get("environment") or {}).get("name", ""),
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

    def value(name: re.Match[str]) -> str:
        return str(_look_up(name[1], context) or "")

    return {k: re.sub(r"\$\{\{ ([\w.]+) \}\}", value, str(v)) for k, v in values.items()}


def _look_up(name: str, context: Mapping[str, Any]) -> Any:
    value: Any = context
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _evaluate_github_condition(condition: str, context: Mapping[str, Any]) -> bool:
    """Evaluate a condition of GitHub's, of names, texts, ==, && and ||."""
    expression = condition.replace("always()", "True").replace("!cancelled()", "True")
    expression = re.sub(
        r"'[^']*'|\b(?:github|needs)[\w.]+",
        lambda m: m[0] if m[0].startswith("'") else repr(_look_up(m[0], context)),
        expression,
    )
    return bool(eval(expression.replace("&&", "and").replace("||", "or")))


def _evaluate_gitlab_rule(condition: str, environ: Mapping[str, str]) -> bool:
    """Evaluate a rule of GitLab's, of variables, texts, == and &&."""
    expression = re.sub(r"\$(\w+)", lambda name: repr(environ.get(name[1], "")), condition)
    return bool(eval(expression.replace("&&", "and")))
