"""Enough of GitHub's and GitLab's runners to run the scripts of a workflow as they are written."""

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
    """Runs jobs, each in a new clone of `origin`. `outside` is what a machine has of its own."""

    origin: Path
    work: Path
    forge: FakeCodeHost
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
            subprocess.run(command, check=True, env=self.environ({}))
        return folder

    def bash(self, script: str, folder: Path, environ: Mapping[str, str]) -> int:
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env=self.environ(environ),
            capture_output=True,
            text=True,
            timeout=LAST_RESORT,
            check=False,
        )
        self.output.append(f"$ {script}\n{ran.stdout}{ran.stderr}")
        return ran.returncode

    def environ(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k in ("PYTHONPATH", "LANG")}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        home = {"HOME": str(self.work), "PULUMI_HOME": str(self.work / "home")}
        # What the jobs install is found, and not put over the gpuform that is tested.
        dry = {"PIP_DRY_RUN": "1"}
        return {**kept, **home, **dry, "PATH": path, **self.outside, **more}


@dataclass
class GitHubRunner(Runner):
    planned: str = ""
    name = "github"

    def pull(self, job: str, commit: str, branch: str = "feature") -> int:
        """A job of the pull request whose last commit this is."""
        self.forge.head = commit
        head = {"sha": commit, "ref": branch, "repo": {"full_name": "o/r"}}
        return self.run(job, "pull_request", commit, {"number": self.forge.number, "head": head})

    def push(self, commit: str) -> int:
        """The apply of a commit of the default branch."""
        return self.run("apply", "push", commit)

    def run(self, job: str, event: str, commit: str, pull: Mapping[str, Any] | None = None) -> int:
        """A job's exit code; -1 when its condition does not hold."""
        code = self._run(job, event, commit, pull)
        if job == "plan":
            self.planned = {-1: "skipped", 0: "success"}.get(code, "failure")
        return code

    def _run(self, job: str, event: str, commit: str, pull: Mapping[str, Any] | None) -> int:
        folder = self.clone(commit)
        workflow = yaml.safe_load((folder / ".github/workflows/gpuform.yml").read_text())
        described = workflow["jobs"][job]
        context: dict[str, Any] = {
            "github": {
                "event_name": event,
                "repository": "o/r",
                "token": TOKEN,
                "event": {"pull_request": pull} if pull else {},
            },
            "secrets": self.secrets,
            "vars": {"PULUMI_BACKEND_URL": self.backend},
            "needs": {"plan": {"result": self.planned if pull else "skipped"}},
        }
        if not _holds(described["if"], context):
            return -1
        event_file = self.work / "event.json"
        event_file.write_text(json.dumps({"pull_request": pull} if pull else {}))
        queued = f"refs/heads/gh-readonly-queue/main/pr-{self.forge.number}-{commit}"
        refs = {"pull_request": f"refs/pull/{self.forge.number}/merge", "merge_group": queued}
        environ = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_API_URL": self.forge.url,
            "GITHUB_EVENT_PATH": str(event_file),
            "GITHUB_REF": refs.get(event, "refs/heads/main"),
            "GITHUB_SHA": commit,
            "GITHUB_HEAD_REF": pull["head"].get("ref", "") if pull else "",
            "GITHUB_RUN_ID": "77",
            "GITHUB_STEP_SUMMARY": str(self.work / "summary.md"),
            **_filled(workflow["env"], context),
        }
        place = folder / workflow["defaults"]["run"]["working-directory"]
        for step in described["steps"]:
            if "if" in step and not _holds(step["if"], context):
                continue
            given = _filled(step.get("with", {}), context)
            if "run" in step:
                more = environ | _filled(step.get("env", {}), context)
                if code := self.bash(step["run"], place, more):
                    return code
            elif "upload-artifact" in step["uses"]:
                content = (folder / given["path"]).read_bytes()
                self.forge.add_artifact(given["name"], pull["head"]["sha"] if pull else "", content)
            else:
                assert step["uses"].partition("@")[0] in (
                    "actions/checkout",
                    "actions/setup-python",
                )
        return 0


@dataclass
class GitLabRunner(Runner):
    name = "gitlab"

    def pull(self, job: str, commit: str, branch: str = "feature") -> int:
        """A job of the merge request whose last commit this is."""
        projects = {"CI_MERGE_REQUEST_PROJECT_ID": "7", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "7"}
        variables = {**projects, "CI_MERGE_REQUEST_IID": str(self.forge.number)}
        variables["CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"] = branch
        return self.run(f"gpuform-{job}", "merge_request_event", commit, **variables)

    def push(self, commit: str) -> int:
        """The apply of a commit of the default branch."""
        return self.run("gpuform-apply", "push", commit)

    def run(self, job: str, source: str, commit: str, **variables: str) -> int:
        """A job's exit code; -1 when no rule of it holds."""
        folder = self.clone(commit)
        workflow = yaml.safe_load((folder / ".gitlab-ci.yml").read_text())
        described = workflow[job]
        environ = {
            "GITLAB_CI": "true",
            "CI_API_V4_URL": f"{self.forge.url}/api/v4",
            "CI_PROJECT_ID": "7",
            "CI_PIPELINE_SOURCE": source,
            "CI_COMMIT_SHA": commit,
            "CI_COMMIT_BRANCH": "main" if source == "push" else "",
            "GITLAB_TOKEN": TOKEN,
            "PULUMI_BACKEND_URL": self.backend,
            **self.secrets,
            **variables,
        }
        for rules in (workflow["workflow"]["rules"], described["rules"]):
            rule = next((each for each in rules if _rule(each["if"], environ)), {"when": "never"})
            if rule.get("when") == "never":
                return -1
        lines = [*workflow["default"]["before_script"], *described["script"]]
        code = self.bash("\n".join(lines), folder, environ)
        if source == "merge_request_event" and job == "gpuform-plan":
            made = {"id": 1000 + self._jobs, "name": job, "status": "failed" if code else "success"}
            paths = [] if code else described["artifacts"]["paths"]
            files = {path: (folder / path).read_bytes() for path in paths}
            self.forge.pipelines.append({"id": self._jobs, "jobs": [{**made, "files": files}]})
        return code


def _filled(values: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, str]:
    """With each `${{ name }}` as its value; what there is not is empty."""

    def value(name: re.Match[str]) -> str:
        return str(_looked_up(name[1], context) or "")

    return {k: re.sub(r"\$\{\{ ([\w.]+) \}\}", value, str(v)) for k, v in values.items()}


def _looked_up(name: str, context: Mapping[str, Any]) -> Any:
    found: Any = context
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _holds(condition: str, context: Mapping[str, Any]) -> bool:
    """A condition of GitHub's, of names, texts, ==, && and ||."""
    text = condition.replace("always()", "True").replace("!cancelled()", "True")
    text = re.sub(
        r"'[^']*'|\b(?:github|needs)[\w.]+",
        lambda m: m[0] if m[0].startswith("'") else repr(_looked_up(m[0], context)),
        text,
    )
    return bool(eval(text.replace("&&", "and").replace("||", "or")))


def _rule(condition: str, environ: Mapping[str, str]) -> bool:
    """One of GitLab's, of variables, texts, == and &&."""
    text = re.sub(r"\$(\w+)", lambda name: repr(environ.get(name[1], "")), condition)
    return bool(eval(text.replace("&&", "and")))
