"""JSON answers."""

import json

from flask import Response
from pydantic import ValidationError


def answer(content: object, status: int = 200) -> Response:
    """`content` as JSON in the order given."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, content_type="application/json")


def invalid(error: ValidationError) -> Response:
    """422, with what is wrong and never the values."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}" for problem in problems
    )
    return answer({"error": told}, 422)
