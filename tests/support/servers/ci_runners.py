"""Run the scripts of a CI workflow as GitHub's and GitLab's runners do, in the parts they use."""

import fnmatch
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from processes.commands import build_path_with_gpuform
from processes.limits import LAST_RESORT
from support.servers.code_host import TOKEN, FakeCodeHost
from support.servers.github_expressions import fill, format_value, is_met

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
        # The name of the folder is in plans: it is that of the repository on every machine.
        folder = self.work / f"job{self._jobs}" / self.origin.name
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
        path = build_path_with_gpuform()
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
        workflow = self.read_workflow(commit)
        results = {
            name: result for name, result in self.results.items() if result["event"] == event
        }
        context = self.build_context(workflow, job, event, commit, pull, results)
        job_spec = workflow["jobs"][job]
        outputs: dict[str, str] = {}
        if not is_met(job_spec.get("if", "success()"), context):
            code = -1
        elif self.waits_for_approval(job_spec):
            code = WAITING
        else:
            code = self.run_steps(workflow, job, context, {}, outputs)
        result = {-1: "skipped", 0: "success"}.get(code, "failure")
        self.results[job] = {"result": result, "outputs": outputs, "event": event}
        return code

    def read_workflow(self, commit: str) -> Any:
        """Return the workflow of all jobs at a commit."""
        command = ["git", "-C", str(self.origin), "show", f"{commit}:.github/workflows/gpuform.yml"]
        return yaml.safe_load(subprocess.run(command, check=True, capture_output=True).stdout)

    def build_context(
        self,
        workflow: Any,
        job: str,
        event: str,
        commit: str,
        pull: Mapping[str, Any] | None,
        results: Mapping[str, Mapping[str, Any]],
        *,
        is_cancelled: bool = False,
    ) -> dict[str, Any]:
        """Return the contexts of a job's expressions; `results` are those of the other jobs.

        A job of which nothing is known was skipped.
        """
        jobs = workflow["jobs"]
        needs = list_needs(jobs[job])
        ancestors = [*needs]
        for name in ancestors:
            ancestors += [other for other in list_needs(jobs[name]) if other not in ancestors]
        skipped = {"result": "skipped"}
        states = [results.get(name, skipped)["result"] for name in ancestors]
        return {
            "commit": commit,
            "github": {
                "event_name": event,
                "repository": "o/r",
                "token": TOKEN,
                "head_ref": pull["head"].get("ref", "") if pull else "",
                "event": {"pull_request": {"base": {"sha": self.find_main()}, **pull}}
                if pull
                else {"before": self.find_base(commit)},
            },
            "secrets": self.list_job_secrets(jobs[job]),
            "vars": {"PULUMI_BACKEND_URL": self.backend},
            "needs": {name: results.get(name, skipped) for name in needs},
            "steps": {},
            "status": {
                "success": not is_cancelled and all(state == "success" for state in states),
                "failure": "failure" in states,
                "cancelled": is_cancelled,
            },
        }

    def run_steps(
        self,
        workflow: Any,
        job: str,
        context: dict[str, Any],
        artifacts: dict[str, dict[str, bytes]],
        job_outputs: dict[str, str],
    ) -> int:
        """Run the steps of a job in a new clone, and return the exit code of the first that fails.

        `artifacts` are those of the run, with the content of each file by path.
        """
        job_spec = workflow["jobs"][job]
        folder = self.clone(context["commit"])
        environ = {**self._build_job_environ(context), **fill(workflow["env"], context)}
        working_directory = folder / workflow["defaults"]["run"]["working-directory"]
        context["status"] = {"success": True, "failure": False, "cancelled": False}
        first_code = 0
        for step in job_spec["steps"]:
            if not is_met(step.get("if", "success()"), context):
                continue
            if "run" in step:
                code = self._run_script_step(step, folder, working_directory, environ, context)
            else:
                code = self._use_action(step, folder, context, artifacts)
            if code:
                first_code = first_code or code
                context["status"] = {"success": False, "failure": True, "cancelled": False}
        job_outputs |= fill(job_spec.get("outputs", {}), context)
        return first_code

    def _build_job_environ(self, context: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables that GitHub sets for all steps of a job."""
        github, commit = context["github"], context["commit"]
        pull = github["event"].get("pull_request")
        event_file = self.work / "event.json"
        event_file.write_text(json.dumps({"pull_request": pull} if pull else {}))
        queued = f"refs/heads/gh-readonly-queue/main/pr-{self.code_host.number}-{commit}"
        refs = {"pull_request": f"refs/pull/{self.code_host.number}/merge", "merge_group": queued}
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_API_URL": self.code_host.url,
            "GITHUB_EVENT_PATH": str(event_file),
            "GITHUB_REF": refs.get(github["event_name"], "refs/heads/main"),
            "GITHUB_SHA": commit,
            "GITHUB_HEAD_REF": github["head_ref"],
            "GITHUB_RUN_ID": "77",
            "GITHUB_STEP_SUMMARY": str(self.work / "summary.md"),
        }

    def _run_script_step(
        self,
        step: Mapping[str, Any],
        folder: Path,
        working_directory: Path,
        environ: Mapping[str, str],
        context: dict[str, Any],
    ) -> int:
        """Run the script of a step, add the step's outputs to `context`, and return the code."""
        step_file = self.work / f"outputs{self._jobs}-{step.get('id')}"
        step_file.touch()
        own = {name: format_value(it) for name, it in fill(step.get("env", {}), context).items()}
        step_folder = folder / step.get("working-directory", working_directory)
        more = {**environ, **own, "GITHUB_OUTPUT": str(step_file)}
        code = self.run_script(step["run"], step_folder, more)
        outputs = dict(line.split("=", 1) for line in step_file.read_text().splitlines())
        context["steps"][step.get("id")] = {"outputs": outputs}
        return code

    def _use_action(
        self,
        step: Mapping[str, Any],
        folder: Path,
        context: Mapping[str, Any],
        artifacts: dict[str, dict[str, bytes]],
    ) -> int:
        """Do what an action of the workflows does, and return the exit code."""
        inputs = fill(step.get("with", {}), context)
        action = step["uses"].partition("@")[0]
        if action == "actions/upload-artifact":
            return self._upload(inputs, folder, context, artifacts)
        if action == "actions/download-artifact":
            assert inputs["merge-multiple"] is True
            for name in fnmatch.filter(sorted(artifacts), inputs["pattern"]):
                for path, content in artifacts[name].items():
                    file = folder / inputs["path"] / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
        elif action == "actions/checkout" and inputs.get("fetch-depth") != 0:
            # Without the history, the job knows no other branch.
            command = ["git", "-C", str(folder), "remote", "remove", "origin"]
            subprocess.run(command, check=True, env=self.build_environ({}))
        else:
            assert action in ("actions/checkout", "actions/setup-python")
        return 0

    def _upload(
        self,
        inputs: Mapping[str, Any],
        folder: Path,
        context: Mapping[str, Any],
        artifacts: dict[str, dict[str, bytes]],
    ) -> int:
        """Keep files as an artifact of the run, and a plan where `fetch-plan` looks for it."""
        path, name = folder / inputs["path"], inputs["name"]
        listed = sorted(path.rglob("*")) if path.is_dir() else [path]
        root = path if path.is_dir() else path.parent
        files = {
            file.relative_to(root).as_posix(): file.read_bytes()
            for file in listed
            if file.is_file() and not any(part.startswith(".") for part in file.parts[-2:])
        }
        if not files or (name in artifacts and not inputs.get("overwrite")):
            self.output.append(f"cannot upload {name}: no file, or an artifact of this name")
            return 1
        artifacts[name] = files
        if [*files] == ["plan.json"]:
            pull = context["github"]["event"].get("pull_request")
            head = pull["head"]["sha"] if pull else ""
            self.code_host.add_artifact(name, head, files["plan.json"])
        return 0


def list_needs(job_spec: Mapping[str, Any]) -> list[str]:
    """Return the names of the jobs that a job of GitHub's needs."""
    needs = job_spec.get("needs", [])
    return [needs] if isinstance(needs, str) else list(needs)


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


def _evaluate_gitlab_rule(condition: str, environ: Mapping[str, str]) -> bool:
    """Evaluate a rule of GitLab's, of variables, texts, == and &&."""
    expression = re.sub(r"\$(\w+)", lambda name: repr(environ.get(name[1], "")), condition)
    return bool(eval(expression.replace("&&", "and")))
