"""JSON answers."""

import json

from flask import Response


def answer(content: object, status: int = 200) -> Response:
    """`content` as JSON in the order given."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, content_type="application/json")
