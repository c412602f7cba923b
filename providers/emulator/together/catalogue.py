"""List the regions, GPU types and drivers that the emulated Together offers.

Names and numbers are plausible, not a copy of the platform's stock. `admission` checks requests
against this module, `nodes` shows the hosts.
"""

from dataclasses import dataclass

from gpuform.providers.emulator.routing import Refusal


class TogetherApiError(Refusal):
    """Raised where Together refuses: answered as `{"error": {"message", "type", "code"}}`."""


def make_not_found(kind: str, key: str) -> TogetherApiError:
    """Return the 404 for a missing object of a kind, such as `cluster`, by its id or name."""
    return TogetherApiError(404, f"{kind} {key!r} not found")


DEFAULT_PROJECT = "project-emulator"
SSH_PREFIX = "/together/ssh"
"""Where the emulator serves the sign-in and the certificate authorities of clusters."""
SSH_CLIENT_ID = "together-cli"
_UBUNTU_22 = "ubuntu-22.04"


@dataclass(frozen=True)
class DriverVersion:
    """A CUDA and driver pair of one region; `key` is the platform's `nvidia_version_id`."""

    key: str
    cuda_version: str
    nvidia_driver_version: str
    os: str

    @property
    def legacy_name(self) -> str:
        """Return the name in the form of the platform document: `CUDA_12_6_560`."""
        return f"CUDA_{self.cuda_version.replace('.', '_')}_{self.nvidia_driver_version}"

    def to_json(self) -> dict[str, str]:
        """Return the driver as an answer lists drivers of a region."""
        return {
            "id": self.key,
            "cuda_version": self.cuda_version,
            "nvidia_driver_version": self.nvidia_driver_version,
            "os": self.os,
        }


@dataclass(frozen=True)
class Region:
    """A region with the GPU types and drivers that it offers."""

    name: str
    gpu_types: tuple[str, ...]
    drivers: tuple[DriverVersion, ...]

    def to_json(self) -> dict[str, object]:
        """Return the region as an answer lists regions."""
        return {
            "name": self.name,
            "supported_instance_types": list(self.gpu_types),
            "driver_versions": [driver.to_json() for driver in self.drivers],
        }


@dataclass(frozen=True)
class Machine:
    """The host that carries the GPUs of a type."""

    num_cpu_cores: int
    memory_gib: float
    ib_hca_type: str
    nvswitch_type: str
    num_gpus: int = 8


_HOPPER = Machine(96, 1800.0, "ConnectX-7", "NVSwitch3")
_BLACKWELL = Machine(128, 2400.0, "ConnectX-7", "NVSwitch4")
_GRACE_BLACKWELL = Machine(144, 960.0, "ConnectX-7", "NVSwitch4", num_gpus=4)
"""A compute tray of a rack: two Grace processors and four GPUs."""
MACHINES = {
    "H100_SXM": _HOPPER,
    "H100_SXM_INF": _HOPPER,
    "H200_SXM": _HOPPER,
    "B200_SXM": _BLACKWELL,
    "B300_SXM": _BLACKWELL,
    "GB200_SXM": _GRACE_BLACKWELL,
    "RTX_6000_PCI": Machine(64, 900.0, "ConnectX-6", ""),
    "L40_PCIE": Machine(64, 900.0, "ConnectX-6", ""),
}


def _build_region(name: str, gpu_types: tuple[str, ...], *drivers: tuple[str, str, str]) -> Region:
    """Return a region; `drivers` are triples of CUDA version, driver version and image."""
    return Region(
        name,
        gpu_types,
        tuple(
            DriverVersion(f"{name}/cuda-{cuda}/driver-{driver}/{os}", cuda, driver, os)
            for cuda, driver, os in drivers
        ),
    )


REGIONS = {
    region.name: region
    for region in (
        _build_region(
            "us-central-8",
            ("H100_SXM", "H100_SXM_INF", "H200_SXM"),
            ("12.4", "550", _UBUNTU_22),
            ("12.5", "555", _UBUNTU_22),
            ("12.6", "560", _UBUNTU_22),
            ("12.6", "565", _UBUNTU_22),
            # One version on two images: here a bare pair of versions needs the rule of Ubuntu
            # 22.04.
            ("12.6", "560", "ubuntu-24.04"),
        ),
        _build_region(
            "us-central-4",
            ("H100_SXM", "B200_SXM"),
            ("12.6", "560", _UBUNTU_22),
            ("12.8", "570", _UBUNTU_22),
        ),
        _build_region(
            "us-east-2",
            ("H200_SXM", "B200_SXM", "B300_SXM"),
            ("12.8", "570", _UBUNTU_22),
            ("12.9", "575", _UBUNTU_22),
        ),
        _build_region("us-west-3", ("L40_PCIE", "RTX_6000_PCI"), ("12.6", "565", _UBUNTU_22)),
        _build_region(
            "eu-north-1",
            ("H100_SXM", "GB200_SXM"),
            ("12.6", "560", _UBUNTU_22),
            ("12.9", "575", _UBUNTU_22),
        ),
    )
}


def require_region(name: str) -> Region:
    """Return the region of a name. Raises `Refusal` 400 for an unknown name."""
    region = REGIONS.get(name)
    if region is None:
        raise TogetherApiError(400, f"region {name!r} is unknown; known: {', '.join(REGIONS)}")
    return region


@dataclass(frozen=True)
class DriverChoice:
    """The ways to name a driver in a create request; all that are present must agree."""

    nvidia_version_id: str | None
    driver_version: str | None
    cuda_version: str | None
    nvidia_driver_version: str | None


def require_driver(region: Region, choice: DriverChoice) -> DriverVersion:
    """Return the region's driver named by every present choice.

    A bare pair of versions means Ubuntu 22.04 (SDK 3.1.1). Raises `Refusal` 400 if no driver has
    all choices, and for half a pair or no choice.
    """
    pair = (choice.cuda_version, choice.nvidia_driver_version)
    by_name = choice.nvidia_version_id or choice.driver_version
    # The message of the live API, also for half a pair.
    if (None in pair and any(pair)) or (pair == (None, None) and not by_name):
        raise TogetherApiError(400, "cuda version and nvidia driver version are required")
    matches = [driver for driver in region.drivers if _is_chosen(driver, choice)]
    if not matches:
        named_choices = ", ".join(
            f"{name}={value}" for name, value in vars(choice).items() if value
        )
        raise TogetherApiError(
            400,
            f"no driver in region {region.name!r} is all of {named_choices}; "
            f"offered: {', '.join(driver.legacy_name for driver in region.drivers)}",
        )
    # Ubuntu 22.04 is listed first in each region, so that a bare pair of versions finds it.
    return matches[0]


def _is_chosen(driver: DriverVersion, choice: DriverChoice) -> bool:
    """Return whether a driver has every version or id named by the choice.

    The CUDA version of the choice may name the operating system, too: `12.6-ubuntu-24.04`.
    """
    choices = (
        (choice.nvidia_version_id, driver.key),
        (choice.driver_version, driver.legacy_name),
        (choice.nvidia_driver_version, driver.nvidia_driver_version),
    )
    # A CUDA version may name the system of the nodes as well: 12.6-ubuntu-24.04.
    cuda_versions = (None, driver.cuda_version, f"{driver.cuda_version}-{driver.os}")
    return choice.cuda_version in cuda_versions and all(
        value is None or value == offered for value, offered in choices
    )
