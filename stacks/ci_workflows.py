"""Render the CI workflows of `gpuform new ci`, with the sign-in to the backend's cloud."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpuform.schemas.errors import EngineError
from gpuform.stacks.ci_identities import (
    Clouds,
    find_repository_name,
    get_identity_folder,
    list_roles,
    render_identities,
)
from gpuform.stacks.ci_requirements import UPGRADE_COMMAND
from gpuform.stacks.code_hosts.review_target import CodeHostName
from gpuform.stacks.engine.ci_job import require_workflow_text

_INDEX_VARIABLE: Final = "PIP_INDEX_URL"
_READ_ONLY: Final = "_READ_ONLY"
_WRITING_KEYS: Final = (
    *("TOGETHER_API_KEY", "SCP_TF_ACCESS_KEY", "SCP_TF_SECRET_KEY", "TENSORONE_API_KEY"),
    "VAULT_TOKEN",
)
_WRITING_IDENTITIES: Final = ("AWS_ROLE_ARN", "AZURE_CLIENT_ID", "GCP_SERVICE_ACCOUNT")
_CLOUD_BY_IDENTITY: Final = dict(zip(_WRITING_IDENTITIES, ("aws", "azure", "google"), strict=True))
WRITING_NAMES: Final = (*_WRITING_KEYS, *_WRITING_IDENTITIES)
"""Keys and identities that may write: jobs that only plan get the twins `*_READ_ONLY`."""
PLAN_ENVIRONMENT: Final = "gpuform-plan"
"""The environment whose jobs plan the code of branches, with keys that only read."""
WATCH_ENVIRONMENT: Final = "gpuform-watch"
"""The environment whose jobs look for drift and orphans, with keys that only read."""
_ENVIRONMENT: Final = "gpuform"
READING_ENVIRONMENTS: Final = (PLAN_ENVIRONMENT, WATCH_ENVIRONMENT)


_TEMPLATE_FOLDER: Final = Path(__file__).parent / "workflows"
_TEMPLATES_BY_PATH: Final[Mapping[CodeHostName, Mapping[str, str]]] = {
    "github": {
        ".github/workflows/gpuform.yml": "gpuform.yml.j2",
        ".github/workflows/gpuform-drift.yml": "gpuform-drift.yml.j2",
        ".github/workflows/gpuform-expire.yml": "gpuform-expire.yml.j2",
        ".github/workflows/gpuform-repair.yml": "gpuform-repair.yml.j2",
    },
    "gitlab": {".gitlab-ci.yml": "gitlab-ci.yml.j2"},
}
WORKFLOW_PATTERNS: Final[Mapping[CodeHostName, Sequence[str]]] = {
    "github": [".github/workflows/gpuform*.yml"],
    "gitlab": [".gitlab-ci.yml", ".gitlab/gpuform-*.yml"],
}
"""The workflows of `gpuform new ci`, as patterns of paths from the repository's root."""
_CREDENTIALS: Final = (
    *("PULUMI_CONFIG_PASSPHRASE", "TOGETHER_API_KEY", "SCP_TF_ACCESS_KEY", "SCP_TF_SECRET_KEY"),
    *("TENSORONE_API_KEY", "AIOS_REGISTRY_URL", "AIOS_PARSER_URL", "LENS_URL", "LENS_TOKEN"),
)
_MAIN_FILES: Final[Mapping[CodeHostName, str]] = {
    host: next(iter(paths)) for host, paths in _TEMPLATES_BY_PATH.items()
}


def find_repository_root(folder: Path) -> Path:
    """Return the nearest folder upwards with a git repository, or else the folder itself."""
    folders = (folder, *folder.parents)
    return next((candidate for candidate in folders if (candidate / ".git").exists()), folder)


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository's root folder, and the folder of Pulumi.yaml inside."""

    root: Path
    project: Path

    @classmethod
    def find(cls, project: Path, *other_markers: str) -> "Repository":
        """Return the git repository around a project, or else the project's folder.

        Raises:
            EngineError: the folder has neither Pulumi.yaml nor a file named in `other_markers`.
        """
        project = project.resolve()
        if not any((project / name).is_file() for name in ("Pulumi.yaml", *other_markers)):
            raise EngineError(
                f"{project} has no Pulumi.yaml",
                hint="create a project with `gpuform new TEMPLATE`, or choose one with --dir",
            )
        return cls(find_repository_root(project), project)

    @property
    def directory(self) -> str:
        """Return the project's folder relative to the root."""
        return self.project.relative_to(self.root).as_posix()


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """What decides the text of a set of workflows.

    With `rehearses` the plan of a pull request is rehearsed. With `every_stack` the workflows are
    those of all stacks, and `stack` is not used. `label` is in the names of the files and jobs of a
    further project or stack of the repository. `runners` is how many runners plan and apply all
    stacks at a time; None for one runner. With `vendored` the jobs install gpuform from a wheel in
    the project, and else the versions and hashes of requirements.lock.
    """

    code_host: CodeHostName
    stack: str
    branch: str
    clouds: Clouds
    rehearses: bool = False
    vendored: bool = True
    every_stack: bool = False
    label: str = ""
    runners: int | None = None

    @property
    def extras(self) -> list[str]:
        """Return the extras of gpuform needed by the jobs."""
        return [*self.clouds.extras, *(["emulator"] if self.rehearses else [])]


def render_workflows(repository: Repository, settings: WorkflowSettings) -> dict[str, str]:
    """Return the workflow files: path from the repository's root -> text.

    Raises:
        EngineError: a name has characters that YAML would misread.
    """
    values = build_template_values(repository, settings)
    targets = {
        _add_label(path, settings.label): template
        for path, template in _TEMPLATES_BY_PATH[settings.code_host].items()
    }
    return {
        **render_templates(settings.code_host, targets, values),
        **render_job_roles(repository, settings, (), [_ENVIRONMENT]),
    }


def render_job_roles(
    repository: Repository,
    settings: WorkflowSettings,
    reading_environments: Sequence[str],
    environments: Sequence[str],
) -> dict[str, str]:
    """Return the files of the clouds' roles for jobs in reading and applying environments."""
    name = find_repository_name(repository.root)
    roles = list_roles(
        settings.code_host, name, settings.branch, reading_environments, environments
    )
    return render_identities(settings.code_host, roles, settings.clouds.urls, settings.label)


def choose_label(repository: Repository, settings: WorkflowSettings, project: str) -> str:
    """Return the label to tell workflows from others in the repository; empty without others.

    `project` is the name of the project. A stack that has workflows keeps their label. A file that
    `gpuform new ci` has not written is no reason for a label: the command refuses to overwrite it.

    Raises:
        EngineError: the workflows of all stacks apply the stack.
    """
    directory, stack = repository.directory, settings.stack
    joined = re.sub(r"[^A-Za-z0-9_-]", "-", f"{project}-{stack}")
    labels = ("", joined, *(f"{joined}-{number}" for number in range(2, 100)))
    main_file = _MAIN_FILES[settings.code_host]
    texts = {label: _read_written(repository.root, main_file, label) for label in labels}
    if f"'{project}/{stack}'" in texts[""]:
        raise EngineError(
            f"{main_file}: the workflows of all stacks already apply {project}/{stack}",
            hint=f"to keep them up to date: {UPGRADE_COMMAND}",
        )
    own = [
        label
        for label, workflow in texts.items()
        if is_workflow_of_stack(workflow, directory, stack)
    ]
    paths = _TEMPLATES_BY_PATH[settings.code_host]
    # `a-b/c` and `a/b-c` have the same label, and `a/b-drift` that of a file of `a/b`.
    free = (
        label
        for label in labels
        if not any(_read_written(repository.root, path, label) for path in paths)
    )
    return own[0] if own else next(free)


def is_workflow_of_stack(workflow: str, directory: str, stack: str) -> bool:
    """Return True if `workflow` is of this stack alone, of the project in `directory`."""
    # The jobs of all stacks also name single ones.
    if "`gpuform new ci --all`" in workflow or f"--stack '{stack}'" not in workflow:
        return False
    return any(
        f'\n    {line} "{directory}"\n' in workflow for line in ("working-directory:", "- cd")
    )


def describe_outdated_workflows(folder: Path, old_name: str, stack: str) -> list[str]:
    """Return sentences about the workflows with the old name of a renamed stack in `folder`.

    `old_name` is PROJECT/STACK, and `stack` the stack's new name.
    """
    repository = Repository(find_repository_root(folder), folder)
    old_stack = old_name.rpartition("/")[2]
    texts = {
        file.relative_to(repository.root).as_posix(): file.read_text("utf-8", errors="replace")
        for patterns in WORKFLOW_PATTERNS.values()
        for pattern in patterns
        for file in sorted(repository.root.glob(pattern))
    }
    of_stack = [
        path
        for path, workflow in texts.items()
        if is_workflow_of_stack(workflow, repository.directory, old_stack)
    ]
    of_all_stacks = [
        path for path, workflow in texts.items() if f"--filter '{old_name}'" in workflow
    ]
    sentences = []
    if of_stack:
        sentences.append(
            f"These workflows still have the name {old_stack}: {', '.join(of_stack)}. Remove them "
            f"with `git rm`, and write new ones: `gpuform new ci --stack {stack}`, with your flags."
        )
    if of_all_stacks:
        sentences.append(
            f"These workflows still have the name {old_name}: {', '.join(of_all_stacks)}. Change "
            f"them: `{UPGRADE_COMMAND}`."
        )
    return sentences


def _read_written(root: Path, path: str, label: str) -> str:
    """Return the text of a workflow with a label; empty unless written by `gpuform new ci`."""
    file = root / _add_label(path, label)
    workflow = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return workflow if "gpuform new ci" in workflow else ""


def _add_label(path: str, label: str) -> str:
    """Return the path of a workflow with a label: `.github/workflows/gpuform-LABEL-drift.yml`."""
    if not label:
        return path
    if path == ".gitlab-ci.yml":
        return f".gitlab/gpuform-{label}.yml"
    return path.replace("/gpuform", f"/gpuform-{label}")


def build_template_values(
    repository: Repository, settings: WorkflowSettings, paths: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the values of the templates; `paths` are further names in the workflow.

    Raises:
        EngineError: a name has characters that YAML would misread.
    """
    directory, stack, branch = repository.directory, settings.stack, settings.branch
    names = [("folder", directory), ("stack", stack), ("branch", branch)]
    for label, value in (*names, *(("path", path.replace("*", "")) for path in paths)):
        require_workflow_text(label, value)
    if not _is_branch_name(branch):
        raise EngineError(
            f"the branch {branch!r} is no name that git takes for a branch",
            hint="leave out spaces, a hyphen in front, and parts that are empty, begin with a dot, "
            "or end with a dot or .lock",
        )
    # The label is part of file names, too, and an upgrade reads it from a file.
    if re.search(r"[^A-Za-z0-9_-]", settings.label):
        raise EngineError(
            f"the label {settings.label!r} cannot be written into a workflow",
            hint="use letters, digits, hyphens and underscores",
        )
    suffix = f"-{settings.label}" if settings.label else ""
    return {
        "stack": stack,
        "suffix": suffix,
        "title": f" {settings.label}" if suffix else "",
        "job_flag": f" --job gpuform-plan{suffix}" if suffix else "",
        "defaults": f".gpuform{suffix}" if suffix else "default",
        "extends": f"\n  extends: .gpuform{suffix}" if suffix else "",
        "rehearse_variable": " rehearse=yes" if settings.rehearses else "",
        "rehearse_flag": " ${rehearse:+--rehearse}" if settings.rehearses else "",
        "branch": branch,
        "directory": directory,
        "prefix": "" if directory == "." else f"{directory}/",
        **_VALUE_BUILDERS[settings.code_host](settings),
    }


def _is_branch_name(name: str) -> bool:
    """Return True if git takes a name of allowed characters for a branch (git-check-ref-format)."""
    parts = name.split("/")
    is_reference = " " not in name and ".." not in name and not name.endswith(".")
    are_files = all(part and part[0] != "." and not part.endswith(".lock") for part in parts)
    return is_reference and are_files and name[0] != "-" and name != "HEAD"


def render_templates(
    code_host: CodeHostName, targets: Mapping[str, str], values: Mapping[str, Any]
) -> dict[str, str]:
    """Return the texts of templates by path; `targets` has the template of each path."""
    environment = Environment(  # noqa: S701 - YAML, with values checked above
        loader=FileSystemLoader(_TEMPLATE_FOLDER / code_host),
        # Workflows of GitHub contain `{{ }}` of their own.
        variable_start_string="[[",
        variable_end_string="]]",
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    return {path: environment.get_template(name).render(values) for path, name in targets.items()}


def _build_github_values(settings: WorkflowSettings) -> dict[str, Any]:
    """Return the values of GitHub's workflow templates: sign-in steps, secrets and variables.

    `identity` is a function of the indentation. Without clouds, sign-in and identity are empty.
    """
    clouds = settings.clouds
    names = (*_CREDENTIALS, *clouds.credentials)
    index = [] if settings.vendored else [_INDEX_VARIABLE]
    variables = [*clouds.iterate_environment(), *index]
    parts = ["setup.yml", *(f"sign-in-{cloud}.yml" for cloud in clouds.names)]
    sign_in_comment = (
        f"\n#   variables {', '.join(clouds.variables)}\n#             {_SIGN_IN_PURPOSE}"
    )

    def render_identity(indent: int) -> str:
        # GitHub gives a job the token for the sign-in only with this permission.
        return f"\n{' ' * indent}id-token: write # to sign in" if clouds.names else ""

    setup = "\n".join(_read_template_part("github", name) for name in parts).replace(
        "[[ requirements ]]", _render_requirements(settings)
    )
    no_credentials = "persist-credentials: false"
    history = f"{no_credentials}\n          fetch-depth: 0 # the base branch: its gates judge"
    return {
        "setup": setup,
        "setup_with_history": setup.replace(no_credentials, history),
        "credentials": _render_github_credentials(names),
        "read_only_setup": _use_read_only(setup),
        "read_only_setup_with_history": _use_read_only(setup.replace(no_credentials, history)),
        "read_only_credentials": _use_read_only(_render_github_credentials(names)),
        "read_only_names": _list_read_only_names(clouds),
        "environment": "".join(
            f"\n  {variable}: ${{{{ vars.{variable} }}}}" for variable in variables
        ),
        "identity": render_identity,
        "sign_in": (sign_in_comment if clouds.names else "")
        + _render_index_comment(settings, "variable  "),
    }


def _render_index_comment(settings: WorkflowSettings, prefix: str) -> str:
    """Return a comment line about the package index of the jobs, or nothing without one."""
    line = f"\n#   {prefix}{_INDEX_VARIABLE:<26} your package index; not set, it is pip's own"
    return "" if settings.vendored else line


def _render_requirements(settings: WorkflowSettings) -> str:
    """Return the arguments of `pip install` for the requirements of the project."""
    if settings.vendored:
        return "--requirement requirements.txt"
    return "--require-hashes --requirement requirements.lock"


def _render_github_credentials(names: Iterable[str]) -> str:
    """Return the lines of a step's `env` with the secrets in `names`."""
    return "\n".join(f"          {name}: ${{{{ secrets.{name} }}}}" for name in names)


def _use_read_only(steps: str) -> str:
    """Return GitHub's steps with each writing key and identity replaced by a read-only one."""
    names = "|".join(WRITING_NAMES)
    return re.sub(rf"((?:secrets|vars)\.(?:{names})) ", rf"\1{_READ_ONLY} ", steps)


def _list_twins(clouds: Clouds) -> list[str]:
    """List the writing keys and identities of the jobs, each with a read-only twin."""
    names = (*_WRITING_KEYS[:-1], *clouds.credentials, *clouds.variables)
    return [name for name in names if name in WRITING_NAMES]


def _list_read_only_names(clouds: Clouds) -> str:
    """Return the names of the read-only keys and identities as comment lines of a workflow."""
    return "\n".join(f"#             {name}{_READ_ONLY}" for name in _list_twins(clouds))


def list_ci_checklist(settings: WorkflowSettings) -> list[str]:
    """List the things to create by hand at the code host and the clouds, one step an item."""
    scope = (
        "secrets of the environment gpuform"
        if settings.code_host == "github"
        else ("protected variables with the environment scope gpuform")
    )
    branch = settings.branch
    keys = [name.removesuffix(_READ_ONLY) for name in list_read_only_keys(settings.clouds)]
    return [
        f"environment gpuform: only the branch {branch} may use it, and people approve its jobs",
        f"keys that may write, as {scope}: those you use of {', '.join(keys)}",
        f"keys that may only read, of the repository, under the same names with {_READ_ONLY}",
        *list_identity_items(settings, [_ENVIRONMENT]),
        "PULUMI_CONFIG_PASSPHRASE, for all jobs: a preview decrypts configuration and state",
        *list_rule_items(settings.code_host, branch, settings.label),
    ]


def list_read_only_keys(clouds: Clouds) -> list[str]:
    """List the names of the platforms' read-only keys, without the clouds' identities."""
    twins = [name for name in _list_twins(clouds) if name not in _WRITING_IDENTITIES]
    return [f"{name}{_READ_ONLY}" for name in twins]


def list_identity_items(settings: WorkflowSettings, environments: Sequence[str]) -> list[str]:
    """List the items of the checklist about the clouds' identities of environments."""
    identities = [name for name in _list_twins(settings.clouds) if name in _WRITING_IDENTITIES]
    folder = get_identity_folder(settings.code_host, settings.label)
    applying = ", ".join(environments)
    trusting = []
    if identities and settings.code_host == "gitlab":
        trusting.append(
            "the subject of a token of GitLab names a branch and no environment: the identities "
            f"with {_READ_ONLY} trust every branch (ref:*), so whoever may push a branch can read "
            "the states with them. Let only people push who may; with Google, a provider of its "
            "own with the condition `assertion.environment == 'gpuform-plan' && "
            "assertion.environment_protected == 'true'` trusts the protected environment alone"
        )
    return [
        *trusting,
        *(
            f"{name}, of {applying}: an identity that may write the state, and trusts only these "
            f"jobs; {name}{_READ_ONLY}: one that may only read the state and decrypt with its key. "
            f"Their trust and rights: {folder}/{_CLOUD_BY_IDENTITY[name]}-*.json"
            for name in identities
        ),
    ]


def list_rule_items(code_host: CodeHostName, branch: str, label: str = "") -> list[str]:
    """List the items of the checklist about rules of the branch and owners of files."""
    is_github = code_host == "github"
    check = f"fresh-{label}" if label else "fresh"
    included = f".gitlab-ci.yml: add `include: [{{local: {_add_label('.gitlab-ci.yml', label)}}}]`"
    return [
        *([included] if label and not is_github else []),
        f"rule of the branch {branch}: "
        + (f"require the check {check}" if is_github else "pipelines must succeed")
        + ", up-to-date branches or a merge "
        + ("queue that merges one pull request at a time" if is_github else "train")
        + ", and an approval of code owners",
        "CODEOWNERS: owners of workflows, gates, prices, policies, requirements, wheels and itself",
        "check the files: gpuform doctor --ci",
    ]


def _build_gitlab_values(settings: WorkflowSettings) -> dict[str, Any]:
    """Return the values of GitLab's pipeline template; `identity` is empty without clouds."""
    clouds = settings.clouds
    needed = (*clouds.variables, *clouds.credentials)
    sign_in_comment = (
        f"\n#   {', '.join(needed)}\n#                              {_SIGN_IN_PURPOSE}"
    )
    identity = "\n  id_tokens:\n    GITLAB_OIDC_TOKEN:\n      aud: $CI_SERVER_URL"
    return {
        # The template itself explains the passphrase, which is the first one.
        "variables": ", ".join(_CREDENTIALS[1:]),
        "read_only_exports": "\n".join(
            f'        export {name}="${name}{_READ_ONLY}"' for name in _list_twins(clouds)
        ),
        "identity": identity if clouds.names else "",
        "requirements": _render_requirements(settings),
        "signing": "".join(
            "\n" + _read_template_part("gitlab", f"sign-in-{cloud}.yml") for cloud in clouds.names
        ),
        "sign_in": (sign_in_comment if needed else "") + _render_index_comment(settings, ""),
    }


_SIGN_IN_PURPOSE: Final = "by which the jobs sign in to the cloud of the state and of its secrets"
_VALUE_BUILDERS: Final[Mapping[CodeHostName, Callable[[WorkflowSettings], dict[str, Any]]]] = {
    "github": _build_github_values,
    "gitlab": _build_gitlab_values,
}


def _read_template_part(code_host: CodeHostName, name: str) -> str:
    """Return the text of a template's part for a code host, without line breaks at the end."""
    return (_TEMPLATE_FOLDER / code_host / name).read_text(encoding="utf-8").rstrip()
