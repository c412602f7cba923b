"""Play pipelines of GitLab on this machine, by the rules of GitLab's documents.

Pages of docs.gitlab.com/ci: yaml (rules, needs, dependencies, artifacts, extends, trigger),
variables (scopes, protected variables), pipelines/downstream_pipelines, environments. Jobs run one
after the other, each in a new clone. The fake code host answers about them.
"""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.servers.ci_runners import Runner, get_environment_name

GLOBAL_KEYS = {"default", "stages", "workflow", "variables", "include"}


@dataclass(frozen=True)
class Variable:
    """A variable of the project's settings; `scope` is the environment whose jobs get it."""

    name: str
    value: str
    scope: str = "*"
    is_protected: bool = False


@dataclass
class GitLabProject(Runner):
    """A project, of which only the branch main is protected."""

    settings: list[Variable] = field(default_factory=list)
    started: set[str] = field(default_factory=set)
    """The manual jobs that somebody has started."""
    denied: set[str] = field(default_factory=set)
    """The protected environments to which whoever starts the pipelines may not deploy."""
    lost: set[str] = field(default_factory=set)
    """The jobs whose runner is lost, once."""
    pipelines: int = 0

    def clone(self, commit: str) -> Path:
        """Return a clone whose folder has the same name in every job, as on a runner."""
        self._jobs += 1
        folder = self.work / f"job{self._jobs}" / self.origin.name
        folder.parent.mkdir()
        for command in (
            ["git", "clone", "-q", str(self.origin), str(folder)],
            ["git", "-C", str(folder), "checkout", "-q", commit],
        ):
            subprocess.run(command, check=True, env=self.build_environ({}))
        return folder

    def list_variables(self, job: Mapping[str, Any], *, is_protected: bool) -> dict[str, str]:
        """Return the variables of the settings that a job gets."""
        scopes = {"*", get_environment_name(job)}
        return {
            variable.name: variable.value
            for variable in self.settings
            if variable.scope in scopes and (is_protected or not variable.is_protected)
        }

    def start_merge_request(self, commit: str, branch: str, **more: str) -> "Pipeline":
        """Run the pipeline of a merge request at a commit of a branch of this project."""
        self.code_host.head = commit
        variables = {
            "CI_MERGE_REQUEST_PROJECT_ID": "7",
            "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "7",
            "CI_MERGE_REQUEST_IID": str(self.code_host.number),
            "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": branch,
            "CI_COMMIT_BEFORE_SHA": "0" * 40,
            **more,
        }
        return self._start(commit, "merge_request_event", variables)

    def start_push(self, commit: str) -> "Pipeline":
        """Run the pipeline of a push to the branch main."""
        variables = {"CI_COMMIT_BRANCH": "main", "CI_COMMIT_BEFORE_SHA": self.find_base(commit)}
        return self._start(commit, "push", variables)

    def _start(self, commit: str, source: str, variables: dict[str, str]) -> "Pipeline":
        text = self.git("show", f"{commit}:.gitlab-ci.yml")
        pipeline = Pipeline(self, commit, source, variables, yaml.safe_load(text))
        pipeline.run()
        return pipeline

    def git(self, *arguments: str) -> str:
        """Return what git prints in the repository."""
        command = ["git", "-C", str(self.origin), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclass
class Pipeline:
    """A pipeline: a configuration at a commit, and the status and the files of its jobs."""

    project: GitLabProject
    commit: str
    source: str
    variables: dict[str, str]
    config: dict[str, Any]
    is_child: bool = False
    statuses: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    children: dict[str, "Pipeline"] = field(default_factory=dict)
    whens: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project.pipelines += 1
        self.id = self.project.pipelines
        self._record = {"id": self.id, "is_child": self.is_child, "jobs": [], "bridges": []}
        self.project.code_host.pipelines.append(self._record)
        rules = self.config.get("workflow", {}).get("rules")
        assert rules is None or self._find_when(rules) != "never", "no pipeline by workflow:rules"
        for name in self.config:
            if name in GLOBAL_KEYS or name.startswith("."):
                continue
            job = self._build_job(name)
            has_rules = "rules" in job or rules is not None
            # Without any rules, a job is for branches and tags alone.
            assert has_rules or "CI_MERGE_REQUEST_IID" not in self.variables, f"{name} never runs"
            when = self._find_when(job["rules"]) if "rules" in job else "on_success"
            if when != "never":
                self.jobs[name], self.whens[name] = job, when
        assert self.jobs, "a pipeline without jobs is not created"
        stages = self.config["stages"]
        for name, job in self.jobs.items():
            assert job["stage"] in stages, f"{name} is in an unknown stage"

    @property
    def is_protected(self) -> bool:
        return self.variables.get("CI_COMMIT_BRANCH") == "main"

    @property
    def status(self) -> str:
        """Return failed, manual or running if the status of a job is; else success."""
        found = set(self.statuses.values())
        return next((it for it in ("failed", "manual", "running") if it in found), "success")

    def run(self) -> str:
        """Run all jobs that have not succeeded, and return the status: also a retry."""
        self.statuses = {name: it for name, it in self.statuses.items() if it == "success"}
        for stage in self.config["stages"]:
            names = [name for name, job in self.jobs.items() if job["stage"] == stage]
            for name in names:
                if name not in self.statuses:
                    self.statuses[name] = self._run_job(name)
                    self.write_record()
        return self.status

    def _run_job(self, name: str) -> str:
        job = self.jobs[name]
        required = [*self._list_required(name)]
        if any(self.statuses.get(other) != "success" for other in required):
            return "skipped"
        if self.whens[name] == "manual" and name not in self.project.started:
            return "manual"
        if self.project.waits_for_approval(job) and _is_deployment(job):
            return "manual"
        # Whatever the job does in the environment, unlike an approval.
        if get_environment_name(job) in self.project.denied:
            return "failed"
        if "trigger" in job:
            return self._trigger(name)
        if name in self.project.lost:
            self.project.lost.remove(name)
            return "failed"
        folder = self._create_folder(job)
        for path, content in self._list_downloads(name):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        environ = self.build_variables(name, folder)
        lines = [*job.get("before_script", []), *job["script"]]
        if self.project.run_script("\n".join(lines), folder, environ):
            return "failed"
        self.files[name] = dict(_read_files(folder, job.get("artifacts", {}).get("paths", ())))
        return "success"

    def _create_folder(self, job: Mapping[str, Any]) -> Path:
        folder = self.project.clone(self.commit)
        if job.get("variables", {}).get("GIT_STRATEGY") == "none":
            subprocess.run(["rm", "-rf", str(folder)], check=True)
            folder.mkdir()
        return folder

    def _trigger(self, name: str) -> str:
        """Create the child pipeline, or run the one that exists, and return its status."""
        trigger = self.jobs[name]["trigger"]
        # GitLab's projects may forbid pipeline variables, which those of a trigger job are.
        assert "variables" not in self.jobs[name]
        assert "variables" not in self.config
        assert trigger["strategy"] == "depend"
        if name not in self.children:
            (include,) = trigger["include"]
            config = yaml.safe_load(self.files[include["job"]][include["artifact"]])
            self.children[name] = Pipeline(
                self.project, self.commit, "parent_pipeline", self.variables, config, is_child=True
            )
        status = self.children[name].run()
        return status if status in ("success", "failed") else "running"

    def _list_required(self, name: str) -> Iterator[str]:
        """Yield the jobs that a job waits for: those it needs, or all of earlier stages."""
        job, stages = self.jobs[name], self.config["stages"]
        if "needs" not in job:
            before = stages[: stages.index(job["stage"])]
            yield from (other for other, it in self.jobs.items() if it["stage"] in before)
            return
        for need in map(_to_need, job["needs"]):
            assert need["job"] in self.jobs or need.get("optional"), f"{name} needs {need['job']}"
            if need["job"] in self.jobs:
                yield need["job"]

    def _list_downloads(self, name: str) -> Iterator[tuple[str, bytes]]:
        """Yield the files that a job gets from others."""
        given = self.jobs[name].get("dependencies")
        required = [*self._list_required(name)]
        assert given is None or set(given) <= set(required), f"{name} depends on a later job"
        for other in required if given is None else given:
            yield from self.files.get(other, {}).items()

    def build_variables(self, name: str, folder: Path) -> dict[str, str]:
        """Return the variables of a job that runs in a folder."""
        job = self.jobs[name]
        variables = {
            "GITLAB_CI": "true",
            "CI": "true",
            "CI_API_V4_URL": f"{self.project.code_host.url}/api/v4",
            "CI_PROJECT_ID": "7",
            "CI_PROJECT_DIR": str(folder),
            "CI_PIPELINE_ID": str(self.id),
            "CI_PIPELINE_SOURCE": self.source,
            "CI_JOB_NAME": name,
            "CI_COMMIT_SHA": self.commit,
            "CI_ENVIRONMENT_NAME": get_environment_name(job),
            **self.variables,
            **self.config.get("variables", {}),
            **job.get("variables", {}),
            **self.project.list_variables(job, is_protected=self.is_protected),
        }
        return {key: str(value) for key, value in variables.items()}

    def _build_job(self, name: str) -> dict[str, Any]:
        """Return a job with what it extends, and with the defaults that it does not set."""
        job = self.config[name]
        base = self.config[job["extends"]] if "extends" in job else {}
        defaults = {} if "trigger" in job else self.config.get("default", {})
        return {**defaults, **_merge(base, job)}

    def _find_when(self, rules: Sequence[Mapping[str, Any]]) -> str:
        """Return `when` of the first rule that matches, or never."""
        source = {"CI_PROJECT_ID": "7", "CI_PIPELINE_SOURCE": self.source}
        for rule in rules:
            is_met = "if" not in rule or is_condition_met(rule["if"], self.variables | source)
            if is_met and ("changes" not in rule or self._has_changes(rule["changes"])):
                return str(rule.get("when", "on_success"))
        return "never"

    def _has_changes(self, changes: Any) -> bool:
        before = self.variables["CI_COMMIT_BEFORE_SHA"]
        patterns, between = changes, f"{before}..{self.commit}"
        if isinstance(changes, dict):
            base = changes["compare_to"].removeprefix("refs/heads/")
            patterns, between = changes["paths"], f"{base}...{self.commit}"
        files = self.project.git("diff", "--name-only", between).split()
        return any(_matches(file, pattern) for file in files for pattern in patterns)

    def write_record(self) -> None:
        """Write what the API answers about the jobs that have run."""
        self._record["jobs"] = []
        self._record["bridges"] = []
        for number, (name, status) in enumerate(self.statuses.items()):
            described = {"id": 1000 * self.id + number, "name": name, "status": status}
            if "trigger" in self.jobs[name]:
                child = self.children.get(name)
                downstream = None if child is None else {"id": child.id}
                described["downstream_pipeline"] = downstream
                self._record["bridges"].append(described)
            else:
                described["files"] = self.files.get(name, {})
                self._record["jobs"].append(described)


def _matches(file: str, pattern: str) -> bool:
    """Return True if a pattern matches a path: `**/` any folders, `*` a part of a name."""
    parts = re.split(r"(\*\*/|\*)", pattern)
    known = {"**/": "(?:.*/)?", "*": "[^/]*"}
    return bool(re.fullmatch("".join(known.get(it) or re.escape(it) for it in parts), file))


def _is_deployment(job: Mapping[str, Any]) -> bool:
    """Return True unless `action` says that the job only looks at its environment."""
    environment = job["environment"]
    action = "start" if isinstance(environment, str) else environment.get("action", "start")
    return action in ("start", "stop")


def _to_need(need: Any) -> dict[str, Any]:
    return {"job": need} if isinstance(need, str) else need


def _merge(base: Any, own: Any) -> Any:
    """Merge mappings at any depth, as `extends` does; the own values win."""
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    return {**base, **{key: _merge(base.get(key), value) for key, value in own.items()}}


def _read_files(folder: Path, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        assert (folder / path).is_file(), f"no file {path}"
        yield path, (folder / path).read_bytes()


def is_condition_met(condition: str, variables: Mapping[str, str]) -> bool:
    """Evaluate a rule of variables, texts, patterns, `&&` and comparisons."""

    def is_term_met(term: str) -> bool:
        match = re.fullmatch(r"\$(\w+)(?: (==|!=|=~|!~) (.+))?", term.strip())
        assert match is not None, f"an unknown condition: {term}"
        value, sign, other = variables.get(match[1], ""), match[2], match[3]
        if sign is None:
            return bool(value)
        if "~" in sign:
            pattern = other.strip().removeprefix("/").removesuffix("/").replace("\\/", "/")
            return bool(re.search(pattern, value)) is (sign == "=~")
        named = other.startswith("$")
        wanted = variables.get(other[1:], "") if named else ast.literal_eval(other)
        return (value == wanted) is (sign == "==")

    return all(map(is_term_met, condition.split("&&")))
