"""Provide what the routes of all emulated platforms share: APIs, test controls, settings, answers.

The `routes` module of each platform derives its API from `PlatformApi` and its controls from
`PlatformControls`; `app` mounts both.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from flask import Blueprint, Request, Response, g, request
from pydantic import BaseModel, ConfigDict, ValidationError

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import FaultRule, Faults
from gpuform.providers.emulator.store import Store


def answer_json(content: object, status: int = 200) -> Response:
    """Return `content` as a JSON response, members in order."""
    encoded_content = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return Response(encoded_content, status, content_type="application/json")


def answer_validation_error(error: ValidationError) -> Response:
    """Answer 422 with every problem of `error`, and never with values, which may be secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    message = "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}" for problem in problems
    )
    return answer_json({"error": message}, 422)


_SETTINGS_KEY = "settings"


class PlatformSettings(BaseModel):
    """What tests can set of one platform, kept in the store under `kind`."""

    # A misspelled setting is an error, and not a setting without effect.
    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: ClassVar[str]

    @classmethod
    def load(cls, store: Store) -> Self:
        """Return the settings in `store`; the defaults where nothing was set."""
        stored_settings = store.get(cls.kind, _SETTINGS_KEY)
        return cls() if stored_settings is None else cls.model_validate_json(stored_settings)

    def save(self, store: Store) -> None:
        """Store the settings in place of earlier ones."""
        store.put(self.kind, _SETTINGS_KEY, self.model_dump_json())

    def to_public_dict(self) -> dict[str, Any]:
        """Return the settings as test controls show them; subclasses leave secrets out."""
        return self.model_dump(mode="json")


View = Callable[..., Response]
RouteTable = Iterable[tuple[str, str, View]]
"""Method, path and view of each route. Werkzeug prefers a fixed part to a `<part>`, in any order.
"""


class Refusal(Exception):
    """Raised where an API refuses a request; `status` is that of the answer.

    Each API gives the answer a form of its own (`PlatformApi._answer_refusal`).
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class FaultEffects:
    """The effects of the request's injected fault that change what an operation does."""

    is_stuck: bool = False
    is_out_of_stock: bool = False
    is_preempted: bool = False
    failing_pattern: str | None = None
    """A regular expression: objects created under a matching name fail later."""
    removed_first_pattern: str | None = None
    """A regular expression: nodes with a matching name are removed first."""
    is_rolled_back: bool = False


def get_fault_effects() -> FaultEffects:
    """Return the effects of the present request's injected fault; without a fault, no effects."""
    rule: FaultRule | None = g.get("fault")
    if rule is None:
        return FaultEffects()
    return FaultEffects(
        rule.stuck, rule.capacity, rule.preempted, rule.failing, rule.takes, rule.rolled_back
    )


@dataclass(frozen=True)
class FleetNode:
    """A machine with GPUs; `owner` is the cluster or fabric that the machine belongs to.

    `works` is whether jobs can run there, `is_billed` whether the platform charges its GPUs.
    """

    owner: str
    name: str
    gpus: int
    works: bool
    is_billed: bool


@dataclass(frozen=True)
class StoredData:
    """Storage with data of users; `label` names the storage and its size."""

    key: str
    label: str


@dataclass(frozen=True)
class Fleet:
    """What users have on a platform at one moment: machines with GPUs, and stored data."""

    nodes: Sequence[FleetNode] = ()
    data: Sequence[StoredData] = ()


class PlatformApi:
    """The API of one platform, as `app` mounts it at `prefix`."""

    name: ClassVar[str]
    prefix: ClassVar[str]

    def __init__(self, store: Store, clock: Clock, faults: Faults) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults

    def create_blueprint(self) -> Blueprint:
        """Return the routes of the API. Each view runs in one transaction of the store."""
        routes = Blueprint(self.name, __name__)
        routes.register_error_handler(Refusal, self._answer_refusal)
        for method, path, view in self._list_routes():
            routes.add_url_rule(
                path, view.__name__, self._wrap_in_transaction(view), methods=[method]
            )
        return routes

    def refuse_unauthorized(self, client_request: Request) -> Response | None:  # noqa: ARG002 - some ask for no key
        """Return the answer to a client without the right key, or None for any other client.

        This default lets everybody in.
        """
        return None

    def answer_error(self, status: int, message: str) -> Response:
        """Return the platform's answer for an error outside of views: an unknown route, a fault."""
        raise NotImplementedError

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the users' objects by kind, each with `id`, `name` and `status`."""
        raise NotImplementedError

    def describe_fleet(self) -> Fleet:
        """Return the nodes with GPUs and the stored data of the platform.

        This default has neither, for platforms that only describe machines.
        """
        return Fleet()

    def _list_routes(self) -> RouteTable:
        """Return the routes. Views get `_load_platform()` and the named parts of the path."""
        raise NotImplementedError

    def _load_platform(self) -> Any:
        """Return the platform's data at the clock's present time, for one view in a transaction."""
        raise NotImplementedError

    def _wrap_in_transaction(self, view: View) -> View:
        """Return a view that calls `view` with the platform's data, in a transaction of the store.

        An exception of `view` undoes all its changes.
        """

        def call_view(**path_values: str) -> Response:
            with self._store.transaction():
                return view(self._load_platform(), **path_values)

        return call_view

    def _answer_refusal(self, error: Any) -> Response:
        """Return the platform's answer for a `Refusal` raised by a view."""
        return self.answer_error(error.status, error.message)

    def _apply_status_overrides(
        self, views: list[dict[str, Any]], folder: str, *, key: str = "id", field: str = "status"
    ) -> list[tuple[dict[str, Any], FaultRule]]:
        """Set injected faults' statuses in `views`; return changed views, each with the fault.

        A fault for the request's own path changes all views. Counts the use of each fault. Views
        without a fault stay as they are.

        Args:
            views: objects of the answer, changed in place.
            folder: the path of the objects' collection, to which `key` is added.
            key: the member of a view that has the object's id.
            field: the member of a view that has the object's status.
        """
        by_path = {f"{folder}/{view[key]}": view for view in views}
        # A rule meets the request's own path or the path of an object in its answer, such as a
        # list's.
        path = request.path.removeprefix(self.prefix)
        overrides = self._faults.take_overrides(request.method, path, list(by_path), self.name)
        for object_path, rule in overrides.items():
            by_path[object_path][field] = rule.status_override
        return [(by_path[object_path], rule) for object_path, rule in overrides.items()]


class PlatformControls:
    """What tests do to a platform past its API, under `/_emulator/<name>`: JSON in and out."""

    settings: ClassVar[type[PlatformSettings] | None] = None
    """The class of the platform's settings; None where nothing can be set."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def create_blueprint(self) -> Blueprint:
        """Return the routes of the controls, with `/settings` where the platform has settings."""
        routes = Blueprint(type(self).__name__, __name__)
        routes.register_error_handler(ValidationError, answer_validation_error)
        routes.register_error_handler(Refusal, _answer_refusal)
        if (kind := self.settings) is not None:
            routes.add_url_rule("/settings", "show", partial(self._show_settings, kind))
            change = partial(self._change_settings, kind)
            routes.add_url_rule("/settings", "change", change, methods=["POST"])
        for method, path, view in self._list_routes():
            routes.add_url_rule(
                path, view.__name__, self._wrap_in_transaction(view), methods=[method]
            )
        return routes

    def _list_routes(self) -> RouteTable:
        """Return the routes. Views get the named parts of the path, in a transaction."""
        return ()

    def _wrap_in_transaction(self, view: View) -> View:
        """Return a view that calls `view` in a transaction, which an exception undoes."""

        def call_view(**path_values: str) -> Response:
            with self._store.transaction():
                return view(**path_values)

        return call_view

    def _show_settings(self, kind: type[PlatformSettings]) -> Response:
        """Answer the platform's settings without secrets."""
        return answer_json(kind.load(self._store).to_public_dict())

    def _change_settings(self, kind: type[PlatformSettings]) -> Response:
        """Set the settings that the body names, leave the others, and answer all settings.

        A named setting is replaced completely, not merged. Raises pydantic's ValidationError for an
        unknown or invalid setting, and changes nothing then.
        """
        new_settings = kind.model_validate_json(request.get_data())
        with self._store.transaction():
            # Only fields in the body: the defaults of the others must not overwrite what was set.
            changed = {name: getattr(new_settings, name) for name in new_settings.model_fields_set}
            kind.load(self._store).model_copy(update=changed).save(self._store)
        return self._show_settings(kind)


def _answer_refusal(error: Refusal) -> Response:
    """Return the answer of test controls for a `Refusal`: `{"error": message}`."""
    return answer_json({"error": error.message}, error.status)
