"""Check a repository's CI files for the rights of their jobs, as far as files can tell.

`gpuform doctor --ci` calls this module. Settings of the code host are in no file: they are in the
checklist that `gpuform new ci` prints.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.stacks.ci_identities import find_identity_problems
from gpuform.stacks.ci_requirements import (
    LOCK_FILE,
    REQUIREMENTS_FILE,
    UPGRADE_COMMAND,
    WHEEL_FOLDER,
    find_unlocked,
)
from gpuform.stacks.ci_upgrade import CiRecord, get_version
from gpuform.stacks.ci_workflows import (
    READING_ENVIRONMENTS,
    WRITING_NAMES,
    find_repository_root,
)
from gpuform.stacks.doctor.code_owners import find_unowned, get_owners_path
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.gates.file import STACKS_FILE
from gpuform.stacks.multi_stack.reading import WorkspaceStack, read_workspace

_AREA: Final = "ci"
# YAML doubles the quotes of `secrets['NAME']` in a text that it quotes.
_SECRET: Final = re.compile(
    rf"\b(?:secrets|vars)(?:\.|\['+)({'|'.join(WRITING_NAMES)})(?!\w)", re.IGNORECASE
)
_ANY_SECRET: Final = re.compile(r"\$\{\{[^}]*\bsecrets\b", re.IGNORECASE)
_ALL_SECRETS: Final = re.compile(
    r"\$\{\{[^}]*\bsecrets\b(?!\.|\[')|(?m:^[- ]*secrets: inherit$)", re.IGNORECASE
)
_PLANNING: Final = re.compile(
    r'gpuform (?:-C \S+ )?(?:preview|up|destroy|refresh|join|plan-part(?! --waves)|"\$plan")(?!\S)'
)
_GATES_FROM: Final = re.compile(
    r"""--gates-from(?:[ ]+|=)('[^']*'|"[^"]*"|(?:\$\{\{.*?\}\}|[^\s'"])+)"""
)
# The commit of the change, or a branch that its author names. HEAD~1 is that before a merge; `@` is
# HEAD.
_OWN_REVISION: Final = re.compile(
    r"(?:(?<!/)\bHEAD\b|(?<![\w/.-])@)(?!\w|~(?!0)|\^(?!0))"
    r"|HEAD_REF|head_ref|head\.(?:ref|sha)|(?:GITHUB_|github\.)(?:SHA|sha)"
    r"|(?:GITHUB_REF|github\.ref)(?:_NAME|_name)?\b|CI_COMMIT_(?:SHA|REF_NAME|REF_SLUG|BRANCH)"
    r"|SOURCE_BRANCH"
)
_VARIABLE: Final = re.compile(r"(?:\$\{?|\benv\.)([A-Za-z_]\w*)")
_VALUE: Final = r"((?:\$\{\{.*?\}\}|[^\s;])+)"
_LIFTED_GATE: Final = re.compile(r"(?:--allow|GPUFORM_ALLOW)\b[^\n;|&]{0,60}\bgate:")
_WRITE_AGAIN: Final = "write the workflows again: `gpuform new ci --force`"
_PINNED: Final = re.compile(r"\./.*|docker://.*@sha256:[0-9a-f]{64}|.*@[0-9a-f]{40}")
_OWN_RIGHTS: Final = ("actions", "checks", "contents", "deployments", "packages", "statuses")
"""Rights to write with which code of a branch could change its repository, runs or checks."""


def examine_ci_files(folder: Path) -> Iterator[Finding]:
    """Yield findings about the workflows of the repository around a folder.

    Raises:
        EngineError: stacks.yaml, a record, or a project cannot be read.
    """
    folder = folder.resolve()
    root = find_repository_root(folder)
    github = sorted(root.glob(".github/workflows/gpuform*.yml"))
    gitlab = root / ".gitlab-ci.yml"
    if not github and not gitlab.is_file():
        message = f"{root} has no workflows of gpuform"
        yield Finding(_AREA, Level.PROBLEM, message, "write them: `gpuform new ci`")
        return
    for file in github:
        yield from _examine_document(file, _examine_github_jobs)
    included = sorted(root.glob(".gitlab/gpuform-*.yml"))
    for file in [gitlab, *included]:
        if file.is_file():
            yield from _examine_document(file, _examine_gitlab_jobs)
    yield from _examine_includes(gitlab, included)
    # The files may also be above the project, in the folder of all stacks.
    folders = [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]
    for candidate in folders:
        yield from _examine_versions(candidate)
    stacks = _read_applied_stacks(folders, [*github, gitlab, *included])
    yield from _examine_stacks(stacks, [*github, gitlab, *included])
    for message, is_problem in find_identity_problems(root):
        level = Level.PROBLEM if is_problem else Level.WARNING
        yield Finding(_AREA, level, message, "edit the file, and the role at the cloud")
    # The jobs install the requirements of each project.
    projects = [stack.project.directory.resolve() for stack in stacks.values()]
    folders = list(dict.fromkeys([*folders, *sorted(projects)]))
    yield from _examine_owners(root, folders, [*github, gitlab, *included])


class _CiLoader(yaml.SafeLoader):
    """Read tags of a code host, such as GitLab's `!reference`, as None."""


_CiLoader.add_multi_constructor("!", lambda _loader, _suffix, _node: None)


def _examine_document(
    file: Path, examine_jobs: Callable[[Path, str, dict[Any, Any]], Iterator[Finding]]
) -> Iterator[Finding]:
    """Yield the findings about the jobs of a workflow, or a problem if the file is not YAML."""
    try:
        content = file.read_text(encoding="utf-8")
        document = yaml.load(content, _CiLoader)  # noqa: S506 - safe: tags give None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or "it is not text in UTF-8"
        message = f"{file.name}{line}: not valid YAML: {reason}"
        yield Finding(_AREA, Level.PROBLEM, message, "correct the file: no job of it runs")
        return
    yield from examine_jobs(file, content, document if isinstance(document, dict) else {})


def _examine_github_jobs(file: Path, content: str, document: dict[Any, Any]) -> Iterator[Finding]:
    """Yield findings for each job of a workflow: its writing keys, its rights, and its gates."""
    # YAML 1.1 reads the key `on` as true.
    if "pull_request_target" in (document.get("on", document.get(True)) or ()):
        message = f"{file.name} runs on pull_request_target: the program of a fork gets its secrets"
        yield Finding(_AREA, Level.PROBLEM, message, _WRITE_AGAIN)
    # All secrets of the workflows of `new ci --all` are in environments.
    is_of_all_stacks = "preview --all" in content or "gpuform join" in content
    jobs = document.get("jobs")
    for name, job in (jobs if isinstance(jobs, dict) else {}).items():
        if not isinstance(job, dict):
            continue
        label = f"{file.name}: job {name}"
        job_text = yaml.safe_dump([document.get("env"), job], width=10_000)
        environment = job.get("environment")
        if isinstance(environment, dict):
            environment = environment.get("name")
        yield _judge_secrets(label, job_text, environment, is_of_all_stacks=is_of_all_stacks)
        steps = [step for step in job.get("steps") or () if isinstance(step, dict)]
        yield from _examine_gates(label, job_text, [step.get("run") for step in steps])
        has_secrets = bool(environment or _ANY_SECRET.search(job_text))
        yield from _examine_actions(label, [job, *steps], has_secrets=has_secrets)
        if environment is None or environment in READING_ENVIRONMENTS:
            rights = job.get("permissions", document.get("permissions"))
            yield from _examine_rights(label, rights)


def _judge_secrets(
    label: str, job: str, environment: str | None, *, is_of_all_stacks: bool
) -> Finding:
    """Return the finding about the secrets passed to a job; `job` is the job's YAML."""
    names = sorted(set(_SECRET.findall(job)))
    if _ALL_SECRETS.search(job):
        names.append("all secrets")
    if environment in READING_ENVIRONMENTS and names:
        message = f"{label} is in the environment {environment}, and gets {', '.join(names)}"
        return Finding(_AREA, Level.PROBLEM, message, _WRITE_AGAIN)
    if environment:
        return Finding(_AREA, Level.OK, f"{label} is in the environment {environment}")
    if names:
        message = f"{label} is in no environment, and gets {', '.join(names)}"
        return Finding(_AREA, Level.PROBLEM, message, _WRITE_AGAIN)
    if not _ANY_SECRET.search(job):
        return Finding(_AREA, Level.OK, f"{label} gets no secret")
    if is_of_all_stacks:
        message = f"{label} gets secrets of the repository, which any branch can read"
        return Finding(_AREA, Level.PROBLEM, message, "move them into an environment")
    return Finding(_AREA, Level.OK, f"{label} gets read-only keys alone")


def _examine_actions(
    label: str, steps: Iterable[Mapping[Any, Any]], *, has_secrets: bool
) -> Iterator[Finding]:
    """Yield problems of the actions and workflows used by a job: no commit, or a kept token.

    Later steps can read the token that a checkout keeps.
    """
    used = [(str(step["uses"]), step.get("with")) for step in steps if "uses" in step]
    for name, _ in used:
        if not _PINNED.fullmatch(name):
            message = f"{label} uses {name}: others can change what this name means"
            yield Finding(_AREA, Level.PROBLEM, message, "write the commit's 40 digits after the @")
    for name, inputs in used:
        if name.partition("@")[0].lower() == "actions/checkout":
            values = inputs if isinstance(inputs, dict) else {}
            persists_token = str(
                values.get("persist-credentials", "true" if has_secrets else "false")
            )
            if persists_token.lower() != "false":
                message = f"{label} leaves the token of its checkout to later steps"
                remedy = "set `persist-credentials: false` in the step"
                yield Finding(_AREA, Level.PROBLEM, message, remedy)


def _examine_rights(label: str, rights: object) -> Iterator[Finding]:
    """Yield a problem if a job which runs the code of a branch has rights to write.

    `rights` are the `permissions` of the job, or else of its workflow; None if neither has any.
    """
    remedy = "give the job `permissions: {contents: read}`, and what else it needs"
    if rights is None:
        message = f"{label} has the rights that the settings of the repository give to every job"
        yield Finding(_AREA, Level.WARNING, message, remedy)
        return
    named = rights if isinstance(rights, dict) else {}
    writing = [f"{name}: write" for name in _OWN_RIGHTS if named.get(name) == "write"]
    if rights == "write-all":
        writing = ["write-all"]
    if writing:
        message = f"{label} has the rights {', '.join(writing)}, and runs the code of a branch"
        yield Finding(_AREA, Level.PROBLEM, message, remedy)


def _examine_gitlab_jobs(file: Path, _content: str, document: dict[Any, Any]) -> Iterator[Finding]:
    """Yield whether jobs outside of an environment get read-only keys, and a finding on gates."""
    # A further project of a repository has defaults of its own.
    defaults = {
        name: value
        for name, value in document.items()
        if name == "default" or name.startswith(".gpuform")
    }
    setup = yaml.safe_dump(defaults, width=10_000)
    if "CI_ENVIRONMENT_NAME" in setup and "_READ_ONLY" in setup:
        message = f"{file.name}: jobs outside of an environment get read-only keys alone"
        yield Finding(_AREA, Level.OK, message)
    else:
        message = f"{file.name}: jobs of a merge request get keys that may write"
        yield Finding(_AREA, Level.PROBLEM, message, _WRITE_AGAIN)
    for name, job in document.items():
        if isinstance(job, dict):
            job_text = yaml.safe_dump([document.get("variables"), job], width=10_000)
            yield from _examine_gates(f"{file.name}: job {name}", job_text, job.get("script"))


def _examine_includes(pipeline: Path, files: Sequence[Path]) -> Iterator[Finding]:
    """Yield a problem for each of `files` not included by name in GitLab's pipeline."""
    pipeline_yaml = pipeline.read_text(encoding="utf-8") if pipeline.is_file() else ""
    for file in files:
        # A pattern is believed.
        if not re.search(rf"\.gitlab/(?:{re.escape(file.name)}|\S*\*)", pipeline_yaml):
            problem = f"{file.name} is not included by .gitlab-ci.yml: its jobs never run"
            remedy = f"add `include: [{{local: .gitlab/{file.name}}}]` to .gitlab-ci.yml"
            yield Finding(_AREA, Level.PROBLEM, problem, remedy)


def _examine_gates(label: str, job: str, script: object) -> Iterator[Finding]:
    """Yield problems if a job plans or applies with the gates of the change itself, or without one.

    `job` is the job as YAML, with the variables of its file.
    """
    commands = [command for command in _iterate_commands(script) if _PLANNING.search(command)]
    if not all(_has_gates_of_base(command, job) for command in commands):
        message = f"{label} is judged by the gates of the change itself"
        yield Finding(_AREA, Level.PROBLEM, message, _WRITE_AGAIN)
    if commands and _LIFTED_GATE.search(job):
        message = f"{label} lifts a gate for every plan"
        remedy = "write a waiver with a last day into gates.yaml, and merge it first"
        yield Finding(_AREA, Level.PROBLEM, message, remedy)


def _has_gates_of_base(command: str, job: str) -> bool:
    """Return True if a command names another revision for its gates than that of the change.

    Variables have the values that `job` gives them: the job as YAML, with its script.
    """
    revisions: dict[str, None] = dict.fromkeys(_GATES_FROM.findall(command))
    has_revision = bool(revisions)
    pending = list(revisions)
    while pending:
        for name in _VARIABLE.findall(pending.pop()):
            values = re.findall(rf"\b{name}(?:: ?|=){_VALUE}", job)
            pending += [value for value in values if value not in revisions]
            revisions.update(dict.fromkeys(values))
    return has_revision and not any(map(_OWN_REVISION.search, revisions))


def _iterate_commands(script: object) -> Iterator[str]:
    """Yield the shell commands of a script: a text, or a list of scripts."""
    if isinstance(script, str):
        yield from re.split(r"\n|;|&&|\|\|", script.replace("\\\n", " "))
    elif isinstance(script, list):
        for part in script:
            yield from _iterate_commands(part)


def _read_applied_stacks(
    folders: Sequence[Path], files: Sequence[Path]
) -> Mapping[str, WorkspaceStack]:
    """Return the stacks of the workflows of `gpuform new ci --all`; none without such workflows.

    The workflows are those of the nearest stacks.yaml in `folders`, or else of the nearest folder
    with a record of such workflows.

    Raises:
        EngineError: stacks.yaml, a record, or a project cannot be read.
    """
    if "gpuform up --all " not in _read_all(files):
        return {}
    roots = [
        candidate
        for candidate in folders
        if (candidate / STACKS_FILE).is_file()
        or any(workflow_set.settings.every_stack for workflow_set in CiRecord.load(candidate).sets)
    ]
    return read_workspace(roots[0], {}).stacks if roots else {}


def _read_all(files: Iterable[Path]) -> str:
    """Return the texts of workflows: on GitLab one chooses stacks, and another applies them."""
    return "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())


def _examine_stacks(names: Iterable[str], files: Sequence[Path]) -> Iterator[Finding]:
    """Yield a finding for the stacks in `names` applied by no job of `files`."""
    workflows_yaml = _read_all(files)
    missing = [name for name in names if f"--filter '{name}'" not in workflows_yaml]
    if missing:
        problem = f"no job applies {', '.join(missing)}: reviewed changes would not be applied"
        yield Finding(_AREA, Level.PROBLEM, problem, f"add it: `{UPGRADE_COMMAND}`")


def _examine_versions(folder: Path) -> Iterator[Finding]:
    """Yield a finding for workflows of another gpuform, and one for requirements without a lock."""
    for workflow_set in CiRecord.load(folder).sets:
        if workflow_set.version != get_version():
            name = Path(next(iter(workflow_set.files))).name
            message = f"{name} is of gpuform {workflow_set.version}, and this is {get_version()}"
            yield Finding(_AREA, Level.WARNING, message, f"change it: `{UPGRADE_COMMAND}`")
    if unlocked := find_unlocked(folder):
        message = f"{folder / LOCK_FILE} does not lock {', '.join(unlocked)}: the jobs lack it"
        yield Finding(_AREA, Level.PROBLEM, message, f"lock it: `{UPGRADE_COMMAND}`")


def _examine_owners(
    root: Path, folders: Sequence[Path], workflows: Sequence[Path]
) -> Iterator[Finding]:
    """Yield whether CODEOWNERS has owners for the files which decide about rights and gates."""
    is_gitlab = (root / ".gitlab-ci.yml").is_file()
    files = [file for file in workflows if file.is_file()]
    # A wheel shows no lines in a review, and runs with all keys.
    files += [wheel for folder in folders for wheel in sorted(folder.glob(f"{WHEEL_FOLDER}/*.whl"))]
    for name in ("gates.yaml", REQUIREMENTS_FILE, LOCK_FILE, STACKS_FILE):
        existing = [folder / name for folder in folders if (folder / name).is_file()]
        # Gates and requirements may come later.
        is_optional = name in {LOCK_FILE, STACKS_FILE}
        files += existing or ([] if is_optional else [folders[0] / name])
    paths = [file.relative_to(root).as_posix() for file in files]
    paths.append(get_owners_path(root, is_gitlab=is_gitlab))
    missing = find_unowned(root, paths, is_gitlab=is_gitlab)
    if missing:
        message = f"CODEOWNERS names no owners of {', '.join(missing)}"
        remedy = "name them, and require their approval in the rule of the branch"
        yield Finding(_AREA, Level.WARNING, message, remedy)
    else:
        yield Finding(_AREA, Level.OK, "CODEOWNERS names owners of workflows and gates")
