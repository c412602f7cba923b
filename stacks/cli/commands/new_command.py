"""Run `gpuform new`: write a project from a template, with the workflow files of its CI."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from click.core import ParameterSource

from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_requirements import Requirements
from gpuform.stacks.ci_upgrade import RECORD_FILE, get_version, plan_ci_files, plan_upgrade
from gpuform.stacks.ci_workflows import (
    Repository,
    WorkflowSettings,
    choose_label,
    find_repository_root,
    list_ci_checklist,
)
from gpuform.stacks.cli.opening import find_workspace
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session
from gpuform.stacks.code_hosts.review_target import WORKFLOW_HOSTS, CodeHostName
from gpuform.stacks.engine.project import (
    SECURE,
    StackSettings,
    find_project,
    format_set_command,
)
from gpuform.stacks.engine.store import get_backend_url
from gpuform.stacks.new_project import write_files
from gpuform.stacks.operations.opening.selected_stack import create_passphrase_finder
from gpuform.stacks.review.value_text import counted


@click.command()
@click.argument("template", required=False)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The folder to create the project in; default: the current one.",
)
@click.option("--name", "-n", help="The project's name; default: the folder's.")
@click.option(
    "--description", "-d", default="", help="The project's description; default: the template's."
)
@click.option("--python", is_flag=True, help="Write a Python program instead of a topology file.")
@click.option(
    "--force", "-f", is_flag=True, help="Also write into a folder with files, and replace them."
)
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    expose_value=False,
    help="Accepted for compatibility with Pulumi: the command never asks.",
)
@click.option(
    "--forge",
    type=click.Choice(WORKFLOW_HOSTS),
    help="For ci: the code host; default: that of the git remote. The page guides/other-ci has "
    "pipelines for other CI systems.",
)
@click.option("--branch", default="main", show_default=True, help="For ci: the default branch.")
@click.option(
    "--backend",
    metavar="URL",
    help="For ci: the backend of the state; default: that of Pulumi.yaml. The jobs sign in to "
    "the cloud of this backend.",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="For ci: rehearse the plan of each pull request, as `preview --rehearse` does.",
)
@click.option(
    "--vendor/--no-vendor",
    default=None,
    help="For ci: install gpuform from a wheel in git, or by the hashes of requirements.lock from "
    "your package index; default: as this gpuform was installed.",
)
@click.option(
    "--upgrade",
    is_flag=True,
    help="For ci: change the files to this version of gpuform, with their settings and your edits.",
)
@click.option(
    "--all",
    "every_stack",
    is_flag=True,
    help="For ci: write one set of workflows for all stacks of stacks.yaml.",
)
@click.option(
    "--runners",
    type=click.IntRange(1, 256),  # the most jobs of a matrix of GitHub's
    metavar="N",
    help="For ci --all: plan and apply on at most this many runners at a time, in waves along the "
    "order of the stacks; default: on one runner.",
)
@add_stack_flags
def new(  # noqa: PLR0913, PLR0917 - the flags
    template: str | None,
    directory: Path,
    name: str | None,
    description: str,
    python: bool,
    force: bool,
    forge: CodeHostName | None,
    branch: str,
    backend: str | None,
    rehearse: bool,
    vendor: bool | None,
    upgrade: bool,
    every_stack: bool,
    runners: int | None,
) -> None:
    """Create a project that runs at once from a template, or list the templates.

    `gpuform new ci` writes workflows for the repository around a project: plan and comment on a
    pull request, a check before the merge, apply of the reviewed plan, scheduled drift and orphans.
    The jobs install the gpuform that wrote them: from your package index with hashes, or from a
    wheel in the project. They sign in to the cloud of the state and of its secrets without a stored
    key. They are for the stack prod, or for --stack. With --all one set of workflows plans and
    applies all stacks of stacks.yaml. Run the command with --upgrade after an upgrade of gpuform:
    it keeps your edits.

    The folder must be empty except for hidden files, unless --force is given. The new project runs
    on the emulator without changes; `pulumi up` works in it, too.

    \b
    Examples:
      gpuform new
      gpuform new together-training --dir training
      gpuform new ci --forge github --stack prod --backend s3://team-state
      gpuform new ci --upgrade
      gpuform new ci --all
    """
    with open_session() as session:
        if template is None:
            _print_templates(session)
            return
        # Not a template: the workflow files are added to a project that exists.
        if template == "ci" and upgrade:
            _reject_settings(session)
            upgrade_ci_workflows(session, directory, vendor=vendor)
            return
        if template == "ci":
            if every_stack and session.stack is not None:
                raise click.UsageError("--stack cannot be combined with --all: leave one out")
            if runners is not None and not every_stack:
                raise click.UsageError("--runners requires --all")
            stack = session.stack or "prod"
            options = WorkflowOptions(
                stack, branch, forge, backend, rehearse, vendor, every_stack, runners
            )
            write_ci_workflows(session, directory, options, force=force)
            return
        from gpuform.stacks.new_project import (  # noqa: PLC0415 - the engine, not for help
            derive_project_name,
            render_project,
            write_project,
        )

        name = derive_project_name(directory) if name is None else name
        files = render_project(template, name, description, python=python)
        write_project(directory, files, force=force)
        session.screen.print(f"Created project {name}: {', '.join(files)}")
        _print_next_commands(session, directory)


def _print_next_commands(session: Session, directory: Path) -> None:
    """Print the commands to run a new project in a folder."""
    session.screen.print("\nNext:")
    if directory.resolve() != Path.cwd():
        session.screen.print(f"  cd {directory}")
    session.screen.print("  gpuform stack init dev --emulate")
    session.screen.print("  gpuform up --emulate")
    session.screen.print("\nOn the real platform:")
    session.screen.print("  gpuform stack init prod")
    session.screen.print("  gpuform doctor  # shows which keys are missing")
    session.screen.print("  gpuform up")
    session.screen.print(
        "\nThe state is stored in .pulumi/ of the project, which git ignores. Before others "
        "work on a stack,\nmove its state to a bucket: gpuform stack migrate URL"
    )


def _print_templates(session: Session) -> None:
    """Print each template with a description, and the commands to create a project from one."""
    from gpuform.stacks.new_project import list_templates  # noqa: PLC0415 - the engine, not for help

    available_templates = list_templates()
    width = max(map(len, [*available_templates, "TEMPLATE"]))
    session.screen.print(f"{'TEMPLATE':<{width}}  MAKES")
    for name, description in available_templates.items():
        session.screen.print(f"{name:<{width}}  {description}")
    session.screen.print("\nCreate one: gpuform new TEMPLATE --dir FOLDER")
    session.screen.print("Workflows for its repository: gpuform new ci")


_NEXT_STEPS = {
    "github": "the variables, secrets and rules to set",
    "gitlab": "the variables and the schedule to set",
}


@dataclass(frozen=True, slots=True)
class WorkflowOptions:
    """The options of CI workflows; `forge`, `backend` and `vendor` None are derived."""

    stack: str
    branch: str
    forge: CodeHostName | None = None
    backend: str | None = None
    rehearse: bool = False
    vendor: bool | None = None
    every_stack: bool = False
    runners: int | None = None


def write_ci_workflows(
    session: Session, directory: Path, options: WorkflowOptions, *, force: bool
) -> None:
    """Write the workflow files of a stack or of all stacks, and print the remaining steps.

    Adds gpuform to the requirements of the project or of the folder of all stacks. Warns of a state
    in a local folder, which no job reaches.

    Raises:
        UsageError: the code host is not known.
        EngineError: other workflows of the repository apply one of the stacks.
        ProjectExists: a workflow file exists, and `force` is not set; nothing was written.
    """
    build_scope = _build_workspace_scope if options.every_stack else _build_stack_scope
    scope = build_scope(session, directory, options)
    repository, settings = scope.repository, scope.settings
    record, requirements = plan_ci_files(
        repository, settings, session.environ, vendor=options.vendor
    )
    files = record.sets[-1].files
    hint = "--force replaces them; `gpuform new ci --upgrade` keeps your edits"
    write_files(repository.root, files, force=force, hint=hint)
    others = [*requirements.write(repository.project), record.save(repository.project)]
    for name in [*files, *(str(file.relative_to(repository.root)) for file in others)]:
        session.screen.print(f"Wrote in {repository.root}: {name}")
    _print_vendor_reason(session, requirements)
    next_steps = _NEXT_STEPS[settings.code_host]
    session.screen.print(f"The first lines of {next(iter(files))} list {next_steps}.")
    session.screen.print("Create these before the first pull request:")
    for item in scope.checklist:
        session.screen.print(f"  [ ] {item}")
    for backend in scope.backends:
        if backend.startswith("file:"):
            session.screen.warn(
                f"warning: the state is in {backend}, which no job can reach: use a bucket, and "
                "run the command again with --force --backend URL (s3://, gs:// or azblob://)"
            )


@dataclass(frozen=True, slots=True)
class _WorkflowScope:
    """What workflows are about: their settings, what people create, and the states' backends.

    The project of `repository` is the folder of one stack's project, or that of all stacks.
    """

    repository: Repository
    settings: WorkflowSettings
    checklist: Sequence[str]
    backends: Sequence[str]


def _build_stack_scope(
    session: Session, directory: Path, options: WorkflowOptions
) -> _WorkflowScope:
    """Return the settings of workflows for one stack of the project in a folder."""
    repository = Repository.find(directory)
    forge = options.forge or _find_code_host(repository.root)
    project = find_project(repository.project)
    settings_file = project.get_settings_path(options.stack)
    if not settings_file.exists():
        session.screen.warn(
            f"warning: {settings_file.name} is missing: create the stack with `gpuform stack init "
            f"{options.stack}`, or choose another one with --stack"
        )
    backend = options.backend or get_backend_url(session.environ, project)
    provider = StackSettings.load(project, options.stack).secrets_provider
    clouds = Clouds.from_urls((backend, provider))
    settings = WorkflowSettings(forge, options.stack, options.branch, clouds, options.rehearse)
    settings = replace(settings, label=choose_label(repository, settings, project.name))
    return _WorkflowScope(repository, settings, list_ci_checklist(settings), [backend])


def _build_workspace_scope(
    session: Session, directory: Path, options: WorkflowOptions
) -> _WorkflowScope:
    """Return the settings of workflows for all stacks of the workspace around a folder."""
    from gpuform.stacks.ci_stacks import (  # noqa: PLC0415 - topologies, for --all alone
        group_by_environment,
        list_stacks_checklist,
        read_stacks,
    )

    order = read_stacks(directory, session.environ)
    root = order.workspace.root.resolve()
    repository = Repository(find_repository_root(root), root)
    stacks = order.workspace.stacks.values()
    backends = [options.backend] if options.backend else [stack.backend for stack in stacks]
    providers = [
        StackSettings.load(stack.project, stack.stack).secrets_provider for stack in stacks
    ]
    forge = options.forge or _find_code_host(repository.root)
    clouds = Clouds.from_urls((*backends, *providers))
    settings = WorkflowSettings(
        forge, options.stack, options.branch, clouds, options.rehearse, every_stack=True
    )
    settings = replace(settings, runners=options.runners)
    checklist = list_stacks_checklist(settings, group_by_environment(order))
    return _WorkflowScope(repository, settings, checklist, list(dict.fromkeys(backends)))


def _print_vendor_reason(session: Session, requirements: Requirements) -> None:
    """Print why the jobs install a wheel from git, unless a person has asked for the wheel."""
    consequence = "the jobs install the wheel in git, and other packages without hashes"
    if requirements.remedy:
        session.screen.warn(f"warning: {requirements.vendor_reason}: {consequence}")
        session.screen.warn(f"  {requirements.remedy}")
    elif requirements.vendor_reason:
        session.screen.print(f"{requirements.vendor_reason}: {consequence}.")


def _reject_settings(session: Session) -> None:
    """Raise UsageError if flags beside --upgrade would change the recorded settings."""
    context = click.get_current_context()
    names = (
        *("forge", "branch", "backend", "rehearse", "force", "python", "name", "description"),
        *("every_stack", "runners"),
    )
    set_names = [
        name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if set_names or session.stack:
        flag = set_names[0].replace("every_stack", "all") if set_names else "stack"
        raise click.UsageError(
            f"--upgrade cannot be combined with --{flag}: it keeps the settings of the files"
        )


def upgrade_ci_workflows(session: Session, directory: Path, *, vendor: bool | None) -> None:
    """Upgrade the workflows of a project to the running version, and print the result by file.

    Raises:
        UpgradeConflict: edits and the new version change the same lines. The files are written,
            with markers around these lines.
    """
    repository = Repository.find(directory, RECORD_FILE)
    upgrade = plan_upgrade(repository, session.environ, vendor=vendor)
    others = upgrade.write(repository)
    session.screen.print(f"The workflows are those of gpuform {get_version()}:")
    for file in upgrade.files:
        session.screen.print(f"  {file.path}: {file.outcome}")
    for path in others:
        session.screen.print(f"  {path.relative_to(repository.root)}: written")
    for workflow_set in upgrade.record.sets:
        # Stacks may have come, with environments that nobody has created yet.
        if workflow_set.settings.every_stack:
            next_steps = _NEXT_STEPS[workflow_set.settings.code_host]
            session.screen.print(
                f"The first lines of {next(iter(workflow_set.files))} list {next_steps}."
            )
    upgrade.reject_conflicts()


def _find_code_host(root: Path) -> CodeHostName:
    """Return the code host, `github` or `gitlab`, whose name is in the repository's .git/config.

    Raises:
        UsageError: the file names none or both, or cannot be read.
    """
    try:
        config = (root / ".git" / "config").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        config = ""
    # Git's configuration names the host in the URL of each remote.
    code_hosts: list[CodeHostName] = [name for name in ("github", "gitlab") if name in config]
    if len(code_hosts) != 1:
        raise click.UsageError("name the code host: --forge github or --forge gitlab")
    return code_hosts[0]


def store_secrets(secrets: Mapping[str, str], session: Session, *, stores: bool) -> None:
    """Encrypt the values into the stack's settings, or print the commands to do so.

    Without `stores` nothing is written.
    """
    screen = session.screen
    if not stores:
        screen.warn("The file contains no secrets. Before the next run, set these in the stack:")
        for key in secrets:
            screen.warn(f"  {format_set_command(key, secret=True)}")
        screen.warn("or convert again with --force --set-secrets, which stores their values.")
        return
    workspace = find_workspace(session)
    stack = workspace.open(
        session.stack, create_passphrase_finder(workspace, screen.create_passphrase_prompt())
    )
    for key, value in secrets.items():
        stack.settings.set(key, {SECURE: stack.crypter.encrypt(value)})
    stack.settings.save()
    count_text = counted(len(secrets), "secret value")
    screen.print(f"Stored {count_text} in {stack.settings.path.name}.")
