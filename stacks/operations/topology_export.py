"""Export the network topology of a stack's nodes for schedulers.

`gpuform export-topology` and the Python API call this module. It returns a format's text, or writes
labels and objects into a cluster's Kubernetes through `stacks/topology_export`.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from gpuform.providers.context import CLOCK_VARIABLE
from gpuform.schemas.errors import EngineError
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.operations.opening.selected_stack import (
    SelectedStack,
    enter_environment,
    is_recorded_emulated,
    read_config,
)
from gpuform.stacks.topology_export.applying import (
    WRITING_ACTIONS,
    Change,
    ExportTarget,
    apply_changes,
    find_served_version,
    plan_changes,
)
from gpuform.stacks.topology_export.formats import APPLICABLE_FORMATS, FORMATS, TopologyResult
from gpuform.stacks.topology_export.manifests import (
    KUEUE_GROUP,
    KUEUE_VERSION,
    Manifest,
    OwnedObject,
    WriteRecords,
    build_owner_label,
)
from gpuform.stacks.topology_export.model import NoTopology, StackTopology
from gpuform.stacks.topology_export.reading import (
    KubernetesCluster,
    ResourceWithNodes,
    add_known_labels,
    add_labels_of_cluster,
    build_topology,
    find_kubernetes,
    list_resources_with_nodes,
    require_one_scheduler,
)


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """What is exported, and from where.

    `form` is one of `gpuform.stacks.topology_export.formats.FORMATS`. `resources` are names of the
    stack's resources; empty for all. With `refresh` the platforms are asked, and the clusters for
    the labels of their nodes. `kubernetes` replaces the Kubernetes that the stack declares.
    `namespace` is Slurm's, for the format slinky.
    """

    form: str
    resources: Sequence[str] = ()
    refresh: bool = False
    emulate: bool = False
    kubernetes: KubernetesInputs | None = None
    namespace: str = "slurm"


@dataclass(frozen=True, slots=True)
class AppliedTopology:
    """The changes written into a Kubernetes. `is_done` is False where the user declined them."""

    kubernetes: str
    changes: Sequence[Change]
    is_done: bool
    unknown: Sequence[str] = ()


def read_topology(selected: SelectedStack, options: TopologyOptions) -> TopologyResult:
    """Return the topology of the stack's nodes in the chosen format, with a list of unknown facts.

    Nothing is locked and nothing is changed. Platforms and labels of nodes are only asked with
    `options.refresh`.

    Raises:
        NoTopology: the format cannot express the stack's topology.
        EngineError: the stack cannot be opened, or belongs to the other environment.
    """
    with selected.begin_operation() as begun, ExitStack() as resources:
        stack = begun.open()
        is_implied = not options.refresh and CLOCK_VARIABLE not in stack.run_context.environ
        shows_state = not options.emulate and is_implied and is_recorded_emulated(stack)
        emulate = options.emulate or shows_state
        resources.enter_context(enter_environment(stack, emulate=emulate, shows_state=shows_state))
        placements = _list_placements(stack, options)
        topology = build_topology(stack, placements)
        if options.refresh:
            topology = add_known_labels(topology, placements, options.kubernetes)
        else:
            labels_note = "the labels of the nodes were not read: --refresh reads them"
            topology = replace(topology, unknown=(*topology.unknown, labels_note))
    form = FORMATS[options.form]
    output = form.render_text(topology, options.namespace)
    return TopologyResult(
        options.form, topology, output, (*topology.unknown, *form.describe_gaps(topology))
    )


def apply_topology(
    selected: SelectedStack,
    options: TopologyOptions,
    *,
    confirm: Callable[[AppliedTopology], bool] | None = None,
    report: Callable[[str], None] = lambda _: None,
    remove: bool = False,
) -> AppliedTopology:
    """Write labels, annotations or objects into the nodes' Kubernetes, under the stack's lock.

    The platforms are asked for the nodes, whatever `options.refresh` says. The result's `is_done`
    is False if `confirm` refused.

    Args:
        confirm: receives the changes and returns whether to write them; not called without changes.
            None writes them without a question.
        report: receives a line while another command holds the lock.
        remove: remove everything that an earlier run wrote in this format.

    Raises:
        NoTopology: the format is a text only, or cannot express the topology, or another resource
            of the same Kubernetes is not selected.
        EngineError: a resource cannot be read, or another command holds the lock.
        GpuformError: Kubernetes or a platform refused a request.
    """
    if options.form not in APPLICABLE_FORMATS:
        raise NoTopology(
            f"the format {options.form} is for files, and cannot be written to Kubernetes",
            hint=f"--apply supports {', '.join(APPLICABLE_FORMATS)}",
        )
    workspace = selected.workspace
    lock = workspace.backend.create_lock(
        workspace.project.name, selected.name, selected.build_lock_timeout(report)
    )
    with selected.begin_operation() as begun, lock, ExitStack() as resources:
        # Exclusive: the objects written are recorded beside the state.
        stack = begun.open(exclusive=True)
        resources.enter_context(enter_environment(stack, emulate=options.emulate))
        # A stored state may name nodes that were replaced since.
        placements = _list_placements(stack, replace(options, refresh=True))
        _require_readable(placements)
        _require_all_of_kubernetes(stack, placements, options)
        kubernetes = find_kubernetes(placements, options.kubernetes)
        topology = add_labels_of_cluster(build_topology(stack, placements), kubernetes)
        manifests = [] if remove else _build_manifests(topology, options, kubernetes)
        target = _build_target(stack, topology, options, kubernetes)
        unknown = (*topology.unknown, *FORMATS[options.form].describe_gaps(topology))
        applied = AppliedTopology(kubernetes.name, plan_changes(target, manifests), False, unknown)
        if not any(change.action in WRITING_ACTIONS for change in applied.changes):
            return replace(applied, is_done=True)
        if confirm is not None and not confirm(applied):
            return applied
        return replace(applied, changes=apply_changes(target, manifests), is_done=True)


def _list_placements(stack: Stack, options: TopologyOptions) -> list[ResourceWithNodes]:
    """Return the selected resources with nodes.

    Raises NoTopology if they have several schedulers and the format allows one.
    """
    placements = list_resources_with_nodes(
        stack, read_config(stack), options.resources, refresh=options.refresh
    )
    if FORMATS[options.form].needs_one_scheduler:
        require_one_scheduler(placements, options.form)
    return placements


def _require_readable(placements: Sequence[ResourceWithNodes]) -> None:
    """Raise EngineError for an unreadable resource, because outdated facts must not be written."""
    for placement in placements:
        if placement.problem:
            raise EngineError(f"{placement.name} could not be read: {placement.problem}")


def _require_all_of_kubernetes(
    stack: Stack, placements: Sequence[ResourceWithNodes], options: TopologyOptions
) -> None:
    """Raise NoTopology if an unselected resource may be in the selected ones' Kubernetes.

    An export replaces the labels of all nodes of a Kubernetes: the labels of the unselected
    resource would be removed.
    """
    # A cluster with a scheduler of its own shares no Kubernetes with other resources.
    if placements[0].placement.has_own_scheduler:
        return
    chosen_urns, declared_kubernetes = (
        {placement.urn for placement in placements},
        placements[0].placement.kubernetes,
    )
    unselected_names = [
        placement.name
        for placement in list_resources_with_nodes(stack, read_config(stack), (), refresh=False)
        if placement.urn not in chosen_urns and not placement.placement.has_own_scheduler
        if options.kubernetes is not None or placement.placement.kubernetes == declared_kubernetes
    ]
    if unselected_names:
        selected_names = [placement.name for placement in placements]
        raise NoTopology(
            f"{', '.join(unselected_names)} may be in the same Kubernetes cluster, and "
            "gpuform writes all nodes of a Kubernetes cluster together",
            hint=f"select these as well: {', '.join([*selected_names, *unselected_names])}",
        )


def _build_manifests(
    topology: StackTopology, options: TopologyOptions, kubernetes: KubernetesCluster
) -> list[Manifest]:
    """Build the format's manifests; Kueue's API version is asked of the cluster."""
    form = FORMATS[options.form]
    assert form.build_manifests is not None  # noqa: S101 - it is one of APPLIED
    manifests = list(form.build_manifests(topology, options.namespace))
    if options.form != "kueue":
        return manifests
    # Kueue versions differ in the API version of Topology that they serve.
    version = find_served_version(kubernetes.client, KUEUE_GROUP, KUEUE_VERSION, "Kueue")
    return [
        replace(manifest, api_version=version) if isinstance(manifest, OwnedObject) else manifest
        for manifest in manifests
    ]


def _build_target(
    stack: Stack, topology: StackTopology, options: TopologyOptions, kubernetes: KubernetesCluster
) -> ExportTarget:
    """Build the target of a write: the Kubernetes, and the records of earlier writes."""
    records = WriteRecords(stack.get_intents().records)
    written = records.read(kubernetes.key, options.form)
    return ExportTarget(kubernetes.client, records, written, build_owner_label(topology))


__all__ = [
    "AppliedTopology",
    "TopologyOptions",
    "TopologyResult",
    "apply_topology",
    "read_topology",
]
