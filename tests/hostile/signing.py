"""Compute Samsung's signature as its document describes."""

import base64
import hashlib
import hmac


def sign(secret: str, method: str, url: str, moment: str, key: str) -> str:
    message = f"{method}{url}{moment}{key}Openapi"
    digest = hmac.new(secret.encode(), message.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()
