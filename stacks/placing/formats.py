"""The formats that a topology can be written in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.stacks.placing.inventory import inventory
from gpuform.stacks.placing.kubernetes_labels import kubernetes_labels, labels_unknown
from gpuform.stacks.placing.kueue import kueue, kueue_unknown
from gpuform.stacks.placing.manifests import Manifest, documents_text, mark_of
from gpuform.stacks.placing.model import StackTopology
from gpuform.stacks.placing.slinky import slinky
from gpuform.stacks.placing.slurm_block import block_unknown, slurm_block
from gpuform.stacks.placing.slurm_tree import slurm_tree, tree_unknown
from gpuform.stacks.placing.topograph import topograph

_Manifests = Callable[[StackTopology, str], Sequence[Manifest]]
_Unknown = Callable[[StackTopology], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Format:
    """One of them: a text, or what is written into a Kubernetes.

    `of_one` is for one scheduler. `unknown` says what this format cannot tell.
    """

    text: Callable[[StackTopology], str] | None = None
    manifests: _Manifests | None = None
    of_one: bool = True
    unknown: _Unknown = lambda _: ()

    def written(self, topology: StackTopology, namespace: str) -> str:
        """The whole text. Raises NoTopology where it cannot be written."""
        if self.manifests is not None:
            return documents_text(self.manifests(topology, namespace), mark_of(topology))
        assert self.text is not None  # noqa: S101 - one of the two is there
        return self.text(topology)


@dataclass(frozen=True, slots=True)
class TopologyResult:
    """The topology and its text in one format; `unknown` are sentences about what is left out."""

    form: str
    topology: StackTopology
    text: str
    unknown: Sequence[str]


FORMATS: Final[Mapping[str, Format]] = {
    "slurm-tree": Format(slurm_tree, unknown=tree_unknown),
    "slurm-block": Format(slurm_block, unknown=block_unknown),
    "slinky": Format(manifests=slinky, unknown=tree_unknown),
    "kubernetes-labels": Format(manifests=kubernetes_labels, unknown=labels_unknown),
    "kueue": Format(manifests=kueue, unknown=kueue_unknown),
    "topograph": Format(topograph, of_one=False, unknown=tree_unknown),
    "inventory": Format(inventory, of_one=False),
}
"""By their names on the command line."""

APPLIED: Final = tuple(name for name, each in FORMATS.items() if each.manifests is not None)
"""Those that can be written into a Kubernetes."""
