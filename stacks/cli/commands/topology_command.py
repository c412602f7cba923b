"""Run `gpuform export-topology`: print where a stack's nodes are, or write it into Kubernetes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.schemas.safe_text import escape_invisible, format_json
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import (
    add_format_flags,
    emulate_flag,
    lock_flag,
    output_flag,
    yes_flag,
)
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session

if TYPE_CHECKING:
    from gpuform.schemas.policies.drain import KubernetesInputs
    from gpuform.stacks.operations.opening.selected_stack import SelectedStack
    from gpuform.stacks.operations.topology_export import AppliedTopology, TopologyOptions
    from gpuform.stacks.topology_export.applying import Change

_FORMATS = (
    "slurm-tree",
    "slurm-block",
    "slinky",
    "kubernetes-labels",
    "kueue",
    "topograph",
    "inventory",
    "inventory-json",
    "inventory-csv",
)


@click.command()
@click.argument("resources", nargs=-1, metavar="[RESOURCE]...")
@add_format_flags(
    _FORMATS,
    help_text="The scheduler: Slurm, Slinky, Kubernetes, Kueue, Topograph, Ansible (inventory); or "
    "a list of nodes (inventory-json, inventory-csv).",
)
@click.option(
    "--refresh",
    "-r",
    is_flag=True,
    help="Request the platforms now, and the clusters for the labels of their nodes.",
)
@click.option(
    "--apply", "apply_", is_flag=True, help="Write the topology into the cluster's Kubernetes."
)
@click.option("--remove", is_flag=True, help="Remove what --apply wrote in this format.")
@yes_flag
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="The kubeconfig of the nodes; default: the cluster's own, or drain.kubernetes.",
)
@click.option(
    "--context", metavar="NAME", help="Context of the kubeconfig; default: the current one."
)
@click.option(
    "--namespace",
    default="slurm",
    show_default=True,
    metavar="NAME",
    help="slinky: the namespace of Slurm.",
)
@click.option(
    "--json",
    "-j",
    "as_json",
    is_flag=True,
    help="Print JSON: the nodes, the topology's text and the unknown values; with --apply or "
    "--remove, the changes.",
)
@output_flag
@emulate_flag
@lock_flag
@add_stack_flags
def export_topology(  # noqa: PLR0913 - a flag each
    *,
    resources: tuple[str, ...],
    form: str,
    refresh: bool,
    apply_: bool,
    remove: bool,
    yes: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    as_json: bool,
    output: Path | None,
    emulate: bool,
) -> int:
    """Export the locations of the stack's nodes to schedulers.

    Writes the topology of the nodes in the format of a scheduler: region, vendor pool, fabric,
    switches, NVLink domain. Omits unknown values, and lists them on stderr. Reads the state; with
    --refresh also the platforms, and the labels of the clusters' nodes. RESOURCE is a cluster or a
    pool; default: all.

    With --apply the command writes the labels, annotations and objects into the cluster's
    Kubernetes, after a preview and a confirmation. It overwrites no values of other owners, and
    removes its own values from nodes that left the stack. Exits with 1 when a value could not be
    written.

    \b
    Examples:
      gpuform export-topology --format slurm-tree --output topology.conf
      gpuform export-topology train --format kubernetes-labels --apply
      gpuform export-topology --format kueue --apply --yes
      gpuform export-topology --format inventory --refresh
    """
    from gpuform.stacks.cli.opening import find_workspace, select_stack  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.topology_export import TopologyOptions  # noqa: PLC0415 - as above

    if apply_ and remove:
        raise click.UsageError("--apply and --remove cannot be combined")
    is_writing = apply_ or remove
    if is_writing and output is not None:
        raise click.UsageError("--output cannot be combined with --apply or --remove")
    if yes and not is_writing:
        raise click.UsageError("--yes requires --apply or --remove")
    with open_session() as session:
        selected = select_stack(session, find_workspace(session))
        options = TopologyOptions(
            form=form,
            resources=resources,
            refresh=refresh,
            emulate=emulate,
            kubernetes=_build_kubernetes(kubeconfig, context),
            namespace=namespace,
        )
        if not is_writing:
            return _print_topology(session, selected, options, output, as_json=as_json)
        if as_json and not yes:
            raise click.UsageError("--json cannot ask for a confirmation: add --yes")
        return _apply_topology(session, selected, options, remove=remove, yes=yes, as_json=as_json)


def _build_kubernetes(kubeconfig: str | None, context: str | None) -> "KubernetesInputs | None":
    """Return the Kubernetes named by the flags, or None without both flags."""
    from gpuform.schemas.policies.drain import KubernetesInputs  # noqa: PLC0415 - not for help

    if kubeconfig is None and context is None:
        return None
    return KubernetesInputs(kubeconfig=kubeconfig, context=context)


def _print_topology(
    session: Session,
    selected: "SelectedStack",
    options: "TopologyOptions",
    output: Path | None,
    *,
    as_json: bool,
) -> int:
    """Print the topology, or write `output`; unknown facts are on stderr or in the JSON."""
    from gpuform.stacks.cli.terminal.screen import write_parts  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.topology_export import read_topology  # noqa: PLC0415 - as above
    from gpuform.stacks.review.orphans_text import build_topology_document  # noqa: PLC0415 - as above
    from gpuform.stacks.topology_export.formats import INVENTORY_FORMATS  # noqa: PLC0415 - as above

    if options.form in INVENTORY_FORMATS:
        return _print_inventory(session, selected, options, output, as_json=as_json)
    result = read_topology(selected, options)
    if as_json:
        document_json = format_json(build_topology_document(result), indent=2) + "\n"
        write_parts([document_json], output, session.screen)
        return SUCCESS
    write_parts([result.text], output, session.screen)
    _print_unknown(session, result.unknown)
    return SUCCESS


def _print_inventory(
    session: Session,
    selected: "SelectedStack",
    options: "TopologyOptions",
    output: Path | None,
    *,
    as_json: bool,
) -> int:
    """Print the records of nodes, or write `output`, and return the exit code.

    FAILED if a resource could not be read with --refresh. The format JSON is its own document.
    """
    from gpuform.stacks.cli.terminal.screen import write_parts  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.status_reading import read_node_inventory  # noqa: PLC0415 - as above
    from gpuform.stacks.topology_export.formats import INVENTORY_FORMATS  # noqa: PLC0415 - as above

    if as_json:
        raise click.UsageError("--json cannot be combined with --format " + options.form)
    inventory = read_node_inventory(
        selected, options.resources, refresh=options.refresh, emulate=options.emulate
    )
    write_parts([INVENTORY_FORMATS[options.form](inventory)], output, session.screen)
    _print_unknown(session, inventory.unknown)
    return SUCCESS if inventory.success else FAILED


def _apply_topology(
    session: Session,
    selected: "SelectedStack",
    options: "TopologyOptions",
    *,
    remove: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Write or remove the topology after a question, and print the result; return the exit code.

    The code is FAILED after a no, or if something could not be written. With `as_json` nothing is
    asked: `yes` is the answer.
    """
    from gpuform.stacks.cli.terminal.prompts import is_confirmed  # noqa: PLC0415 - not for help
    from gpuform.stacks.cli.terminal.signals import raise_on_signals  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.topology_export import apply_topology  # noqa: PLC0415 - as above
    from gpuform.stacks.review.orphans_text import (  # noqa: PLC0415 - as above
        build_changes_document,
        render_label_changes,
        render_label_problems,
    )

    screen = session.screen

    def confirm(changes: "AppliedTopology") -> bool:
        # --json without --yes was refused before: there is no question.
        if as_json:
            return yes
        screen.print(f"Changes in the Kubernetes of {escape_invisible(changes.kubernetes)}:")
        screen.print("\n".join(render_label_changes(changes.changes, screen.paint)))
        return is_confirmed(screen, "Write these changes?", yes=yes)

    with raise_on_signals():
        applied = apply_topology(
            selected, options, confirm=confirm, report=screen.warn, remove=remove
        )
    problems = list(render_label_problems(applied.changes))
    if as_json:
        document = build_changes_document(applied.kubernetes, applied.changes, applied.unknown)
        screen.print(format_json(document, indent=2))
    elif applied.is_done:
        screen.print(_summarize_written_changes(applied.changes))
    if not as_json:
        _print_unknown(session, applied.unknown)
    for problem in problems:
        screen.warn(f"error: {problem}")
    return FAILED if problems or not applied.is_done else SUCCESS


def _summarize_written_changes(changes: "Sequence[Change]") -> str:
    """Return `Wrote N changes.`, or `No changes.` if no change had to be written."""
    from gpuform.stacks.review.value_text import counted  # noqa: PLC0415 - as above
    from gpuform.stacks.topology_export.applying import WRITING_ACTIONS  # noqa: PLC0415 - not for help

    change_count = sum(change.action in WRITING_ACTIONS for change in changes)
    return f"Wrote {counted(change_count, 'change')}." if change_count else "No changes."


def _print_unknown(session: Session, unknown: Sequence[str]) -> None:
    """Print a note on stderr for each unknown fact."""
    for note in unknown:
        session.screen.warn(f"note: {escape_invisible(note)}")
