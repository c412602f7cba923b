"""Define the objects inside a Together cluster's inputs, and check Slurm's startup scripts.

Used by `inputs.py`. Facts are from Together's docs ('Slurm startup scripts',
docs.together.ai/docs/slurm-startup-scripts) and Slurm's 'Prolog and Epilog Guide'
(slurm.schedmd.com/prolog_epilog.html): Slurm runs each script as a program of its own, and a script
that runs at the start of every job must not call Slurm's commands.

The module also derives from a cluster's OIDC issuer where its SSH certificates are signed, and its
bastion. Facts are from the platform's command line (`tg clusters ssh` of the package together
3.1.1): the issuer of a cluster is `https://dex.<base>/<cluster-id>`, its step-ca is at
`https://dex.<base>/step-<cluster-id>`, and its bastion is `ssh.<cluster-id>.<base>`. A login and a
token go to these addresses, so that only Together's own domain and this machine (the emulator) are
accepted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from gpuform.schemas.access import SshAuthority
from gpuform.schemas.models import InputModel, Problem, optional_field
from gpuform.schemas.policies.drain import ChosenDrainInputs, SlurmInputs
from gpuform.schemas.policies.repair import RepairInputs, WaitMinutes
from gpuform.schemas.rules import Immutable
from gpuform.schemas.together.drivers import validate_gpu_type

PROLOGS: Final = ("controller_prolog", "worker_prolog")
SCRIPTS: Final = (
    *PROLOGS,
    "controller_epilog",
    "worker_epilog",
    "login_init_script",
    "nodeset_init_script",
)

_SLURM_COMMANDS: Final = (
    "sacct|sacctmgr|salloc|sattach|sbatch|sbcast|scancel|scontrol|scrontab|sdiag|sinfo|sprio|"
    "squeue|sreport|srun|sshare|sstat|strigger"
)
_SHEBANG: Final = re.compile(r"#![ \t]*/\S")
_SHELL_NAME: Final = re.compile(r"\b(?:ba|da|k|z)?sh\b")
_SLURM_CALL: Final = re.compile(
    # Where a command begins: a line, after an operator or `$(`, and behind these words.
    r"(?:^|[;&|({`!]|\b(?:then|do|else|elif|if|while|until|time|exec|command|nohup|sudo|env)\b)"
    r"[ \t]*(?:\w+=\S*[ \t]+)*(?:/[\w./-]*/)?"
    rf"(?P<name>{_SLURM_COMMANDS})(?=$|[\s;&|)`])"
)


def find_script_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each declared script unfit for Slurm, or a danger to jobs.

    These are scripts without a shebang or with Windows' line ends, and shell scripts that call a
    command of Slurm in a prolog. No problem shows the content of a script.
    """
    for name in SCRIPTS:
        script = values.get(name)
        if not isinstance(script, str):
            continue
        first_line = script.split("\n", 1)[0]
        if not _SHEBANG.match(first_line):
            yield Problem(
                name, "does not begin with a shebang: write a first line such as #!/bin/bash"
            )
        # a script written on Windows: the kernel would look for an interpreter named `bash\r`
        elif first_line.endswith("\r"):
            yield Problem(
                name,
                "has Windows line ends, which Linux reads as a part of the interpreter's name: "
                "save the script with Unix line ends",
            )
        # only a shell script is searched: other languages call commands in other forms
        elif name in PROLOGS and _SHELL_NAME.search(first_line):
            yield from _find_slurm_calls(name, script)


def _find_slurm_calls(name: str, script: str) -> Iterator[Problem]:
    """Yield a problem for each line in which the prolog script `name` calls a Slurm command."""
    for number, line in enumerate(script.split("\n"), start=1):
        # a comment calls nothing
        call = None if line.lstrip().startswith("#") else _SLURM_CALL.search(line)
        if call is not None:
            yield Problem(
                name,
                f"calls {call['name']} in line {number}: a prolog must call no command of "
                "Slurm, because the command would delay every job: use the variables that "
                "Slurm sets, such as SLURM_JOB_ID",
            )


GpuType = Annotated[str, AfterValidator(validate_gpu_type)]
LoadBalancer = Literal["NONE", "TRAEFIK", "NGINX", "ISTIO"]
DcgmDiagLevel = Literal[
    "DCGM_DIAG_LEVEL_SHORT",
    "DCGM_DIAG_LEVEL_MEDIUM",
    "DCGM_DIAG_LEVEL_LONG",
    "DCGM_DIAG_LEVEL_EXTENDED",
]


class OidcConfigInputs(InputModel):
    """Sign-in to the cluster through an OpenID Connect issuer."""

    # All fields but ca_cert are required by the SDK.
    client_id: str = Field(
        min_length=1, description="Client id registered with the issuer.", examples=["gpu-clusters"]
    )
    group_claim: str = Field(
        description="Claim that holds a user's groups, such as groups.", examples=["groups"]
    )
    group_prefix: str = Field(
        description="Prefix of each group's name, such as oidc:.", examples=["oidc:"]
    )
    issuer_url: str = Field(
        min_length=1, description="URL of the issuer.", examples=["https://login.example.com"]
    )
    username_claim: str = Field(
        description="Claim that names the user, such as sub or email.", examples=["email"]
    )
    username_prefix: str = Field(
        description="Prefix of each user's name, such as oidc:.", examples=["oidc:"]
    )
    ca_cert: str | None = optional_field(
        "PEM certificate of the issuer's authority, for a private authority.",
        examples=["{{ config.issuer_certificate }}"],
    )


class SwitchInputs(InputModel):
    """A component that is on or off."""

    enabled: bool | None = optional_field("Whether the setting is on.", examples=[True])


class SlurmStartupScriptsInputs(InputModel):
    """Scripts that Slurm runs at the stages of nodes and jobs; each begins with a shebang."""

    controller_prolog: str | None = optional_field(
        "Before a job, on the controller; the script calls no command of Slurm.",
        examples=["#!/bin/sh\nlogger job starts\n"],
    )
    controller_epilog: str | None = optional_field(
        "After a job, on the controller.", examples=["#!/bin/sh\nlogger job ends\n"]
    )
    worker_prolog: str | None = optional_field(
        "Before a job, on each worker; the script calls no command of Slurm.",
        examples=["#!/bin/sh\nnvidia-smi -pm 1\n"],
    )
    worker_epilog: str | None = optional_field(
        "After a job, on each worker.", examples=["#!/bin/sh\nrm -rf /tmp/job\n"]
    )
    login_init_script: str | None = optional_field(
        "At the start of login nodes.", examples=["#!/bin/sh\napt-get install -y tmux\n"]
    )
    nodeset_init_script: str | None = optional_field(
        "At the start of node sets.", examples=["#!/bin/sh\nsysctl -w vm.swappiness=1\n"]
    )
    extra_slurm_conf: str | None = optional_field(
        "Lines added to slurm.conf.", examples=["MaxJobCount=20000\n"]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each script without a shebang, and each call of Slurm in a prolog."""
        yield from find_script_problems(values)


class ClusterConfigInputs(InputModel):
    """The components that the platform installs in the cluster."""

    # The only required field of the object (SDK, ClusterCreateParams).
    load_balancer: LoadBalancer = Field(
        description="Load balancer: NONE, TRAEFIK, NGINX, ISTIO.", examples=["NGINX"]
    )
    gpu_operator_version: str | None = optional_field(
        "NVIDIA GPU Operator version, such as v24.6.2.", examples=["v24.6.2"]
    )
    network_operator_version: str | None = optional_field(
        "NVIDIA Network Operator version, such as v24.7.0.", examples=["v24.7.0"]
    )
    ingress: SwitchInputs | None = optional_field(
        "The ingress controller.", examples=[{"enabled": True}]
    )
    jumphost_enabled: bool | None = optional_field(
        "Whether the cluster has a jump host.", examples=[True]
    )
    kubernetes_dashboard_enabled: bool | None = optional_field(
        "Whether the Kubernetes dashboard is installed.", examples=[True]
    )
    observability: SwitchInputs | None = optional_field(
        "Metrics and logs.", examples=[{"enabled": True}]
    )
    slurm_startup_scripts: SlurmStartupScriptsInputs | None = optional_field(
        "Scripts of a SLURM cluster.", examples=[{"extra_slurm_conf": "MaxJobCount=20000\n"}]
    )
    ssh_ca_enabled: bool | None = optional_field(
        "Whether SSH uses certificates of the cluster's own authority.", examples=[True]
    )


class AddOnConfigInputs(InputModel):
    """The settings of an add-on, under its type's name."""

    dashboard: SwitchInputs | None = optional_field(
        "Kubernetes dashboard.", examples=[{"enabled": True}]
    )
    headlamp: SwitchInputs | None = optional_field(
        "Headlamp dashboard.", examples=[{"enabled": True}]
    )
    ingress: SwitchInputs | None = optional_field("Ingress.", examples=[{"enabled": True}])
    slurm_web: SwitchInputs | None = optional_field(
        "Slurm web interface.", examples=[{"enabled": True}]
    )
    # States of clusters that were created with SDK 3.0 may have it.
    torchpass: SwitchInputs | None = optional_field(
        "No longer offered by Together.", examples=[{"enabled": True}]
    )


class AddOnInputs(InputModel):
    """One add-on of a cluster, identified by its name."""

    # An update names an add-on and its new settings, never its type (SDK, ClusterUpdateParams).
    add_on_type: Annotated[str, Immutable] = Field(
        min_length=1,
        description="Type: dashboard, headlamp, ingress or slurm_web.",
        examples=["dashboard"],
    )
    name: str = Field(
        min_length=1, description="Name of the add-on in this cluster.", examples=["ui"]
    )
    config: AddOnConfigInputs | None = optional_field(
        "Settings of the add-on.", examples=[{"dashboard": {"enabled": True}}]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for a retired type, and each setting of another type in `config`."""
        kind, config = values.get("add_on_type"), values.get("config")
        if kind == "torchpass":
            yield Problem(
                "add_on_type",
                "torchpass is no longer an add-on of Together (SDK 3.1.1): remove the add-on",
            )
            return
        if not (isinstance(kind, str) and isinstance(config, Mapping)):
            return
        for name in config:
            if name != kind:
                yield Problem(
                    f"config.{name}", f"is not a setting of a {kind} add-on: write config.{kind}"
                )


class AlternativeInputs(InputModel):
    """Another region, another GPU type, or both. Omitted properties stay as declared."""

    region: str | None = optional_field(
        "The region to try.", min_length=1, examples=["us-central-4"]
    )
    gpu_type: GpuType | None = optional_field(
        "The type of GPU to try.", min_length=1, examples=["H200_SXM"]
    )


class OnNoCapacityInputs(InputModel):
    """What to do while the platform has no free GPUs, instead of failing at once."""

    alternatives: list[AlternativeInputs] | None = optional_field(
        "The alternatives for a new cluster, in this order.",
        examples=[[{"region": "us-central-4"}, {"gpu_type": "H200_SXM"}]],
    )
    wait_minutes: WaitMinutes = None


class ClusterDrainInputs(ChosenDrainInputs):
    """What to do about the jobs on a cluster's nodes, and which nodes are removed first."""

    slurm: SlurmInputs | None = optional_field(
        "How to reach the Slurm of a SLURM cluster: by default in the pod of Slinky's controller.",
        examples=[{"via": "ssh", "host": "slurm-login"}],
    )


REPAIR_MODES: Final = ("HOST_AWARE", "VM_ONLY", "REBOOT_VM", "HOST_POWER_CYCLE")
"""The ways to repair a node that keep the size of the cluster, the usual one first.

Together has one more, EVICT_WITHOUT_REPLACEMENT, which makes the cluster smaller.
"""


class ClusterRepairInputs(RepairInputs):
    """Which broken nodes are repaired, and how the nodes of a cluster may be repaired."""

    # EVICT_WITHOUT_REPLACEMENT is left out: num_gpus would no longer be what was declared.
    modes: list[Literal["HOST_AWARE", "VM_ONLY", "REBOOT_VM", "HOST_POWER_CYCLE"]] | None = (
        optional_field(
            "Allowed repairs: a new machine on another host (HOST_AWARE) or on any "
            "host (VM_ONLY), a reboot, or a power cycle of the host. Together's proposal is used "
            "if it is listed, otherwise the first one. All, HOST_AWARE first, if not declared.",
            min_length=1,
            examples=[["HOST_AWARE", "REBOOT_VM"]],
        )
    )


class ClusterRolloutInputs(InputModel):
    """How a cluster is replaced when a change cannot be made in place."""

    strategy: Literal["replace_cluster"] = Field(
        description="replace_cluster: the new cluster is created first, if there is stock, "
        "and the old one is deleted when no job runs on it any more.",
        examples=["replace_cluster"],
    )
    keep_volume: bool | None = optional_field(
        "Whether the new cluster must mount the volume of the old one; requires volume_id.",
        examples=[True],
    )


def is_add_on_off(add_on: Mapping[str, Any]) -> bool:
    """Return True if an add-on is declared as disabled; the platform lists only enabled ones."""
    config = add_on.get("config")
    switches = config.values() if isinstance(config, Mapping) else ()
    return any(
        isinstance(switch, Mapping) and switch.get("enabled") is False for switch in switches
    )


class AcceptanceTestsInputs(InputModel):
    """The tests that a new cluster has to pass."""

    enabled: bool | None = optional_field("Whether the tests run.", examples=[True])
    dcgm_diag_level: DcgmDiagLevel | None = optional_field(
        "Depth of the DCGM diagnostics; MEDIUM when not declared.",
        examples=["DCGM_DIAG_LEVEL_SHORT"],
    )
    dcgm_diag_skipped: bool | None = optional_field("Skip DCGM diagnostics.", examples=[True])
    gpu_burn_duration: int | None = optional_field(
        "Duration of GPU burn in seconds; 0 is the default.", ge=0, examples=[600]
    )
    gpu_burn_skipped: bool | None = optional_field("Skip GPU burn.", examples=[True])
    nccl_multi_node_skipped: bool | None = optional_field(
        "Skip NCCL over several nodes.", examples=[True]
    )
    nccl_single_node_skipped: bool | None = optional_field(
        "Skip NCCL inside one node.", examples=[True]
    )
    storage_skipped: bool | None = optional_field("Skip storage performance.", examples=[True])


_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9-]+")
_TRUSTED_SUFFIX: Final = ".together.ai"
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost")


def parse_ssh_issuer(issuer: str) -> SshAuthority:
    """Return the authority which signs SSH certificates for users of the issuer.

    Raises:
        ValueError: the text is not the issuer of a cluster of Together, nor of an emulator on this
            machine.
    """
    problem = ValueError(
        "must be the OIDC issuer of the cluster, as Together's page of the cluster shows it: "
        "https://dex.<base>.together.ai/<cluster-id>"
    )
    try:
        parts = urlsplit(issuer)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise problem from None
    parent, _, cluster_id = parts.path.removesuffix("/").rpartition("/")
    is_emulated = host in _LOOPBACK_HOSTS and port is not None
    is_together = (
        parts.scheme == "https"
        and host.startswith("dex.")
        and host.endswith(_TRUSTED_SUFFIX)
        and port is None
        and not parent
    )
    has_extras = bool(parts.query or parts.fragment or parts.username or parts.password)
    if not (is_together or is_emulated) or has_extras or not _CLUSTER_ID.fullmatch(cluster_id):
        raise problem
    origin = f"{parts.scheme}://{parts.netloc}{parent}"
    return SshAuthority(
        issuer=f"{origin}/{cluster_id}",
        sign_url=f"{origin}/step-{cluster_id}/ssh/sign",
        bastion=f"ssh.{cluster_id}.{host.removeprefix('dex.')}",
        cluster_id=cluster_id,
    )


def validate_ssh_issuer(issuer: str) -> str:
    """Return `issuer` if the text is the OIDC issuer of a cluster. Raises ValueError otherwise."""
    parse_ssh_issuer(issuer)
    return issuer


def find_ssh_authority(issuer: str | None) -> SshAuthority | None:
    """Return the authority of an issuer, or None without one or for any other text."""
    try:
        return parse_ssh_issuer(issuer) if issuer else None
    except ValueError:
        return None
