"""Outputs, diagnostics, counts and values as text."""

from collections.abc import Callable

import pytest

from gpuform.providers.values import UNKNOWN, PropertyMap, ResourceReference, Secret
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.review.history_text import render_diagnostics
from gpuform.stacks.review.paint import PLAIN
from gpuform.stacks.review.plan_text import render_output_changes
from gpuform.stacks.review.summary_text import render_resource_counts
from gpuform.stacks.review.value_text import (
    format_elapsed,
    format_inline,
    format_labelled,
    list_output_changes,
    render_outputs,
    short_type,
    to_display_value,
)

Golden = Callable[[str, str], None]

TRAIN = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"
STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


def test_outputs_are_rendered_with_masked_secrets(golden: Golden) -> None:
    outputs: PropertyMap = {
        "status": "Ready",
        "gpus": 16.0,
        "ratio": 0.5,
        "kubeconfig": Secret("apiVersion: v1"),
        "endpoint": UNKNOWN,
        "nothing": None,
        "cluster": {
            "@isPulumiResource": True,
            "name": "training-cluster-in-the-central-region",
            "credentials": {"user": "admin", "password": Secret("hunter2")},
            "nodes": ["10.0.0.1", "10.0.0.2", "10.0.0.3"],
        },
    }
    rendered = "\n".join(render_outputs(outputs))
    golden("outputs.txt", rendered)
    assert "hunter2" not in rendered
    assert "apiVersion" not in rendered


def test_secrets_are_shown_only_with_show_secrets() -> None:
    outputs: PropertyMap = {"a": Secret({"b": Secret("inner")}), "c": [Secret(1.0)]}
    assert to_display_value(outputs) == {"a": "[secret]", "c": ["[secret]"]}
    assert to_display_value(outputs, show_secrets=True) == {"a": {"b": "inner"}, "c": [1]}


def test_a_resource_reference_is_its_urn() -> None:
    assert to_display_value(ResourceReference(TRAIN, "c-1")) == TRAIN


def test_changed_outputs_are_rendered(golden: Golden) -> None:
    before: PropertyMap = {"same": 1.0, "status": "Ready", "old": "x", "token": Secret("one")}
    after: PropertyMap = {"same": 1.0, "status": UNKNOWN, "new": [1.0], "token": Secret("two")}
    rendered = "\n".join(render_output_changes(list_output_changes(before, after), PLAIN))
    golden("outputs_changes.txt", rendered)
    assert "same" not in rendered
    assert "one" not in rendered


def test_missing_outputs_render_nothing() -> None:
    assert list(render_outputs({})) == []
    same = list_output_changes({"a": 1.0, "b": Secret("x")}, {"a": 1.0, "b": Secret("x")})
    assert list(render_output_changes(same, PLAIN)) == []


def test_diagnostics_are_grouped_by_resource(golden: Golden) -> None:
    diagnostics = [
        Diagnostic("info", "hello from the program"),
        Diagnostic("error", "num_gpus must be a multiple of 8\ndeclare 8 or 16", TRAIN),
        Diagnostic("info", ""),
        Diagnostic("info#err", "Traceback (most recent call last):\n  File x", STACK),
        Diagnostic("warning", "H300 is no GPU type that gpuform knows", TRAIN),
    ]
    golden("diagnostics.txt", "\n".join(render_diagnostics(diagnostics)))


@pytest.mark.parametrize(
    ("counts", "errored", "expected"),
    [
        ({"create": 2}, 0, ["    + 2 to create"]),
        ({"create": 1, "same": 3}, 0, ["    + 1 to create", "    3 unchanged"]),
        (
            {"same": 1, "delete": 1, "replace": 1},
            0,
            ["    +-1 to replace", "    - 1 to delete", "    2 changes. 1 unchanged"],
        ),
        (
            {"update": 1, "delete": 1},
            0,
            ["    ~ 1 to update", "    - 1 to delete", "    2 changes"],
        ),
        ({"same": 2}, 1, ["    2 unchanged", "    1 errored"]),
        ({}, 2, ["    2 errored"]),
        ({}, 0, ["    nothing to do"]),
    ],
)
def test_resource_counts_are_rendered_as_by_pulumi(
    counts: dict[str, int], errored: int, expected: list[str]
) -> None:
    lines = list(render_resource_counts(counts, preview=True, errored=errored))
    assert lines == ["Resources:", *expected]


def test_counts_of_a_finished_run_are_in_the_past_tense() -> None:
    assert "    + 1 created" in render_resource_counts({"create": 1}, preview=False)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1s"), (45.4, "45s"), (200, "3m20s"), (3910, "1h05m10s"), (59.7, "1m00s")],
)
def test_durations_are_formatted_in_minutes_and_seconds(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("pulumi-python:dynamic/gpuform.together:Cluster", "together:Cluster"),
        ("pulumi-python:dynamic/lab:Machine", "lab:Machine"),
        ("pulumi-python:dynamic:Resource", "dynamic:Resource"),
        ("my:mod:Component", "my:mod:Component"),
    ],
)
def test_types_are_shortened_to_their_kind(type_: str, text: str) -> None:
    assert short_type(type_) == text


def test_values_are_formatted_on_one_line() -> None:
    assert format_inline({"a": [1.0, 1.5, True, None, 'q"'], "b": "[secret]"}) == (
        '{a: [1, 1.5, true, null, "q\\""], b: [secret]}'
    )
    assert format_inline(float("nan")) == "NaN"


def test_long_values_are_formatted_with_a_line_for_each_item() -> None:
    value = {"names": ["x" * 40, {"b": "y" * 40, "a": "z" * 40}], "n": 1}
    assert list(format_labelled("config:", value)) == [
        "config:",
        "  n: 1",
        "  names:",
        f'    - "{"x" * 40}"',
        f'    - a: "{"z" * 40}"',
        f'      b: "{"y" * 40}"',
    ]
