"""SCP's signature: an HMAC over the URL exactly as it is sent.

The rule is that of the official Go SDK (client/signature_generator.go). The body is not signed.
"""

import base64
import hashlib
import hmac

from gpuform.providers.scp.client.credentials import Credentials

CLIENT_TYPE = "Openapi"


def signature(credentials: Credentials, method: str, url: str, timestamp: str) -> str:
    """`url` is absolute, with its query; `timestamp` is milliseconds since 1970, as in the header.

    An account id is part of what is signed only when there is one.
    """
    message = method.upper() + url + timestamp
    message += credentials.access_key + credentials.account_id + CLIENT_TYPE
    digest = hmac.digest(credentials.secret_key.encode(), message.encode(), hashlib.sha256)
    return base64.b64encode(digest).decode()


def signed_headers(credentials: Credentials, method: str, url: str, now: float) -> dict[str, str]:
    """The headers that say who asks; `now` is the real time, in Unix seconds."""
    timestamp = str(int(now * 1000))
    headers = {
        "Scp-Accesskey": credentials.access_key,
        "Scp-Signature": signature(credentials, method, url, timestamp),
        "Scp-Timestamp": timestamp,
        "Scp-ClientType": CLIENT_TYPE,
    }
    if credentials.account_id:
        headers["Scp-AccountId"] = credentials.account_id
    if credentials.auth_token:
        headers["X-Auth-Token"] = credentials.auth_token
    return headers
