"""Test that `read` returns every input that a platform reports, so that its drift is noticed.

Each value of an answer that has an input's name is replaced by another one, and `read` has to
return another one. Values with such a name and another meaning are in
`KindDescription.unrelated_values`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import for_all
from conformance.operations import EngineOperations, Refused
from pydantic import BaseModel

from gpuform.providers.context import ProviderContext
from gpuform.schemas.rules import get_field_rules

Keys = tuple[str, ...]


def collect_values(answer: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Return the values of an answer at any depth by key path; list items have none."""
    if isinstance(answer, Mapping):
        for key, item in answer.items():
            yield from collect_values(item, (*keys, key))
    elif isinstance(answer, list):
        for item in answer:
            yield from collect_values(item, keys)
    elif answer is not None and keys:
        yield keys, answer


def collect_names(model: type[BaseModel]) -> Iterator[str]:
    """Return the names of inputs, at any depth."""
    for name, rules in get_field_rules(model).items():
        yield name
        if rules.nested:
            yield from collect_names(rules.nested)


def normalize_name(name: str) -> str:
    """Return a name in one spelling: platforms write `nodeData`, inputs `node_data`."""
    return name.replace("_", "").casefold()


def change_values(answer: Any, keys: Keys) -> Any:
    """Return the answer with other values under these keys."""
    if isinstance(answer, list):
        return [change_values(item, keys) for item in answer]
    if isinstance(answer, Mapping):
        first, rest = keys[0] if keys else "", keys[1:]
        return {
            key: change_values(item, rest) if key == first else item for key, item in answer.items()
        }
    if isinstance(answer, bool):
        return not answer
    if isinstance(answer, int | float):
        return answer + 1
    return answer if answer is None else f"{answer}-other"


@pytest.mark.slow
@pytest.mark.sampled(1)
@for_all
def test_every_reported_input_is_read(
    description: KindDescription,
    platform: Platform,
    new_call: Callable[[str, float | None], ProviderContext],
) -> None:
    verbs = EngineOperations(description.lifecycle, new_call, {})
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    inputs = description.lifecycle.inputs

    def read(declared: Mapping[str, Any]) -> list[Any]:
        """Read with stored outputs, with declared inputs and as an import; return the inputs."""
        result: list[Any] = []
        for known_values in (created.outputs, {**created.outputs, **declared}, {}):
            try:
                result.append(verbs.read(created.id, known_values).inputs)
            except Refused as refused:
                result.append(str(refused))
        return result

    answers: dict[str, Any] = {}
    with platform.rewrite_answers(lambda _method, path, answer: answers.setdefault(path, answer)):
        read({})
    names = {normalize_name(name): name for name in collect_names(inputs)}
    unread = set()
    for requests, answer in answers.items():
        for keys, value in dict(collect_values(answer)).items():
            name = names.get(normalize_name(keys[-1]))
            if name is None:
                continue
            declared = {name: value} if name in inputs.model_fields else {}
            before = read(declared)
            with platform.rewrite_answers(
                lambda _method, path, platform_answer, requests=requests, keys=keys: (
                    change_values(platform_answer, keys) if path == requests else platform_answer
                )
            ):
                if read(declared) == before:
                    unread.add(".".join(keys))
    assert unread == description.unrelated_values
