"""Test that the key and the kubeconfig are in no log, error, repr or file."""

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from gpuform.providers.together.cluster import ClusterLifecycle

KEY = "emulator-admin-key"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    with serve(seed="secrets") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        yield server
        get_client(Settings()).close()


@pytest.mark.slow
def test_no_secret_in_logs_at_the_highest_level(
    server: Server, cluster_inputs: dict[str, Any], caplog: Any, capfd: Any, tmp_path: Path
) -> None:
    from gpuform.providers.context import get_current_context

    lifecycle = ClusterLifecycle()
    with caplog.at_level(logging.DEBUG):
        created = lifecycle.create(cluster_inputs)
        lifecycle.read(created.id, created.outs)
        for status in (400, 401, 403, 404, 500):
            server.store  # noqa: B018 - the server stays referenced while it answers
            try:
                lifecycle.create({**cluster_inputs, "cluster_name": f"bad-{status}", "region": "x"})
            except GpuformError as error:
                caplog.handler.stream.write("".join(traceback.format_exception(error)))
        lifecycle.delete(created.id, created.outs)
    get_current_context().clock.close()  # type: ignore[attr-defined]
    kube_config = created.outs["kube_config"]
    token = next(line for line in kube_config.splitlines() if "token" in line).split()[-1]
    out, err = capfd.readouterr()
    files = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    rendered = caplog.text + out + err + files
    assert "gpuform.http" in rendered
    assert "Traceback" in rendered
    for secret in (KEY, token, kube_config):
        assert secret not in rendered


def test_no_secret_in_reprs() -> None:
    client = get_client(Settings(environ={"TOGETHER_API_KEY": "a-secret-key"}))
    settings = Settings(environ={"TOGETHER_API_KEY": "a-secret-key"})
    parts = [var for var in vars(client).values() if hasattr(var, "__dict__")]
    inner = [value for part in parts for value in vars(part).values() if hasattr(value, "__dict__")]
    assert len(parts) + len(inner) > 2
    for inspected_object in (client, *parts, *inner, settings):
        assert "a-secret-key" not in repr(inspected_object)
