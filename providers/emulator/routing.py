"""Derive the routes of every emulated platform: blueprints, settings and JSON answers."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from flask import Blueprint, Request, Response, g, request
from pydantic import BaseModel, ConfigDict, ValidationError

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults, Rule
from gpuform.providers.emulator.store import Store


def answer(content: object, status: int = 200) -> Response:
    """`content` as JSON in the order given."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, content_type="application/json")


def invalid(error: ValidationError) -> Response:
    """422, with what is wrong and never the values."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}" for problem in problems
    )
    return answer({"error": told}, 422)


_ONLY = "settings"


class Settings(BaseModel):
    """Those of one platform, kept in the store under `kind`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: ClassVar[str]

    @classmethod
    def load(cls, store: Store) -> Self:
        kept = store.get(cls.kind, _ONLY)
        return cls() if kept is None else cls.model_validate_json(kept)

    def keep(self, store: Store) -> None:
        store.put(self.kind, _ONLY, self.model_dump_json())

    def shown(self) -> dict[str, Any]:
        """What everybody may see of them."""
        return self.model_dump(mode="json")


View = Callable[..., Response]
Table = Iterable[tuple[str, str, View]]
"""Method, path and view. Werkzeug prefers a fixed part to a `<part>`, whatever the order."""


class Refusal(Exception):
    """What an API refuses, and the status of its answer. Each API has a form of its own for it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Trouble:
    """The injected faults that change what an operation does."""

    is_stuck: bool = False
    is_out_of_stock: bool = False
    is_preempted: bool = False
    failing: str | None = None
    """A regular expression: what is made under such a name fails later."""
    takes: str | None = None
    """A regular expression: nodes of such names leave first."""


def trouble() -> Trouble:
    """That of the request that is answered."""
    rule: Rule | None = g.get("fault")
    if rule is None:
        return Trouble()
    return Trouble(rule.stuck, rule.capacity, rule.preempted, rule.failing, rule.takes)


class Api:
    """A platform's API as the app mounts it."""

    name: ClassVar[str]
    prefix: ClassVar[str]

    def __init__(self, store: Store, clock: Clock, faults: Faults) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults

    def blueprint(self) -> Blueprint:
        routes = Blueprint(self.name, __name__)
        routes.register_error_handler(Refusal, self._refused)
        for method, path, view in self._routes():
            routes.add_url_rule(path, view.__name__, self._in_one_moment(view), methods=[method])
        return routes

    def refusal(self, asked: Request) -> Response | None:  # noqa: ARG002 - some ask for no key
        """The answer to who may not ask."""
        return None

    def error(self, status: int, message: str) -> Response:
        raise NotImplementedError

    def objects(self) -> dict[str, list[dict[str, Any]]]:
        """What people have there, by kind: `id`, `name` and `status` of each."""
        raise NotImplementedError

    def _routes(self) -> Table:
        """The views are given what `_moment` returns, and the named parts of the path."""
        raise NotImplementedError

    def _moment(self) -> Any:
        """The platform at the time of the request, within its transaction."""
        raise NotImplementedError

    def _in_one_moment(self, view: View) -> View:
        """The view as Flask calls it: alone, and undone as a whole when it raises."""

        def whole(**keys: str) -> Response:
            with self._store.transaction():
                return view(self._moment(), **keys)

        return whole

    def _refused(self, error: Any) -> Response:
        return self.error(error.status, error.message)

    def _impose(
        self, views: list[dict[str, Any]], folder: str, *, key: str = "id", field: str = "status"
    ) -> list[tuple[dict[str, Any], Rule]]:
        """Shows the status that injected faults impose; the views, each with its fault."""
        by_path = {f"{folder}/{view[key]}": view for view in views}
        path = request.path.removeprefix(self.prefix)
        overrides = self._faults.take_overrides(request.method, path, list(by_path), self.name)
        for own, rule in overrides.items():
            by_path[own][field] = rule.status_override
        return [(by_path[own], rule) for own, rule in overrides.items()]


class Controls:
    """What tests do to a platform past its API, under `/_emulator/<name>`: JSON in and out."""

    settings: ClassVar[type[Settings] | None] = None
    """What can be set, where something can."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def blueprint(self) -> Blueprint:
        routes = Blueprint(type(self).__name__, __name__)
        routes.register_error_handler(ValidationError, invalid)
        routes.register_error_handler(Refusal, _refused)
        if (kind := self.settings) is not None:
            routes.add_url_rule("/settings", "show", partial(self._show_settings, kind))
            change = partial(self._change_settings, kind)
            routes.add_url_rule("/settings", "change", change, methods=["POST"])
        for method, path, view in self._routes():
            routes.add_url_rule(path, view.__name__, self._in_one_moment(view), methods=[method])
        return routes

    def _routes(self) -> Table:
        """The views are given the named parts of the path, within a transaction."""
        return ()

    def _in_one_moment(self, view: View) -> View:
        def whole(**keys: str) -> Response:
            with self._store.transaction():
                return view(**keys)

        return whole

    def _show_settings(self, kind: type[Settings]) -> Response:
        return answer(kind.load(self._store).shown())

    def _change_settings(self, kind: type[Settings]) -> Response:
        """Those given, each one as a whole; the others stay."""
        given = kind.model_validate_json(request.get_data())
        with self._store.transaction():
            changed = {name: getattr(given, name) for name in given.model_fields_set}
            kind.load(self._store).model_copy(update=changed).keep(self._store)
        return self._show_settings(kind)


def _refused(error: Refusal) -> Response:
    return answer({"error": error.message}, error.status)
