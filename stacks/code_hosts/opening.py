"""The forge of a place, opened for the length of a block."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuform.stacks.code_hosts.github import GitHub
from gpuform.stacks.code_hosts.gitlab import GitLab
from gpuform.stacks.code_hosts.place import Forge, ReviewPlace, token_of


@contextmanager
def opened(place: ReviewPlace, environ: Mapping[str, str]) -> Iterator[Forge]:
    """Raises MissingCredentials when the environment has no token."""
    token = token_of(place.forge, environ)
    forge = (GitHub if place.forge == "github" else GitLab)(place, token)
    with forge.client:
        yield forge
