"""The credential of a cluster, in the form that the API returns it."""

import base64
import json

# A certificate nobody holds the key of; kubectl wants one that it can parse.
_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBSDCB8KADAgECAgEBMAoGCCqGSM49BAMCMCMxITAfBgNVBAMMGGdwdWZvcm0g
ZW11bGF0b3IgdGVzdCBDQTAgFw0yNDAxMDEwMDAwMDBaGA8yMTI0MDEwMTAwMDAw
MFowIzEhMB8GA1UEAwwYZ3B1Zm9ybSBlbXVsYXRvciB0ZXN0IENBMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAE1UosHJ+RyDYP1497DuaIqnN36puVDk0vx+QOob5r
88tDZtP7XWoye1YqGtu3KnRkcK5tGW5m/wrz7iLc2GUhVqMTMBEwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBCIHQiTbhBjC5yhLhO4bhwBvSt7twJ
JKQSTj0y/+/iMwIgdn6/GErUh0+3dYKLdu3npi1cHmhi74082rd+1uDmHUM=
-----END CERTIFICATE-----
"""
_AUTHORITY = base64.b64encode(_CERTIFICATE.encode()).decode()
_TEMPLATE = """\
apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: https://{cluster_id}.emulator.invalid:6443
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


def kubeconfig(cluster_id: str, cluster_name: str, token: str) -> str:
    """The kubeconfig YAML in base64 (SDK 3.1.1, `clusters get-credentials`)."""
    text = _TEMPLATE.format(
        # A JSON string is a YAML string whatever the name holds.
        name=json.dumps(cluster_name),
        user=json.dumps(f"{cluster_name}-admin"),
        cluster_id=cluster_id,
        authority=_AUTHORITY,
        token=token,
    )
    return base64.b64encode(text.encode()).decode()
