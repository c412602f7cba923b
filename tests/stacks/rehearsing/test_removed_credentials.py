"""The process of a rehearsal keeps no variable of the environment that may be a credential."""

import os

import pytest

from gpuform.stacks.rehearsing.worker import remove_credentials


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOGETHER_API_KEY", "k"),
        ("GH_PAT", "k"),
        ("PGPASSFILE", "/home/ana/.pgpass"),
        ("DOCKER_AUTH_CONFIG", "{}"),
        ("CI_JOB_JWT", "k"),
        ("SLACK_WEBHOOK_URL", "https://hooks.example.com/T0/B0/k"),
        ("SENTRY_DSN", "https://k@sentry.example.com/1"),
        ("DATABASE_URL", "postgres://ana:hunter2@db.example.com/fleet"),
    ],
)
def test_a_variable_that_may_be_a_credential_is_removed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    remove_credentials()
    assert name not in os.environ
    assert {"PATH", "LANG"} <= os.environ.keys()
