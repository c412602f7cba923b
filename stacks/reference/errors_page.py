"""The page of errors that name a remedy."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpuform.providers.platform import own_platforms
from gpuform.stacks.cli.failures import STACK_NOT_FOUND
from gpuform.stacks.reference.error_texts import ErrorText, error_texts
from gpuform.stacks.reference.markdown import page, plain, table
from gpuform.stacks.reference.source import derived_from

_LEAD: Final = """\
This page has every error of gpuform that names a remedy: what it says, and what you can do. An
error is told on stderr, and its remedy stands below it, indented.
"""
_READING: Final = """\
## How to read it

What gpuform fills in stands in angle brackets, such as `<name>`. A text after a slash, or after
*or:*, is another one that may stand there. Search for words of your error that are not filled in.

A command that ends with one of these errors exits with 1, unless the table names another
[exit code](exit-codes.md). The guide [Troubleshooting](../guides/troubleshooting.md) begins with
what you see.
"""
_GROUPS: Final[Mapping[str, str]] = {
    "providers/calls": "Waiting",
    "providers/creating": "Creating",
    "providers/evidence": "Changes and deletions",
    "providers/draining": "Taking nodes away",
    "providers/kubernetes": "Taking nodes away",
    "providers/certifying": "Certifications",
    "providers/readiness": "Certifications",
    "providers/slurm/results": "Certifications",
    "providers/together/certification": "Certifications",
    "providers/repairing": "Repairs",
    "providers/together/repairing": "Repairs",
    "stacks/operations/runs/repairing": "Repairs",
    "providers/slurm": "Taking nodes away",
    "providers/http": "Requests to platforms",
    "providers/plugin": "The provider plugin",
    "providers/chosen_form": "The provider plugin",
    "providers/provider.py": "The provider plugin",
    "stacks/doctor/plugin": "The provider plugin",
    "providers/importing": "Import",
    "stacks/importing": "Import",
    "stacks/operations/import": "Import",
    "providers/lifecycle": "Changes and deletions",
    "providers/permissions": "Changes and deletions",
    "providers/environment": "The emulator and real platforms",
    "stacks/operations/opening/emulating": "The emulator and real platforms",
    "stacks/operations/opening/worlds": "The emulator and real platforms",
    "providers/records": "Creating",
    "providers/catalog": "Platforms and kinds",
    "providers/errors": "Requests to platforms",
    "schemas": "Platforms and kinds",
    "stacks/topology": "Topology files",
    "stacks/document": "Topology files",
    "stacks/language": "Topology files",
    "stacks/formatting": "Topology files",
    "stacks/authoring": "Topology files",
    "stacks/program.py": "Topology files",
    "stacks/module.py": "Topology files",
    "stacks/testing": "Tests",
    "stacks/mcp": "Agents",
    "stacks/lsp": "Topology files",
    "stacks/operations/several": "Several stacks",
    "stacks/cli/several": "Several stacks",
    "stacks/cli/one_of_several": "Several stacks",
    "stacks/expressions": "Expressions",
    "stacks/console": "Expressions",
    "stacks/config_keys": "Configuration",
    "stacks/operations/config": "Configuration",
    "stacks/cli/commands/config": "Configuration",
    "stacks/engine/project": "Configuration",
    "stacks/engine/secrets": "Secrets and passphrases",
    "stacks/cli/commands/stack/secrets": "Secrets and passphrases",
    "stacks/engine/stack/secrets": "Secrets and passphrases",
    "stacks/engine/store": "Where state lives, and locks",
    "stacks/engine/machine": "Where state lives, and locks",
    "stacks/cli/flags": "Where state lives, and locks",
    "stacks/cli/commands/stack/login": "Where state lives, and locks",
    "stacks/cli/commands/runs/cancel": "Where state lives, and locks",
    "stacks/engine/records": "Where state lives, and locks",
    "stacks/engine/state": "The state",
    "stacks/cli/commands/state": "The state",
    "stacks/engine/stack": "Stacks",
    "stacks/cli/commands/stack": "Stacks",
    "stacks/operations/opening/selecting": "Stacks",
    "stacks/operations/run_reading": "Stacks",
    "stacks/operations/runs/saved_plans": "Saved plans",
    "stacks/engine/planning/plan_constraint": "Saved plans",
    "stacks/operations/plans": "Saved plans",
    "stacks/engine": "Plans and runs",
    "stacks/resource_rules": "Plans and runs",
    "stacks/operations/runs": "Plans and runs",
    "stacks/operations/opening": "Programs",
    "stacks/cli/running": "Programs",
    "stacks/engine/language_host": "Programs",
    "stacks/engine/registration": "Programs",
    "stacks/doctor": "Programs",
    "stacks/convert": "From one form to another",
    "stacks/operations/converting": "From one form to another",
    "stacks/cli/commands/files": "From one form to another",
    "stacks/cli/commands/files/fmt": "Topology files",
    "stacks/cli/commands/files/new": "New projects",
    "stacks/projects": "New projects",
    "stacks/workflow": "New projects",
    "stacks/access": "Getting on a cluster",
    "stacks/cli/commands/access": "Getting on a cluster",
    "stacks/manifests": "Getting on a cluster",
    "stacks/topology_export": "Where nodes are",
    "stacks/operations/placing": "Where nodes are",
    "stacks/multi_stack": "Several stacks",
    "stacks/gates": "Gates and prices",
    "stacks/pricing": "Gates and prices",
    "stacks/offering": "Offers",
    "stacks/operations": "Plans and runs",
    "stacks/review": "Reviews",
    "stacks/code_hosts": "Reviews",
    "stacks/cli/commands/review": "Reviews",
    "stacks/graph": "Reviews",
    "stacks/schedule": "Plans and runs",
    "stacks/cli": "The command line",
    "stacks/help_pages": "The command line",
}
"""What the errors of a part of the source are about; the longest beginning counts."""


def errors_page() -> str:
    """The whole page. Raises KeyError for a part of the source that is in no group."""
    return page("Errors", _LEAD, _parts())


def group_of(where: str) -> str:
    """The heading under which the errors of a place in the source stand. Raises KeyError."""
    for name, platform in own_platforms().items():
        if where.startswith((f"providers/{name}/", f"schemas/{name}/")):
            return platform.title
    fitting = [each for each in _GROUPS if where.startswith(each)]
    if not fitting:
        raise KeyError(f"errors of {where} are in no group of stacks/reference/errors_page.py")
    return _GROUPS[max(fitting, key=len)]


def _parts() -> Iterator[str]:
    yield _READING
    groups: dict[str, dict[tuple[str, str], ErrorText]] = {}
    for each in error_texts():
        if not each.is_passed_on:
            groups.setdefault(group_of(each.where), {})[each.message, each.remedy] = each
    for title in sorted(groups):
        yield f"## {title}"
        yield table(("error", "what to do"), sorted(map(_row, groups[title].values())))


def _row(each: ErrorText) -> tuple[str, str]:
    told = plain(each.message)
    if each.error in derived_from("StackNotFound"):
        told += f" (exit code {STACK_NOT_FOUND})"
    return told, plain(each.remedy)
