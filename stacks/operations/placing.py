"""Where a stack's nodes are, for schedulers: written as a text, or into a cluster's Kubernetes."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from gpuform.providers.context import CLOCK_VARIABLE
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.records import errors_of_engine
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.operations.opening.selecting import SelectedStack, passphrase_of
from gpuform.stacks.operations.opening.worlds import config_of, lives_emulated, world_for
from gpuform.stacks.topology_export.applying import (
    DONE,
    Change,
    Target,
    carried_out,
    planned,
    served_version,
)
from gpuform.stacks.topology_export.formats import APPLIED, FORMATS, TopologyResult
from gpuform.stacks.topology_export.manifests import (
    GROUP,
    VERSION,
    Manifest,
    WholeObject,
    WrittenRecords,
    mark_of,
)
from gpuform.stacks.topology_export.model import NoTopology, StackTopology
from gpuform.stacks.topology_export.reading import (
    Kubernetes,
    Placed,
    kubernetes_of,
    one_scheduler,
    placed_resources,
    topology_of,
    with_labels_asked,
    with_labels_of,
)


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """Choose what is exported, and from where.

    `form` is one of `gpuform.stacks.topology_export.formats.FORMATS`. `resources` are names in the
    stack; none stands for all. With `refresh` platforms are asked, and the clusters for the labels
    of their nodes. `kubernetes` is where the nodes are, in place of what the stack says.
    `namespace` is Slurm's, for slinky.
    """

    form: str
    resources: Sequence[str] = ()
    refresh: bool = False
    emulate: bool = False
    kubernetes: KubernetesInputs | None = None
    namespace: str = "slurm"


@dataclass(frozen=True, slots=True)
class AppliedTopology:
    """What was written into a Kubernetes, or would be where nobody agreed to it."""

    kubernetes: str
    changes: Sequence[Change]
    is_done: bool
    unknown: Sequence[str] = ()


def read_topology(selected: SelectedStack, options: TopologyOptions) -> TopologyResult:
    """Where the stack's nodes are. Nothing is locked and nothing is changed.

    Raises NoTopology where the format cannot tell it.
    """
    with selected.environment(), ExitStack() as held:
        stack = selected.open()
        is_implied = not options.refresh and CLOCK_VARIABLE not in os.environ
        shows_state = not options.emulate and is_implied and lives_emulated(stack)
        emulate = options.emulate or shows_state
        held.enter_context(world_for(stack, emulate=emulate, shows_state=shows_state))
        placed = _placed(stack, options)
        topology = topology_of(stack, placed)
        if options.refresh:
            topology = with_labels_asked(topology, placed, options.kubernetes)
        else:
            unasked = "the labels of the nodes were not read: --refresh reads them"
            topology = replace(topology, unknown=(*topology.unknown, unasked))
    form = FORMATS[options.form]
    text = form.written(topology, options.namespace)
    return TopologyResult(
        options.form, topology, text, (*topology.unknown, *form.unknown(topology))
    )


def apply_topology(
    selected: SelectedStack,
    options: TopologyOptions,
    *,
    confirm: Callable[[AppliedTopology], bool] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    remove: bool = False,
) -> AppliedTopology:
    """Writes labels, annotations or objects into the nodes' Kubernetes, under the stack's lock.

    With `remove` all that was written before in this format is taken back. `confirm` is shown what
    would change, and not asked where nothing would; without it all is done. `tell` hears whose lock
    is waited for. Raises NoTopology and GpuformError.
    """
    if options.form not in APPLIED:
        raise NoTopology(
            f"{options.form} is a text, and nothing of a Kubernetes",
            hint=f"--apply goes with {', '.join(APPLIED)}",
        )
    workspace = selected.workspace
    lock = workspace.backend.lock(workspace.project.name, selected.name, selected.patience(tell))
    with selected.environment(), lock, ExitStack() as held:
        passphrase = passphrase_of(workspace, selected.ask_passphrase)
        stack = workspace.open(selected.name, passphrase, exclusive=True)
        held.enter_context(world_for(stack, emulate=options.emulate))
        held.enter_context(errors_of_engine())
        placed = _placed(stack, replace(options, refresh=True))
        _require_seen(placed)
        _require_all(stack, placed, options)
        kubernetes = kubernetes_of(placed, options.kubernetes)
        topology = with_labels_of(topology_of(stack, placed), kubernetes)
        manifests = [] if remove else _manifests(topology, options, kubernetes)
        target = _target(stack, topology, options, kubernetes)
        shown = (*topology.unknown, *FORMATS[options.form].unknown(topology))
        wanted = AppliedTopology(kubernetes.name, planned(target, manifests), False, shown)
        if not any(each.action in DONE for each in wanted.changes):
            return replace(wanted, is_done=True)
        if confirm is not None and not confirm(wanted):
            return wanted
        return replace(wanted, changes=carried_out(target, manifests), is_done=True)


def _placed(stack: Stack, options: TopologyOptions) -> list[Placed]:
    placed = placed_resources(stack, config_of(stack), options.resources, refresh=options.refresh)
    if FORMATS[options.form].of_one:
        one_scheduler(placed, options.form)
    return placed


def _require_seen(placed: Sequence[Placed]) -> None:
    """Nothing is written, or taken back, by what may have changed since."""
    for each in placed:
        if each.problem:
            raise EngineError(f"{each.name} could not be looked at: {each.problem}")


def _require_all(stack: Stack, placed: Sequence[Placed], options: TopologyOptions) -> None:
    """What is not named would be taken back where it is in the same Kubernetes."""
    if placed[0].placement.has_own_scheduler:
        return
    chosen, declared = {each.urn for each in placed}, placed[0].placement.kubernetes
    left = [
        each.name
        for each in placed_resources(stack, config_of(stack), (), refresh=False)
        if each.urn not in chosen and not each.placement.has_own_scheduler
        if options.kubernetes is not None or each.placement.kubernetes == declared
    ]
    if left:
        raise NoTopology(
            f"{', '.join(left)} may be in the same Kubernetes, whose nodes are written together",
            hint=f"name them as well: {', '.join([*(each.name for each in placed), *left])}",
        )


def _manifests(
    topology: StackTopology, options: TopologyOptions, kubernetes: Kubernetes
) -> list[Manifest]:
    form = FORMATS[options.form]
    assert form.manifests is not None  # noqa: S101 - it is one of APPLIED
    manifests = list(form.manifests(topology, options.namespace))
    if options.form != "kueue":
        return manifests
    version = served_version(kubernetes.client, GROUP, VERSION, "Kueue")
    return [
        replace(each, api_version=version) if isinstance(each, WholeObject) else each
        for each in manifests
    ]


def _target(
    stack: Stack, topology: StackTopology, options: TopologyOptions, kubernetes: Kubernetes
) -> Target:
    records = WrittenRecords(stack.intents().records)
    written = records.find(kubernetes.key, options.form)
    return Target(kubernetes.client, records, written, mark_of(topology))


__all__ = [
    "AppliedTopology",
    "TopologyOptions",
    "TopologyResult",
    "apply_topology",
    "read_topology",
]
