"""A fake code host over HTTP, a client for each kind, reviews, and a clock that only tests move."""

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr
from support.servers import code_host as fake_code_host

from gpuform.providers.context import ProviderContext, use_context
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.stacks.code_hosts.azure_devops import AzureDevOps
from gpuform.stacks.code_hosts.bitbucket import Bitbucket
from gpuform.stacks.code_hosts.comment_api import CommentApi
from gpuform.stacks.code_hosts.github import GitHub
from gpuform.stacks.code_hosts.gitlab import GitLab
from gpuform.stacks.code_hosts.review_target import (
    CODE_HOSTS,
    CodeHost,
    CodeHostName,
    ReviewTarget,
)
from gpuform.stacks.review.facts import Review, StackFacts

TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"
NOW = 1_800_000_000.0


@dataclass
class StoppedClock:
    """Sleeping moves it and is written down."""

    time: float = NOW
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        self.slept.append(seconds)
        self.time += seconds


@pytest.fixture
def clock() -> Iterator[StoppedClock]:
    stopped = StoppedClock()
    with use_context(ProviderContext(clock=stopped)):
        yield stopped


@pytest.fixture(scope="session")
def served() -> Iterator[fake_code_host.FakeCodeHost]:
    with fake_code_host.serve_code_host() as code_host:
        yield code_host


@pytest.fixture
def server(served: fake_code_host.FakeCodeHost) -> fake_code_host.FakeCodeHost:
    served.reset()
    return served


ADDRESSES = {
    "github": (GitHub, "", "o/r"),
    "gitlab": (GitLab, "/api/v4", "7"),
    "azure": (AzureDevOps, "/organization", "team one/r"),
    "bitbucket": (Bitbucket, "/2.0", "w/r"),
}
"""The class of each code host, the path of its API, and the name of the repository."""


def create_client(
    name: CodeHostName,
    server: fake_code_host.FakeCodeHost,
    number: int | None = 12,
    commit: str = "abc" * 13,
) -> CommentApi[Any]:
    host_class, path, repository = ADDRESSES[name]
    target = ReviewTarget(name, f"{server.url}{path}", repository, number, commit)
    return host_class(target, SecretStr(fake_code_host.TOKEN))


CLIENTS: dict[str, Callable[..., CommentApi[Any]]] = {
    name: functools.partial(create_client, name) for name in CODE_HOSTS
}


@pytest.fixture
def clients() -> dict[str, Callable[..., CommentApi[Any]]]:
    """Return the functions behind `code_host`, for tests with several clients."""
    return CLIENTS


PLAYED_BY_FAST_TESTS = ("github", "azure")
"""The code hosts of the fast tests; the slow ones play the others."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name in PLAYED_BY_FAST_TESTS else pytest.mark.slow)
        for name in CLIENTS
    ]
)
def code_host(
    request: pytest.FixtureRequest, server: fake_code_host.FakeCodeHost, clock: StoppedClock
) -> Iterator[CodeHost]:
    """Yield a client for each kind of code host in turn."""
    client = CLIENTS[request.param](server)
    with client.client:
        yield client


@pytest.fixture
def review() -> Callable[..., Review]:
    """Return a function that builds a review of stacks; `destroys` is a number of GPUs."""

    def build_review(
        *stacks: str, made_at: str = "2026-11-21T10:00:00Z", destroys: int = 0
    ) -> Review:
        change = ResourceChange(
            urn=f"urn:pulumi:dev::demo::{TYPE}::train",
            type=TYPE,
            name="train",
            action=PlanAction.DELETE,
            reason=PlanReason.NOT_IN_PROGRAM,
            gpus_added=0,
            gpus_removed=destroys,
        )
        changes = [change] if destroys else []
        plans = [Plan.from_changes("demo", stack, changes) for stack in stacks or ("prod",)]
        update = {"made_at": made_at}
        return Review([StackFacts(plan.model_copy(update=update)) for plan in plans])

    return build_review
