"""Intents of creates, when the resources get other URNs: they go along, so that no id is lost."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuform.providers.intents import Intent, Intents


@contextmanager
def intents_follow(project: Path, names: Mapping[str, str]) -> Iterator[None]:
    """Around the writing of a state in which URNs change, old -> new.

    Both are on disk meanwhile; in the end those of the state that was written.
    """
    intents = Intents(project / ".gpuform" / "intents")
    old = [intent for intent in intents.all() if intent.urn in names]
    new = [replace(intent, urn=names[intent.urn]) for intent in old if intent.urn]
    for intent in new:
        intents.record(intent)
    try:
        yield
    except BaseException:
        _forget(intents, new)
        raise
    _forget(intents, old)


def _forget(intents: Intents, gone: list[Intent]) -> None:
    for intent in gone:
        intents.forget(intent=intent)
