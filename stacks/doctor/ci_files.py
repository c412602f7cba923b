"""Check a repository's CI files for the rights of their jobs, as far as files can tell.

`gpuform doctor --ci` calls this module. Settings of the code host are in no file: they are in the
checklist that `gpuform new ci` prints.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.stacks.ci_identities import find_identity_problems
from gpuform.stacks.ci_requirements import (
    LOCK_FILE,
    REQUIREMENTS_FILE,
    UPGRADE_COMMAND,
    find_unlocked,
)
from gpuform.stacks.ci_upgrade import CiRecord, get_version
from gpuform.stacks.ci_workflows import (
    READING_ENVIRONMENTS,
    WRITING_NAMES,
    find_repository_root,
)
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.gates.file import STACKS_FILE
from gpuform.stacks.multi_stack.reading import read_workspace

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
# The commit of the change, or a branch that its author names. HEAD~1 is that before a merge.
_OWN_REVISION: Final = re.compile(
    r"(?<!/)\bHEAD\b(?![~^])|HEAD_REF|head_ref|head\.(?:ref|sha)|(?:GITHUB_|github\.)(?:SHA|sha)"
    r"|(?:GITHUB_REF|github\.ref)(?:_NAME|_name)?\b|CI_COMMIT_(?:SHA|REF_NAME|REF_SLUG|BRANCH)"
    r"|SOURCE_BRANCH"
)
_LIFTED_GATE: Final = re.compile(r"(?:--allow|GPUFORM_ALLOW)\b[^\n;|&]{0,60}\bgate:")
_WRITE_AGAIN: Final = "write the workflows again: `gpuform new ci --force`"
_OWNERS_FILES: Final = ("CODEOWNERS", ".github/CODEOWNERS", ".gitlab/CODEOWNERS", "docs/CODEOWNERS")


def examine_ci_files(folder: Path) -> Iterator[Finding]:
    """Yield findings about the workflows of the repository around a folder.

    Raises:
        YAMLError: a workflow is not YAML.
        ValueError: a file of a role is not JSON.
    """
    folder = folder.resolve()
    root = find_repository_root(folder)
    github = sorted(root.glob(".github/workflows/gpuform*.yml"))
    gitlab = root / ".gitlab-ci.yml"
    if not github and not gitlab.is_file():
        text = f"{root} has no workflows of gpuform"
        yield Finding(_AREA, Level.PROBLEM, text, "write them: `gpuform new ci`")
        return
    for file in github:
        yield from _examine_github_jobs(file)
    included = _list_included_files(root)
    for file in [gitlab, *included]:
        if file.is_file():
            yield from _examine_gitlab_jobs(file)
    yield from _examine_includes(gitlab, included)
    # The files may also be above the project, in the folder of all stacks.
    folders = [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]
    for candidate in folders:
        yield from _examine_versions(candidate)
    yield from _examine_stacks(folders, [*github, gitlab, *included])
    for text, is_problem in find_identity_problems(root):
        level = Level.PROBLEM if is_problem else Level.WARNING
        yield Finding(_AREA, level, text, "edit the file, and the role at the cloud")
    yield from _examine_owners(root, folders)


def _list_included_files(root: Path) -> list[Path]:
    """Return the files of jobs that the pipeline of GitLab includes or triggers."""
    return sorted(root.glob(".gitlab/gpuform-*.yml"))


class _CiLoader(yaml.SafeLoader):
    """Read tags of a code host, such as GitLab's `!reference`, as None."""


_CiLoader.add_multi_constructor("!", lambda _loader, _suffix, _node: None)


def _load_document(text: str) -> dict[Any, Any]:
    """Return the mapping in the text of a workflow; empty for anything else. Raises YAMLError."""
    document = yaml.load(text, _CiLoader)  # noqa: S506 - safe: tags give None
    return document if isinstance(document, dict) else {}


def _examine_github_jobs(file: Path) -> Iterator[Finding]:
    """Yield a finding for each job of a workflow: which writing keys it gets, and its gates."""
    content = file.read_text(encoding="utf-8")
    document = _load_document(content)
    # All secrets of the workflows of `new ci --all` are in environments.
    is_of_all_stacks = "preview --all" in content or "gpuform join" in content
    # YAML 1.1 reads the key `on` as true.
    if "pull_request_target" in (document.get("on", document.get(True)) or ()):
        text = f"{file.name} runs on pull_request_target: the program of a fork gets its secrets"
        yield Finding(_AREA, Level.PROBLEM, text, _WRITE_AGAIN)
    for name, job in (document.get("jobs") or {}).items():
        job_text = yaml.safe_dump([document.get("env"), job], width=10_000)
        names = sorted(set(_SECRET.findall(job_text)))
        if _ALL_SECRETS.search(job_text):
            names.append("all secrets")
        label = f"{file.name}: job {name}"
        environment = job.get("environment")
        if isinstance(environment, dict):
            environment = environment.get("name")
        if environment in READING_ENVIRONMENTS and names:
            text = f"{label} is in the environment {environment}, and gets {', '.join(names)}"
            yield Finding(_AREA, Level.PROBLEM, text, _WRITE_AGAIN)
        elif environment:
            yield Finding(_AREA, Level.OK, f"{label} is in the environment {environment}")
        elif names:
            text = f"{label} is in no environment, and gets {', '.join(names)}"
            yield Finding(_AREA, Level.PROBLEM, text, _WRITE_AGAIN)
        elif not _ANY_SECRET.search(job_text):
            yield Finding(_AREA, Level.OK, f"{label} gets no secret")
        elif is_of_all_stacks:
            text = f"{label} gets secrets of the repository, which any branch can read"
            yield Finding(_AREA, Level.PROBLEM, text, "move them into an environment")
        else:
            yield Finding(_AREA, Level.OK, f"{label} gets read-only keys alone")
        commands = [step.get("run") for step in job.get("steps") or ()]
        yield from _examine_gates(label, job_text, commands)


def _examine_gitlab_jobs(file: Path) -> Iterator[Finding]:
    """Yield whether jobs outside of an environment get read-only keys, and a finding on gates."""
    document = _load_document(file.read_text(encoding="utf-8"))
    # A further project of a repository has defaults of its own.
    defaults = {
        name: value
        for name, value in document.items()
        if name == "default" or name.startswith(".gpuform")
    }
    setup = yaml.safe_dump(defaults, width=10_000)
    if "CI_ENVIRONMENT_NAME" in setup and "_READ_ONLY" in setup:
        text = f"{file.name}: jobs outside of an environment get read-only keys alone"
        yield Finding(_AREA, Level.OK, text)
    else:
        text = f"{file.name}: jobs of a merge request get keys that may write"
        yield Finding(_AREA, Level.PROBLEM, text, _WRITE_AGAIN)
    for name, job in document.items():
        if isinstance(job, dict):
            job_text = yaml.safe_dump([document.get("variables"), job], width=10_000)
            yield from _examine_gates(f"{file.name}: job {name}", job_text, job.get("script"))


def _examine_includes(pipeline: Path, files: Sequence[Path]) -> Iterator[Finding]:
    """Yield a problem for each of the files that GitLab's pipeline does not include by its name."""
    text = pipeline.read_text(encoding="utf-8") if pipeline.is_file() else ""
    for file in files:
        # A pattern is believed.
        if not re.search(rf"\.gitlab/(?:{re.escape(file.name)}|\S*\*)", text):
            problem = f"{file.name} is not included by .gitlab-ci.yml: its jobs never run"
            remedy = f"add `include: [{{local: .gitlab/{file.name}}}]` to .gitlab-ci.yml"
            yield Finding(_AREA, Level.PROBLEM, problem, remedy)


def _examine_gates(label: str, job: str, script: object) -> Iterator[Finding]:
    """Yield problems if a job plans or applies with the gates of the change itself, or without one.

    `job` is the job as YAML, with the variables of its file.
    """
    commands = [command for command in _iterate_commands(script) if _PLANNING.search(command)]
    if not all(map(_has_gates_of_base, commands)):
        text = f"{label} is judged by the gates of the change itself"
        yield Finding(_AREA, Level.PROBLEM, text, _WRITE_AGAIN)
    if commands and _LIFTED_GATE.search(job):
        text = f"{label} lifts a gate for every plan"
        remedy = "write a waiver with a last day into gates.yaml, and merge it first"
        yield Finding(_AREA, Level.PROBLEM, text, remedy)


def _has_gates_of_base(command: str) -> bool:
    """Return True if a command names another revision for its gates than that of the change."""
    revisions = _GATES_FROM.findall(command)
    return bool(revisions) and not any(map(_OWN_REVISION.search, revisions))


def _iterate_commands(script: object) -> Iterator[str]:
    """Yield the shell commands of a script: a text, or a list of scripts."""
    if isinstance(script, str):
        yield from re.split(r"\n|;|&&|\|\|", script.replace("\\\n", " "))
    elif isinstance(script, list):
        for part in script:
            yield from _iterate_commands(part)


def _examine_stacks(folders: Sequence[Path], files: Sequence[Path]) -> Iterator[Finding]:
    """Yield a finding for the stacks that no job of `gpuform new ci --all` applies.

    The workflows are those of the nearest stacks.yaml in `folders`, or else of the nearest folder
    with a record of such workflows.

    Raises:
        EngineError: stacks.yaml, a record, or a project cannot be read.
    """
    # On GitLab one file chooses the stacks, and another one applies them.
    text = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    if "gpuform up --all " not in text:
        return
    roots = [
        candidate
        for candidate in folders
        if (candidate / STACKS_FILE).is_file()
        or any(workflow_set.settings.every_stack for workflow_set in CiRecord.load(candidate).sets)
    ]
    names = read_workspace(roots[0], {}).stacks if roots else ()
    missing = [name for name in names if f"--filter '{name}'" not in text]
    if missing:
        problem = f"no job applies {', '.join(missing)}: reviewed changes would not be applied"
        remedy = "write the workflows again: `gpuform new ci --all --force`"
        yield Finding(_AREA, Level.PROBLEM, problem, remedy)


def _examine_versions(folder: Path) -> Iterator[Finding]:
    """Yield a finding for workflows of another gpuform, and one for requirements without a lock."""
    for workflow_set in CiRecord.load(folder).sets:
        if workflow_set.version != get_version():
            name = Path(next(iter(workflow_set.files))).name
            text = f"{name} is of gpuform {workflow_set.version}, and this is {get_version()}"
            yield Finding(_AREA, Level.WARNING, text, f"change it: `{UPGRADE_COMMAND}`")
    if unlocked := find_unlocked(folder):
        text = f"{folder / LOCK_FILE} does not lock {', '.join(unlocked)}: the jobs lack it"
        yield Finding(_AREA, Level.PROBLEM, text, f"lock it: `{UPGRADE_COMMAND}`")


def _examine_owners(root: Path, folders: Sequence[Path]) -> Iterator[Finding]:
    """Yield whether CODEOWNERS names the files that decide about rights and gates."""
    files = [root / name for name in _OWNERS_FILES]
    owned = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    patterns = [
        line.split()[0] for text in owned for line in text.splitlines() if len(line.split()) > 1
    ]
    workflows = [".github"]
    if (root / ".gitlab-ci.yml").is_file():
        included = [f".gitlab/{file.name}" for file in _list_included_files(root)]
        workflows = [".gitlab-ci.yml", *included]
    others = [
        name
        for name in (LOCK_FILE, STACKS_FILE)
        if any((candidate / name).is_file() for candidate in folders)
    ]
    required_names = [*workflows, "gates.yaml", REQUIREMENTS_FILE, *others, "CODEOWNERS"]
    missing = [name for name in required_names if not _has_owner(name, patterns)]
    if missing:
        text = f"CODEOWNERS names no owners of {', '.join(missing)}"
        remedy = "name them, and require their approval in the rule of the branch"
        yield Finding(_AREA, Level.WARNING, text, remedy)
    else:
        yield Finding(_AREA, Level.OK, "CODEOWNERS names owners of workflows and gates")


def _has_owner(name: str, patterns: Sequence[str]) -> bool:
    """Return True if a pattern of CODEOWNERS contains the name, or matches the path or folder."""
    folder = name.rpartition("/")[0]
    return any(
        pattern in ("*", f"/{folder}/", f"{folder}/")
        or name in pattern
        or fnmatchcase(name, pattern.lstrip("/"))
        for pattern in patterns
    )
