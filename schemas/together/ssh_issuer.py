"""Derive from a cluster's OIDC issuer where its SSH certificates are signed, and its bastion.

Inputs, outputs and `providers.together.cluster_facts` call this module. Facts are from the
platform's command line (`tg clusters ssh` of the package together 3.1.1): the issuer of a cluster
is `https://dex.<base>/<cluster-id>`, its step-ca is at `https://dex.<base>/step-<cluster-id>`, and
its bastion is `ssh.<cluster-id>.<base>`. A login and a token go to these addresses, so that only
Together's own domain and this machine (the emulator) are accepted.
"""

import re
from typing import Final
from urllib.parse import urlsplit

from gpuform.schemas.access import SshAuthority

_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9-]+")
_TRUSTED_SUFFIX: Final = ".together.ai"
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost")


def parse_ssh_issuer(text: str) -> SshAuthority:
    """Return the authority that signs SSH certificates for users of the issuer.

    Raises:
        ValueError: the text is not the issuer of a cluster of Together, nor of an emulator on this
            machine.
    """
    problem = ValueError(
        "must be the OIDC issuer of the cluster, as Together's page of the cluster shows it: "
        "https://dex.<base>.together.ai/<cluster-id>"
    )
    try:
        parts = urlsplit(text)
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


def validate_ssh_issuer(text: str) -> str:
    """Return `text` if it is the OIDC issuer of a cluster. Raises ValueError otherwise."""
    parse_ssh_issuer(text)
    return text


def find_ssh_authority(text: str | None) -> SshAuthority | None:
    """Return the authority of an issuer, or None without one or for any other text."""
    try:
        return parse_ssh_issuer(text) if text else None
    except ValueError:
        return None
