"""Define what tests can set of all emulated clusters: the readiness engine, Kueue and Slinky.

`controls` changes the settings, and `routes`, `readiness` and `nodes` follow them. API groups and
versions differ between the versions of this software, so a setting says which ones are served.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal

from pydantic import Field

from gpuform.providers.emulator.kubernetes.kinds import (
    CERTIFICATION,
    TOPOLOGY,
    StatusError,
)
from gpuform.providers.emulator.kubernetes.objects import Object
from gpuform.providers.emulator.routing import PlatformSettings

ServedVersions = Mapping[str, Sequence[str]]
"""For the `apiVersion` under which objects are stored, those under which the API serves them.

An empty list means that the software is not installed. Others are served as they are stored.
"""

_NOT_SERVED: Final = "the server could not find the requested resource"


class KubernetesSettings(PlatformSettings):
    """What tests can set of the software in all emulated clusters."""

    kind: ClassVar[str] = "kubernetes/engine"

    # The engine was renamed; clusters have the one or the other.
    group: Literal["nvcre.nvidia.com", "cre.nvidia.com", ""] = "nvcre.nvidia.com"
    """The engine's API group; empty where the engine is not installed."""
    seconds: float = Field(default=600, ge=0)
    """How long a category of the engine takes."""
    slow_nodes: dict[str, float] = Field(default_factory=dict)
    """Node -> GB/s of bus bandwidth that a job with the node reaches at most."""
    broken_nodes: dict[str, str] = Field(default_factory=dict)
    """Node -> the message with which each job on the node fails."""
    network_problem: str = ""
    """Why the engine finds no RDMA network: it then fails the next category that needs one.

    Empty where the network is found. Version 0.10 and newer fail the certification; before, the
    pods were attached to a network with a fixed name.
    """
    kueue_versions: tuple[Literal["v1beta1", "v1beta2"], ...] = ("v1beta2",)
    """The versions of Kueue's API, the preferred one first.

    Kueue 0.14 serves v1beta1, 0.15 to 0.19 serve both, and 0.20 serves v1beta2 (Kueue's release
    notes of 0.15 and 0.20). Empty where Kueue is not installed.
    """

    slinky: Literal["1.2", "1.3", ""] = "1.3"
    """The version of Slinky's operator in Slurm clusters; empty where it does nothing."""

    @property
    def has_old_kueue(self) -> bool:
        """Return whether Kueue is older than 0.20, which has ended v1beta1."""
        return "v1beta1" in self.kueue_versions

    @property
    def slinky_request(self) -> str:
        """Return the annotation of a pod by which others ask Slinky for a drain."""
        name = "pod-cordon" if self.slinky == "1.2" else "pod-cordon-requested"
        return f"nodeset.slinky.slurm.net/{name}"

    @property
    def served_versions(self) -> ServedVersions:
        """Return the versions that the API serves of the engine and of Kueue."""
        engine = f"{self.group}/{CERTIFICATION.version}"
        return {
            CERTIFICATION.api_version: (engine,) if self.group else (),
            TOPOLOGY.api_version: [
                f"{TOPOLOGY.group}/{version}" for version in self.kueue_versions
            ],
        }


def find_stored_path(path: str, served: ServedVersions) -> str:
    """Return the path with the version of stored objects in place of the version that is served.

    Raises `StatusError` 404 for a version that is stored, and not served.
    """
    root, *parts = path.split("/")
    requested = "/".join(parts[:2])
    if root != "apis":
        return path
    for stored, versions in served.items():
        if requested in versions:
            return "/".join((root, stored, *parts[2:]))
        if requested == stored:
            raise StatusError(404, _NOT_SERVED)
    return path


def rename_api_version(content: Object, path: str) -> Object:
    """Return an object or list with the `apiVersion` of the requested API path.

    Only a group and version under `apis/` replace those of the content.
    """
    root, *parts = path.split("/")
    if root != "apis" or "/" not in str(content.get("apiVersion", "")):
        return content
    renamed = {**content, "apiVersion": "/".join(parts[:2])}
    if isinstance(items := renamed.get("items"), list):
        renamed["items"] = [rename_api_version(item, path) for item in items]
    return renamed
