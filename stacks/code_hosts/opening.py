"""Open the code host of a review with the token of the environment.

The commands `gpuform review` and `fetch-plan` call `open_code_host`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuform.stacks.code_hosts.github import GitHub
from gpuform.stacks.code_hosts.gitlab import GitLab
from gpuform.stacks.code_hosts.review_target import CodeHost, ReviewTarget, read_token


@contextmanager
def open_code_host(place: ReviewTarget, environ: Mapping[str, str]) -> Iterator[CodeHost]:
    """Yield the code host of `place`, and close its client afterwards.

    Raises MissingCredentials if the environment has no token, GpuformError if the token is not
    valid.
    """
    token = read_token(place.code_host, environ)
    code_host = (GitHub if place.code_host == "github" else GitLab)(place, token)
    with code_host.client:
        yield code_host
