"""Render one set of CI workflows for all stacks of a repository, for `gpuform new ci --all`.

The stacks are grouped by the environments of the code host that apply them. `ci_workflows` has the
parts that these workflows share with those of one stack.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpuform.providers.context import get_run_context
from gpuform.stacks.ci_requirements import WHEEL_FOLDER
from gpuform.stacks.ci_upgrade import RECORD_FILE, CiRecord
from gpuform.stacks.ci_workflows import (
    PLAN_ENVIRONMENT,
    READING_ENVIRONMENTS,
    WATCH_ENVIRONMENT,
    WORKFLOW_PATTERNS,
    Repository,
    WorkflowSettings,
    build_template_values,
    is_workflow_of_stack,
    list_identity_items,
    list_read_only_keys,
    list_rule_items,
    render_job_roles,
    render_templates,
)
from gpuform.stacks.code_hosts.review_target import CodeHostName
from gpuform.stacks.multi_stack import FILE as STACKS_FILE
from gpuform.stacks.multi_stack import (
    MultiStackError,
    StackOrder,
    WorkspaceStack,
    find_cycles,
    is_mentioned,
    order_workspace,
    sort_stacks,
)

_ENVIRONMENT_PREFIX: Final = "gpuform-"
_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_TEMPLATES: Final[Mapping[str, dict[str, str]]] = {
    "github": {
        ".github/workflows/gpuform.yml": "all-gpuform.yml.j2",
        ".github/workflows/gpuform-drift.yml": "all-drift.yml.j2",
        ".github/workflows/gpuform-expire.yml": "all-expire.yml.j2",
    },
    "gitlab": {".gitlab-ci.yml": "all-gitlab-ci.yml.j2"},
}
_CHILD_FILE: Final = ".gitlab/gpuform-waves.yml"
"""The jobs of GitLab's child pipelines, to which a job of a pipeline appends those of the parts."""
_CHILD_TEMPLATES: Final = {_CHILD_FILE: "all-waves.yml.j2"}
_DECIDING_NAMES: Final = (STACKS_FILE, "requirements.*", WHEEL_FOLDER)
"""What decides about all stacks, in their folder."""
_MAX_GITLAB_PATHS: Final = 50
"""The most paths in `rules:changes` (docs.gitlab.com/ci/yaml, rules:changes:paths)."""
_PROJECT_INSTALL: Final = """\
for folder in {folders}; do (
  cd "$folder"
  if [ -f requirements.lock ]; then
    python -m pip install --require-hashes --requirement requirements.lock
  elif [ -f requirements.txt ]; then
    python -m pip install --requirement requirements.txt
  fi
) done
"""
"""Shell lines that install the requirements of each project."""


@dataclass(frozen=True, slots=True)
class CiStack:
    """A stack in a workflow; `folder` is relative to the folder of all stacks."""

    name: str
    stack: str
    folder: str


@dataclass(frozen=True, slots=True)
class ApplyEnvironment:
    """An environment of the code host, and the stacks that its jobs apply.

    With `is_automatic` the stacks are applied after the merge without an approval. The environments
    of `after` are applied before. Several runners apply the stacks in `wave_count` waves: the
    longest chain of stacks of the environment that depend on each other.
    """

    name: str
    stacks: Sequence[CiStack]
    is_automatic: bool = False
    after: Sequence["ApplyEnvironment"] = ()
    wave_count: int = 1

    @property
    def waves(self) -> range:
        """Return the numbers of the environment's waves."""
        return range(1, self.wave_count + 1)

    def get_job_name(self, kind: str) -> str:
        """Return the name of a job of the environment: `apply-gpuform-prod`."""
        return f"{kind}-{self.name.removeprefix(_ENVIRONMENT_PREFIX)}"

    def format_needed_jobs(self, kind: str) -> str:
        """Return the jobs of the environments in `after`, as the rest of a list in YAML."""
        return "".join(f", {environment.get_job_name(kind)}" for environment in self.after)

    def get_wave_name(self, number: int) -> str:
        """Return the name of the job of a wave: `apply-prod-2`."""
        return f"{self.get_job_name('apply')}-{number}"

    def format_needed_waves(self, number: int) -> str:
        """Return the jobs before a wave's job, as the rest of a list in YAML."""
        required_names = (
            [self.get_wave_name(number - 1)]
            if number > 1
            else [other.get_wave_name(wave) for other in self.after for wave in other.waves]
        )
        return "".join(f", {name}" for name in required_names)

    @property
    def approval(self) -> str:
        """Return who approves the environment's jobs, for the checklist."""
        return "applied without an approval" if self.is_automatic else "people approve its jobs"

    def is_or_follows(self, name: str) -> bool:
        """Return True if `name` is this environment, or one applied before this environment."""
        return self.name == name or any(other.is_or_follows(name) for other in self.after)

    @property
    def filter_flags(self) -> str:
        """Return the flags by which gpuform chooses the stacks."""
        return " ".join(f"--filter '{stack.name}'" for stack in self.stacks)

    @property
    def grep_flags(self) -> str:
        """Return the flags by which grep finds the names of the stacks."""
        return _build_grep_flags(self.stacks)


def _build_grep_flags(stacks: Iterable[CiStack]) -> str:
    """Return the flags by which grep finds one of the names of stacks."""
    return "".join(f" -e '{stack.name}'" for stack in stacks)


def read_stacks(folder: Path, environ: Mapping[str, str]) -> StackOrder:
    """Return the order of all stacks of the workspace around a folder. Raises MultiStackError."""
    return order_workspace(folder, environ, (), None, runs_programs=True)[0]


def group_by_environment(order: StackOrder) -> list[ApplyEnvironment]:
    """Return the environments of all stacks, each after the environments before it.

    Raises:
        MultiStackError: stacks of one environment disagree about the approval, two environments
            have jobs of the same names, or the environments need each other in a cycle.
    """
    workspace = order.workspace
    members: dict[str, list[WorkspaceStack]] = {}
    for stack in workspace.stacks.values():
        members.setdefault(_get_environment_name(stack), []).append(stack)
    _reject_equal_job_names(members)
    for name, stacks in members.items():
        _require_one_approval(name, stacks)
    required = {
        name: {
            _get_environment_name(workspace.stacks[other])
            for stack in stacks
            for other in order.dependencies[stack.name]
        }
        - {name}
        for name, stacks in members.items()
    }
    for cycle in find_cycles(required):
        raise MultiStackError(
            f"these environments need each other in a cycle: {' -> '.join(cycle)}",
            hint="give the stacks that depend on each other the same `environment`",
        )
    applying: dict[str, ApplyEnvironment] = {}
    for name in sort_stacks(required):
        applying[name] = ApplyEnvironment(
            name,
            [_describe_stack(stack, workspace.root) for stack in members[name]],
            members[name][0].approve == "automatic",
            [applying[other] for other in sorted(required[name])],
            _count_waves(order, [stack.name for stack in members[name]]),
        )
    return list(applying.values())


def _get_environment_name(stack: WorkspaceStack) -> str:
    """Return the environment of a stack: the declared one, or one named after the stack.

    Raises:
        MultiStackError: the name is not valid, or that of another environment of the workflows.
    """
    name = stack.environment or f"{_ENVIRONMENT_PREFIX}{stack.stack.replace('.', '-')}"
    # GitHub does not distinguish case in the names of environments.
    is_reading = name.lower() in READING_ENVIRONMENTS
    if not _ENVIRONMENT_NAME.fullmatch(name) or is_reading:
        problem = "is for jobs that only read" if is_reading else "is not valid"
        raise MultiStackError(
            f"{stack.position}: the environment {name} of {stack.name} {problem}",
            hint="set `environment` to letters, digits, hyphens and underscores, a letter first",
        )
    return name


def _reject_equal_job_names(members: Mapping[str, Sequence[WorkspaceStack]]) -> None:
    """Raise MultiStackError if jobs of two environments in `members` have equal names.

    A workflow would keep the job of one of them, and apply no stack of the other.
    """
    names_by_job: dict[str, str] = {}
    for name, stacks in members.items():
        other = names_by_job.setdefault(name.lower().removeprefix(_ENVIRONMENT_PREFIX), name)
        if other != name:
            raise MultiStackError(
                f"{stacks[0].position}: the environments {other} and {name} have jobs of the same "
                "names",
                hint="set `environment` to names that differ in more than case and `gpuform-`",
            )


def _require_one_approval(name: str, stacks: Sequence[WorkspaceStack]) -> None:
    """Raise MultiStackError if stacks of an environment differ in `approve`."""
    by_approval = {stack.approve: stack for stack in stacks}
    if len(by_approval) > 1:
        first, second = list(by_approval.values())[:2]
        raise MultiStackError(
            f"{second.position}: {first.name} and {second.name} are in the environment {name}, and "
            "only one of them has `approve: automatic`",
            hint="set the same `approve`, or different environments with `environment`",
        )


def _describe_stack(stack: WorkspaceStack, root: Path) -> CiStack:
    """Return the name, stack and folder of a stack in the form for workflows."""
    folder = stack.project.directory.resolve().relative_to(root.resolve()).as_posix()
    return CiStack(stack.name, stack.stack, folder)


def reject_workflows_of_one_stack(
    repository: Repository, code_host: CodeHostName, order: StackOrder
) -> None:
    """Raise MultiStackError if files of `gpuform new ci` are about one stack of the workspace.

    Both sets would plan and apply the stack, and an upgrade of one would write into the other.
    """
    root = repository.root
    folders = [
        (stack.project.directory.resolve(), stack.stack)
        for stack in order.workspace.stacks.values()
    ]
    texts = {
        file: file.read_text(encoding="utf-8", errors="replace")
        for pattern in WORKFLOW_PATTERNS[code_host]
        for file in sorted(root.glob(pattern))
    }
    files = [
        file
        for file, workflow in texts.items()
        if any(
            is_workflow_of_stack(workflow, folder.relative_to(root).as_posix(), stack)
            for folder, stack in folders
        )
    ]
    recorded = {
        folder / RECORD_FILE
        for folder, stack in folders
        if folder != repository.project
        for workflow_set in CiRecord.load(folder).sets
        if (workflow_set.settings.code_host, workflow_set.settings.stack) == (code_host, stack)
    }
    files += sorted(recorded)
    if files:
        names = ", ".join(file.relative_to(root).as_posix() for file in files)
        raise MultiStackError(
            f"the workflows of one stack plan and apply the same stacks: {names}",
            hint="remove these files with `git rm`, and run the command again; `gpuform new ci "
            "--all` with --force",
        )


def render_stacks_workflows(repository: Repository, settings: WorkflowSettings) -> dict[str, str]:
    """Return the workflow files of all stacks: path from the repository's root -> text.

    Args:
        repository: the repository; its project is the folder of all stacks.
        settings: the code host, the branch and the clouds; its stack is not used.

    Raises:
        MultiStackError: the stacks cannot be read or grouped by environments, or the repository has
            workflows of one of them.
        EngineError: a name has characters that YAML would misread.
    """
    order = read_stacks(repository.project, get_run_context().environ)
    reject_workflows_of_one_stack(repository, settings.code_host, order)
    environments = group_by_environment(order)
    prefix = "" if repository.directory == "." else f"{repository.directory}/"
    stacks = [stack for environment in environments for stack in environment.stacks]
    shared = [f"{prefix}{path}" for path in _list_shared_paths(order)]
    folders = [f"{prefix}{stack.folder}".removesuffix("/.") for stack in stacks]
    paths = _list_filter_paths(settings, prefix, [*folders, *shared])
    values = build_template_values(
        repository, settings, [*paths, *(stack.folder for stack in stacks)]
    )
    has_child_pipelines = settings.code_host == "gitlab" and settings.runners is not None
    workflows = render_templates(
        settings.code_host,
        _TEMPLATES[settings.code_host] | (_CHILD_TEMPLATES if has_child_pipelines else {}),
        {
            **values,
            **_build_install_values(settings, values, sorted({stack.folder for stack in stacks})),
            "environments": environments,
            "paths": paths,
            **_build_wave_values(settings, order),
            "build_dependant_flags": partial(_build_dependant_flags, environments),
            "reject_unapplied": partial(_build_unapplied_check, settings, stacks),
            "orphan_stacks": _list_one_stack_per_backend(order),
        },
    )
    names = [environment.name for environment in environments]
    return {**workflows, **render_job_roles(repository, settings, READING_ENVIRONMENTS, names)}


def _list_filter_paths(
    settings: WorkflowSettings, prefix: str, folders: Iterable[str]
) -> list[str]:
    """Return the paths whose changes start a plan, in the form of the code host's filter."""
    deciding = [f"{prefix}{name}" for name in _DECIDING_NAMES]
    is_github = settings.code_host == "github"
    deciding += [".github/workflows/gpuform*.yml"] if is_github else [".gitlab-ci.yml"]
    deciding += [_CHILD_FILE] if settings.runners is not None and not is_github else []
    paths = list(dict.fromkeys([*folders, *deciding]))
    if is_github:
        return paths
    # GitLab matches files, and a folder only by a pattern of its files.
    if len(paths) > _MAX_GITLAB_PATHS:
        return [f"{prefix}**/*"]
    return [
        path if re.search(r"\.\w+$|\*", path) else f"{path}/**/*".removeprefix("./")
        for path in paths
    ]


def _build_install_values(
    settings: WorkflowSettings, values: Mapping[str, object], folders: Sequence[str]
) -> dict[str, str]:
    """Return the template values for the steps to install gpuform and projects' requirements."""
    is_github = settings.code_host == "github"
    margin = " " * (10 if is_github else 6)
    quoted = " ".join(f"'{folder}'" for folder in folders if folder != ".")
    lines = ["", *_PROJECT_INSTALL.format(folders=quoted).splitlines()] if quoted else []
    more = f"\n{margin}".join(lines)

    def add_projects(setup: object) -> str:
        return re.sub(
            r"(?m)^(\s+(?:run:|-)) (python -m pip install .*)$",
            lambda match: f"{match[1]} |\n{margin}{match[2]}{more}",
            str(setup),
        )

    if not is_github:
        return {"install": add_projects(f"    - python -m pip install {values['requirements']}")}
    setups = {name: add_projects(values[name]) for name in values if "setup" in name}
    # The sign-in to a cloud is no part of a job without secrets.
    checkout, _, _ = setups["setup_with_history"].partition("      - name: Set up Python")
    install, _, _ = setups["setup"].partition("      - name: Sign in")
    with_history, _, _ = setups["setup_with_history"].partition("      - name: Sign in")
    return {
        **setups,
        "checkout_with_history": checkout.rstrip(),
        "install_setup": install.rstrip(),
        "install_setup_with_history": with_history.rstrip(),
    }


def _list_shared_paths(order: StackOrder) -> list[str]:
    """Return the paths outside the projects included or named by a project or stacks.yaml."""
    root = order.workspace.root.resolve()
    stacks = order.workspace.stacks.values()
    projects = {stack.project.directory.resolve() for stack in stacks}
    included = {
        file
        for contents in order.contents.values()
        for file in contents.files
        if file.is_relative_to(root) and not any(map(file.is_relative_to, projects))
    }
    paths = {file.parent if file.parent != root else file for file in included}
    stacks_file = order.workspace.file
    # Gates of stacks.yaml name modules and files of their rules.
    stacks_text = stacks_file.read_text(encoding="utf-8") if stacks_file is not None else ""
    for path in root.iterdir():
        has_projects = any(project.is_relative_to(path) for project in projects)
        if has_projects or path.name.startswith(".") or any(map(path.match, _DECIDING_NAMES)):
            continue
        # An import names a package by its folder.
        named = path / "__init__.py" if path.is_dir() else path
        if path.stem in stacks_text or any(is_mentioned(stack, named) for stack in stacks):
            paths.add(path)
    return sorted(path.relative_to(root).as_posix() for path in paths)


def _build_wave_values(settings: WorkflowSettings, order: StackOrder) -> dict[str, Any]:
    """Return the template values for jobs which plan in waves on many runners."""
    values: dict[str, Any] = {
        "waves": [],
        "runners": settings.runners,
        "rehearse_part": " --rehearse" if settings.rehearses else "",
    }
    # GitLab's jobs make the jobs of each wave themselves.
    if settings.runners is None or settings.code_host == "gitlab":
        return values
    numbers = range(1, _count_waves(order, order.dependencies) + 1)
    plan_jobs = "".join(f", plan-{number}" for number in numbers)
    return {**values, "waves": list(numbers), "plan_jobs": plan_jobs}


def _count_waves(order: StackOrder, names: Collection[str]) -> int:
    """Return how many jobs one after the other the named stacks need: their longest chain.

    A file of GitHub's names its jobs, so their number is that of the day when it is written.
    """
    waves: dict[str, int] = {}
    for name in sort_stacks(order.dependencies):
        if name in names:
            earlier = [waves[other] for other in order.dependencies[name] if other in names]
            waves[name] = 1 + max(earlier, default=0)
    return max(waves.values(), default=1)


def _build_dependant_flags(
    environments: Sequence[ApplyEnvironment], environment: ApplyEnvironment
) -> str:
    """Return grep's flags for the stacks of an environment and of all later environments.

    A part of a plan is applied only after the parts of the stacks that come before.
    """
    return _build_grep_flags(
        stack
        for candidate in environments
        if candidate.is_or_follows(environment.name)
        for stack in candidate.stacks
    )


def _build_unapplied_check(
    settings: WorkflowSettings, stacks: Iterable[CiStack], indentation: int
) -> str:
    """Return shell lines which fail if the file `changed` names a stack missing in `stacks`."""
    prefix = "::error::" if settings.code_host == "github" else ""
    runners = "" if settings.runners is None else f" --runners {settings.runners}"
    remedy = f"Run gpuform new ci --all{runners} --force, and commit the files."
    lines = f"""\
unapplied=$(grep -vxF -e ''{_build_grep_flags(stacks)} changed | paste -sd ' ' - || true)
if [ -n "$unapplied" ]; then
  echo "{prefix}No job applies $unapplied. {remedy}"
  exit 1
fi"""
    return lines.replace("\n", "\n" + " " * indentation)


def _list_one_stack_per_backend(order: StackOrder) -> list[CiStack]:
    """Return the first stack of each backend."""
    by_backend: dict[str, WorkspaceStack] = {}
    for stack in order.workspace.stacks.values():
        by_backend.setdefault(stack.backend, stack)
    return [_describe_stack(stack, order.workspace.root) for stack in by_backend.values()]


def list_stacks_checklist(
    settings: WorkflowSettings, environments: Sequence[ApplyEnvironment]
) -> list[str]:
    """List the things to create by hand at the code host and the clouds for all stacks."""
    branch = settings.branch
    is_github = settings.code_host == "github"
    noun = "secret" if is_github else "secret variable"
    reading_scope, writing_scope = "secrets of these two", "secrets of the next ones"
    shared = "PULUMI_CONFIG_PASSPHRASE"
    planning = "people approve its jobs, unless all who push may read all secrets"
    if not is_github:
        # A job of any branch may name any environment of GitLab's.
        reading_scope = (
            f"masked variables with the scope of these two, those of {WATCH_ENVIRONMENT} protected"
        )
        writing_scope = "masked, protected variables with the scope of the next ones"
        shared = "PULUMI_CONFIG_PASSPHRASE, GITLAB_TOKEN"
        # GitLab asks for approvals of deployments, and a job may say that it is none.
        planning = (
            "only people who may read all secrets are allowed to deploy; approvals alone do not "
            "stop a job with `action: access`"
        )
    read_only_keys = ", ".join(list_read_only_keys(settings.clouds))
    applying = [
        f"environment {environment.name}: only the branch {branch} may use it; "
        f"{environment.approval}; for {', '.join(stack.name for stack in environment.stacks)}"
        for environment in environments
    ]
    identities = list_identity_items(settings, [environment.name for environment in environments])
    checklist = f"""\
environment {PLAN_ENVIRONMENT}: {planning}
environment {WATCH_ENVIRONMENT}: only the branch {branch} may use it, without an approval
{reading_scope}: {shared}, and those you use of {read_only_keys}
{writing_scope}: {shared}, and the same keys without _READ_ONLY
no {noun} outside of an environment: the workflows of any branch could read it"""
    return [
        *checklist.splitlines(),
        *applying,
        *identities,
        *list_rule_items(settings.code_host, branch),
    ]
