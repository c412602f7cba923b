"""Test TensorOne's wire models against the platform's document."""

from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError
from support.platforms.tensorone_document import ANSWER, CLUSTER, list_leaves

from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.outputs import find_stopping_limit, is_before
from gpuform.schemas.values import to_unix_time


def dump_with_secrets(value: Any) -> Any:
    """Return the original body of a parsed model, secrets included."""
    if isinstance(value, BaseModel):
        return {name: dump_with_secrets(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {name: dump_with_secrets(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [dump_with_secrets(item) for item in value]
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def test_the_documented_answer_is_parsed_field_by_field() -> None:
    read = wire.ClusterAnswer.model_validate(ANSWER)
    assert list(list_leaves(dump_with_secrets(read))) == list(list_leaves(ANSWER))
    assert read.data.is_complete


def test_no_repr_or_dump_contains_environment_values() -> None:
    read = wire.ClusterAnswer.model_validate(ANSWER)
    for rendered in (repr(read), str(read), read.model_dump_json()):
        assert "ssh root@" not in rendered
        assert "/workspace" not in rendered


def test_an_answer_with_only_an_id_is_parsed() -> None:
    read = wire.ClusterAnswer.model_validate({"data": {"id": "c", "network": None}})
    assert read.success
    assert not read.data.is_complete
    with pytest.raises(ValidationError):
        wire.ClusterAnswer.model_validate({"data": {"name": "c"}})


def test_newer_fields_are_ignored_and_a_newer_status_is_kept() -> None:
    body = {**CLUSTER, "status": "hibernating", "color": "red"}
    assert wire.Cluster.model_validate(body).status == "hibernating"


def test_documented_times_are_parsed() -> None:
    assert to_unix_time("2024-01-15T14:35:00Z") == 1705329300
    assert to_unix_time("2024-01-15T14:35:00") is to_unix_time("") is to_unix_time(None) is None
    assert is_before("2024-01-15T14:35:00Z", "2024-01-15T16:35:01+01:00")
    assert not is_before("2024-01-15T14:35:00Z", "2024-01-15T15:35:00+01:00")


def build_stopped_cluster(message: str = "", **limits: Any) -> wire.Cluster:
    """Return the document's cluster, stopped at 5 idle minutes, after 1.17 hours and 68.25 USD."""
    return wire.Cluster.model_validate(
        {
            **CLUSTER,
            "status": "stopped",
            "status_details": {"message": message},
            "auto_terminate": {"enabled": True, "current_idle_minutes": 5, **limits},
        }
    )


@pytest.mark.parametrize(
    ("cluster", "by"),
    [
        (build_stopped_cluster(idle_minutes=5), "auto-termination, idle for 5 minutes"),
        (build_stopped_cluster(idle_minutes=6), None),
        (build_stopped_cluster(max_runtime_hours=1), "auto-termination, running for 1 hour"),
        (build_stopped_cluster(max_runtime_hours=2), None),
        (build_stopped_cluster(cost_limit_usd=68.25), "auto-termination, cost of 68.25 USD"),
        (build_stopped_cluster(cost_limit_usd=68.26), None),
        (build_stopped_cluster("Auto-terminated at last"), "auto-termination"),
        (build_stopped_cluster("auto terminated"), "auto-termination"),
        (build_stopped_cluster("Stopped by user_789", idle_minutes=60), None),
        (build_stopped_cluster(idle_minutes=5, enabled=False), None),
        (wire.Cluster.model_validate(CLUSTER), None),
        (wire.Cluster(id="c", status="stopped"), None),
    ],
)
def test_the_limit_that_stopped_a_cluster_is_found(cluster: wire.Cluster, by: str | None) -> None:
    assert find_stopping_limit(cluster) == by
