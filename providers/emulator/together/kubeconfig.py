"""The credential of a cluster, in the form that the API returns it."""

import base64
import json

from gpuform.providers.emulator.certificates import AUTHORITY

_AUTHORITY = base64.b64encode(AUTHORITY.encode()).decode()
_TEMPLATE = """\
apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {user}
current-context: {name}
users:
- name: {user}
  user:
    token: {token}
"""


def kubeconfig(server: str, cluster_name: str, token: str) -> str:
    """The kubeconfig YAML in base64 (SDK 3.1.1, `clusters get-credentials`)."""
    text = _TEMPLATE.format(
        # A JSON string is a YAML string whatever the name holds.
        name=json.dumps(cluster_name),
        user=json.dumps(f"{cluster_name}-admin"),
        server=json.dumps(server),
        authority=_AUTHORITY,
        token=token,
    )
    return base64.b64encode(text.encode()).decode()
