"""Whatever a platform's answer says of an input, `read` brings: or nobody would see it drift.

Each value of an answer that has an input's name is put in the place of another one, and `read` has
to tell. What has such a name and says something else is in `Described.unlike`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from conformance.described import Described
from conformance.emulated import Platform
from conformance.kinds import for_all
from conformance.verbs import EngineVerbs, Refused
from pydantic import BaseModel

from gpuform.providers.context import ProviderContext
from gpuform.schemas.rules import get_field_rules

Keys = tuple[str, ...]


def values_in(answer: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """What an answer says at any depth, by the keys that lead there; items of lists have none."""
    if isinstance(answer, Mapping):
        for key, item in answer.items():
            yield from values_in(item, (*keys, key))
    elif isinstance(answer, list):
        for item in answer:
            yield from values_in(item, keys)
    elif answer is not None and keys:
        yield keys, answer


def names_in(model: type[BaseModel]) -> Iterator[str]:
    """The names of inputs, at any depth."""
    for name, rules in get_field_rules(model).items():
        yield name
        if rules.nested:
            yield from names_in(rules.nested)


def spelled(name: str) -> str:
    """A name in one spelling: platforms write `nodeData`, inputs `node_data`."""
    return name.replace("_", "").casefold()


def changed(answer: Any, keys: Keys) -> Any:
    """The answer with other values at these keys."""
    if isinstance(answer, list):
        return [changed(item, keys) for item in answer]
    if isinstance(answer, Mapping):
        first, rest = keys[0] if keys else "", keys[1:]
        return {key: changed(item, rest) if key == first else item for key, item in answer.items()}
    if isinstance(answer, bool):
        return not answer
    if isinstance(answer, int | float):
        return answer + 1
    return answer if answer is None else f"{answer}-other"


@pytest.mark.slow
@pytest.mark.sampled(1)
@for_all
def test_every_input_that_is_returned_is_read(
    described: Described,
    platform: Platform,
    new_call: Callable[[str, float | None], ProviderContext],
) -> None:
    verbs = EngineVerbs(described.lifecycle, new_call, {})
    made = verbs.create(verbs.check(described.good).inputs)
    inputs = described.lifecycle.inputs

    def read(declared: Mapping[str, Any]) -> list[Any]:
        """What is declared, what else would be, and what an import finds."""
        found: list[Any] = []
        for known in (made.outputs, {**made.outputs, **declared}, {}):
            try:
                found.append(verbs.read(made.id, known).inputs)
            except Refused as refused:
                found.append(str(refused))
        return found

    answers: dict[str, Any] = {}
    with platform.answering(lambda _method, path, answer: answers.setdefault(path, answer)):
        read({})
    names = {spelled(name): name for name in names_in(inputs)}
    unread = set()
    for asked, answer in answers.items():
        for keys, value in dict(values_in(answer)).items():
            name = names.get(spelled(keys[-1]))
            if name is None:
                continue
            declared = {name: value} if name in inputs.model_fields else {}
            before = read(declared)
            with platform.answering(
                lambda _method, path, told, asked=asked, keys=keys: (
                    changed(told, keys) if path == asked else told
                )
            ):
                if read(declared) == before:
                    unread.add(".".join(keys))
    assert unread == described.unlike
