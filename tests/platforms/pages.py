"""Write docs/reference/platforms from the platforms' documents and from the code.

python tests/platforms/pages.py
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from platforms.documented import (  # noqa: E402
    NAMES,
    Answer,
    Documented,
    includes_path,
    list_leaf_paths,
    load_document,
)
from platforms.together_sdk import IGNORED, SHOWN_ONLY, SUPPORTED, SdkUse, list_sdk_calls  # noqa: E402
from pydantic.alias_generators import to_camel  # noqa: E402

from tools.reference.markdown import escape_prose, join_as_code, render_table  # noqa: E402

FOLDER: Final = ROOT / "docs" / "reference" / "platforms"
MARK: Final = "<!-- Generated: python tests/platforms/pages.py -->"
SDK_PAGE: Final = "together-sdk.md"
REAL: Final = "real client"
_PROOFS: Final[Mapping[str, str]] = {
    REAL: "The platform's own client, from a package index, works with gpuform's emulator, and so "
    "does gpuform's own client. So the emulator behaves as the platform's client expects.",
    "emulator": "gpuform's client works with gpuform's emulator. Both were written from the "
    "platform's document.",
    "document": "gpuform reads the example of the platform's document, field by field.",
}


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in render_pages():
        (FOLDER / name).write_text(content, encoding="utf-8")


def render_pages() -> Iterator[tuple[str, str]]:
    """Yield each page's file name and text."""
    yield "index.md", _join(_render_index([load_document(item) for item in NAMES]))
    for name in NAMES:
        yield f"{name}.md", _join(_render_page(load_document(name)))
    yield SDK_PAGE, _join(_render_sdk_page(SdkUse()))


def find_proof(call: Mapping[str, Any]) -> str:
    """Return the kind of test behind a call of gpuform."""
    if REAL in call:
        return f"{REAL}, emulator"
    return "emulator, document" if "document" in call else "emulator"


def _join(parts: Iterator[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _render_index(platforms: Sequence[Documented]) -> Iterator[str]:
    yield "# Platforms"
    yield MARK
    yield (
        "These pages list the documented calls, fields and states of each platform's API, whether "
        "and how gpuform supports them, and what proves it."
    )
    yield render_table(
        ["platform", "calls", "supported", "fields of answers", "shown", "used", "dropped"],
        [_count_fields(platform) for platform in platforms],
    )
    yield (
        "*Shown* fields are inputs or outputs of a resource. *Used* fields influence decisions. "
        "gpuform does not use *dropped* ones; many of them are in the result of a "
        "[lookup](../expressions.md)."
    )
    yield "## What the words mean"
    yield render_table(["proven against", "means"], _PROOFS.items())
    yield (
        "**gpuform was not tested with real accounts of these platforms.** If you are the first, "
        "begin with `gpuform doctor` and `gpuform preview`, which change nothing."
    )
    yield "## How tests check these pages"
    yield (
        "The pages are generated from `tests/platforms/*.yaml` and from the code. Tests send every "
        "listed call and compare method and path, and check that no method of a client is missing. "
        "They compare the listed fields with the models of the answers, and the inputs and outputs "
        "with those of the resources. If a newer SDK of Together has another call, parameter or "
        "field, a test fails and names it. Tests change each field of a cluster, a node, a record "
        "and an overview in turn, and check whether gpuform's output changes with it. The states "
        "come from the tables that gpuform uses while it waits."
    )


def _count_fields(platform: Documented) -> list[str]:
    calls = len(platform.content["calls"])
    rest = len(platform.content["unsupported calls"])
    reported_count = used = dropped = 0
    for answer in platform.answers:
        for path in list_leaf_paths(answer.wire_model):
            if _is_in(path, {**answer.declared, **answer.reported}):
                reported_count += 1
            elif _is_in(path, answer.used):
                used += 1
            else:
                dropped += 1
    name = f"[{platform.content['title']}]({platform.name}.md)"
    numbers = (calls + rest, calls, reported_count + used + dropped, reported_count, used, dropped)
    return [name, *map(str, numbers)]


def _render_page(platform: Documented) -> Iterator[str]:
    facts = platform.content
    yield f"# {facts['title']}: supported API"
    yield MARK
    yield (
        f"This page says how gpuform uses each documented call, field and state of "
        f"{facts['title']}. Its source is {facts['document']}. "
        f"[Start](../../start/{platform.name}.md) shows the first steps."
    )
    if "sdk" in facts:
        yield (
            f"[Calls and fields of the SDK]({SDK_PAGE}) lists every parameter of the SDK and every "
            "field of its answers."
        )
    yield "## Calls"
    rows = [[_format_code(e["call"]), e["does"], e["use"], find_proof(e)] for e in facts["calls"]]
    yield render_table(["call", "what it does", "use in gpuform", "proven against"], rows)
    yield "\n".join(
        f"* **{kind.capitalize()}:** {escape_prose(proof)}"
        for kind, proof in facts["proofs"].items()
    )
    if rest := facts["unsupported calls"]:
        yield "Not supported:"
        yield render_table(
            ["call", "what it does", "why not"],
            [[_format_code(note["call"]), note["does"], note["why"]] for note in rest],
        )
    yield "## What gpuform sends"
    yield (
        "The pages of the [resources](../resources/index.md) describe the inputs that these fields "
        "come from."
    )
    for call, sent in facts["sent"].items():
        yield f"### {_format_code(call)}"
        yield render_table(["documented field", "comes from"], [*_render_sent(sent["fields"])])
        if more := sent.get("sdk"):
            yield f"Only in the SDK, each from the input of the same name: {join_as_code(more)}."
    yield "## What gpuform reads"
    for answer in platform.answers:
        yield f"### {answer.model}"
        if answer.lookup:
            yield f"The lookup `{answer.lookup}` returns all fields."
        yield render_table(["field", "how gpuform uses it"], [*_render_read(answer)])
    yield from _render_states(platform)
    if notes := facts["notes"]:
        yield "## Notes"
        yield "\n".join(f"* {escape_prose(note)}" for note in notes)


def _render_sdk_page(sdk: SdkUse) -> Iterator[str]:
    """Yield the parts of the page on the calls, parameters and answers of Together's SDK."""
    calls = list_sdk_calls()
    call_rows = [
        [f"`{call.name}`", f"`{sdk.get_http_call(call)}`", *sdk.describe_call(call)]
        for call in calls
    ]
    parameter_rows = {
        call.name: [[f"`{path}`", *sdk.describe_parameter(call, path)] for path in call.parameters]
        for call in calls
    }
    field_rows = {
        model: [[f"`{path}`", *sdk.describe_field(model, path)] for path in sdk.list_fields(model)]
        for model in sdk.list_answers()
    }
    yield "# Together AI: calls and fields of the SDK"
    yield MARK
    yield (
        f"This page lists every call, parameter and field of an answer in the package `together` "
        f"{sdk.version} that concerns clusters, shared volumes, repairs and regions, and what "
        f"gpuform does with it. [Together AI](together.md) describes the calls and the states."
    )
    yield (
        "*Supported* parameters come from an input or from gpuform. *Supported* fields of an "
        "answer are compared with an input, or influence decisions. *Shown only* fields are in "
        "outputs, plans, `status` or reviews. gpuform ignores the others, for the given reason."
    )
    yield render_table(
        ["", SUPPORTED, SHOWN_ONLY, IGNORED],
        [
            ["calls", *_count_supports(call_rows)],
            ["parameters", *_count_supports([*chain.from_iterable(parameter_rows.values())])],
            ["fields of answers", *_count_supports([*chain.from_iterable(field_rows.values())])],
        ],
    )
    yield "## Calls of the SDK"
    yield render_table(["call", "request", "support", "use, or why not"], call_rows)
    yield "## Parameters"
    for name, rows in parameter_rows.items():
        if rows:
            yield f"### `{name}`"
            yield render_table(["parameter", "support", "comes from, or why not"], rows)
    yield "## Fields of answers"
    for model, answering_calls in sdk.list_answers().items():
        if rows := field_rows[model]:
            yield f"### {model.__name__}"
            yield f"Answer of {join_as_code([call.name for call in answering_calls])}."
            yield render_table(["field", "support", "use, or why not"], rows)


def _count_supports(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return how many rows have each of the three words of support, as texts."""
    supports = Counter(support for *_, support, _ in rows)
    return [str(supports[word]) for word in (SUPPORTED, SHOWN_ONLY, IGNORED)]


def _format_code(call: str) -> str:
    return f"`{call}`" if call.split(maxsplit=1)[0].isupper() or call.startswith("/") else call


def _render_sent(fields: Sequence[str | Mapping[str, str]]) -> Iterator[list[str]]:
    for field in fields:
        if isinstance(field, str):
            yield [f"`{field}`", "the input of the same name"]
        else:
            for name, description in field.items():
                yield [f"`{name}`", description]


def _render_read(answer: Answer) -> Iterator[list[str]]:
    """Yield a row for each field; fields listed together in the YAML file share a row."""
    listed_fields: set[str] = set()
    parts = (answer.declared, answer.reported, answer.used, answer.dropped)
    for path in list_leaf_paths(answer.wire_model):
        pattern = next(item for part in parts for item in part if includes_path(item, path))
        if pattern not in listed_fields:
            listed_fields.add(pattern)
            yield [
                f"`{_get_documented_name(answer, pattern)}`",
                "; ".join(_describe_use(answer, pattern)),
            ]


def _get_documented_name(answer: Answer, pattern: str) -> str:
    """Return a field by the platform's name, which may be in camelCase."""
    if "alias_generator" not in answer.wire_model.model_config:
        return pattern
    names = pattern.split(".")
    return ".".join("_id" if name == "object_id" else to_camel(name) for name in names)


def _describe_use(answer: Answer, pattern: str) -> Iterator[str]:
    if pattern in answer.declared:
        yield f"input {join_as_code([answer.declared[pattern]])} of `{answer.kind}`"
    if pattern in answer.reported:
        yield f"output {join_as_code([answer.reported[pattern]])} of `{answer.kind}`"
    if pattern in answer.used:
        yield answer.used[pattern]
    if pattern in answer.dropped:
        why = answer.dropped[pattern]
        yield f"**dropped**: {why}" if why else "**dropped**"


def _is_in(path: str, patterns: Mapping[str, str]) -> bool:
    return any(includes_path(pattern, path) for pattern in patterns)


def _render_states(platform: Documented) -> Iterator[str]:
    for states in platform.states:
        yield f"## States of {states.of}"
        yield render_table(
            ["state", "while gpuform waits"],
            [[f"`{state}`", str(meaning)] for state, meaning in states.meanings.items()],
        )
        yield f"In any other state {states.unknown}."


if __name__ == "__main__":
    main()
