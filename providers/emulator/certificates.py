"""TLS of the emulator, for clients that send their tokens over nothing else (kubectl).

The certificates are for this machine alone, and the key is known to everybody and worth nothing.
"""

import ssl
import tempfile
from functools import cache
from pathlib import Path

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBfDCCASKgAwIBAgIBATAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhncHVmb3Jt
IGVtdWxhdG9yIHRlc3QgQ0EwIBcNMjQwMTAxMDAwMDAwWhgPMjEyNDAxMDEwMDAw
MDBaMCMxITAfBgNVBAMMGGdwdWZvcm0gZW11bGF0b3IgdGVzdCBDQTBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABOmf5LAmak2p9xss3zdIHZ2ql9udwvGk+mBnSjYg
TOhVspOmz9dOhsjQJkB6EQYAPCeOol23cdlz5K3x1EHGr6+jRTBDMBIGA1UdEwEB
/wQIMAYBAf8CAQAwDgYDVR0PAQH/BAQDAgEGMB0GA1UdDgQWBBTy8dJe3dn7xFHH
WrpUofP3hzG30TAKBggqhkjOPQQDAgNIADBFAiAGWlaV88072us/kOtWRuUpvQf4
YdA2qaQdZj0QLOjs/wIhAO0Xn2SkPfAChcFxezKpc2LxKsQWEBZsXaM0epvZyUVY
-----END CERTIFICATE-----
"""
"""What clients have to trust. Nobody holds its key."""

_SERVER = """\
-----BEGIN CERTIFICATE-----
MIIB1TCCAXqgAwIBAgIBAjAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhncHVmb3Jt
IGVtdWxhdG9yIHRlc3QgQ0EwIBcNMjQwMTAxMDAwMDAwWhgPMjEyNDAxMDEwMDAw
MDBaMBsxGTAXBgNVBAMMEGdwdWZvcm0gZW11bGF0b3IwWTATBgcqhkjOPQIBBggq
hkjOPQMBBwNCAARtDF70cjWbPLfGIOb5GmhU4YoeH3P/AXsyghRAMy5bmL+rcffJ
O8EckAYAucXilWLw5wlkQ+1Bi0NhfoVAtZo+o4GkMIGhMAwGA1UdEwEB/wQCMAAw
DgYDVR0PAQH/BAQDAgeAMBMGA1UdJQQMMAoGCCsGAQUFBwMBMCwGA1UdEQQlMCOC
CWxvY2FsaG9zdIcEfwAAAYcQAAAAAAAAAAAAAAAAAAAAATAdBgNVHQ4EFgQUeZ+n
ID2Q7xYauwiJGaZCi3ZRHV8wHwYDVR0jBBgwFoAU8vHSXt3Z+8RRx1q6VKHz94cx
t9EwCgYIKoZIzj0EAwIDSQAwRgIhAMyxxgcho9qf2NVqbHWAsB8xxiQEO67I9kO3
q8jHDqrnAiEAzB01XXIDYZ2Jkm4HNqOd+nGIuRqrmwITj6VlIbWbPx8=
-----END CERTIFICATE-----
"""
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgG63EotqXodx91sQz
mTC8ZB4QtNLe9CNaRtn6CBFCnAyhRANCAARtDF70cjWbPLfGIOb5GmhU4YoeH3P/
AXsyghRAMy5bmL+rcffJO8EckAYAucXilWLw5wlkQ+1Bi0NhfoVAtZo+
-----END PRIVATE KEY-----
"""


@cache
def tls() -> ssl.SSLContext:
    """The server's side, for `localhost` and the loopback addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder, "chain.pem")
        chain.write_text(_SERVER + _KEY, "ascii")
        context.load_cert_chain(chain)  # from a file, and from nothing else
    return context
