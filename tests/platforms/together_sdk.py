"""List the calls, parameters and answers of the installed `together` package, and gpuform's use.

`pages` writes the reference page from this module, `test_together_sdk` compares the use with the
code. Facts about the use are in together.yaml.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from platforms.documented import Answer, includes_path, list_leaf_paths, list_models, load_document
from pydantic import BaseModel
from together import Together
from typing_extensions import is_typeddict

from gpuform.providers.catalog import load_lifecycle_class

_ROOT: Final = "clusters"
"""The client's attribute with the calls of clusters, volumes, remediations and regions."""
_TRANSPORT_PARAMETERS: Final = frozenset(
    {"extra_headers", "extra_query", "extra_body", "timeout", "return"}
)
_SHOWN: Final = "shown"
"""Notes of together.yaml that begin with this word are of fields that decide nothing."""


SUPPORTED, SHOWN_ONLY, IGNORED = "supported", "shown only", "ignored"


class Use(NamedTuple):
    """What gpuform does with a call or field; `support` is one of the three words above."""

    support: str
    explanation: str


class UnknownField(Exception):
    """A call or field of the SDK that neither gpuform nor together.yaml knows; names it."""


@dataclass(frozen=True)
class SdkCall:
    """A method of the SDK's client, by its dotted name, such as `clusters.storage.create`."""

    name: str
    method: Callable[..., Any]

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Return the paths of the method's parameters, with the fields of nested ones."""
        hints = get_type_hints(self.method)
        paths = (
            _list_parameter_paths(hint, name)
            for name, hint in hints.items()
            if name not in _TRANSPORT_PARAMETERS
        )
        return tuple(dict.fromkeys(chain.from_iterable(paths)))

    @cached_property
    def answer(self) -> type[BaseModel]:
        """Return the model of the call's answer."""
        model = get_type_hints(self.method)["return"]
        assert issubclass(model, BaseModel)
        return model


def list_sdk_calls() -> list[SdkCall]:
    """Return every call of `client.clusters` and of the resources below it."""
    return [*walk_resource(_ROOT, type(Together(api_key="unused").clusters))]


def walk_resource(name: str, resource: type) -> Iterator[SdkCall]:
    """Yield the calls of a class of the SDK, then those of the resources that it has."""
    nested: dict[str, type] = {}
    for member_name, member in vars(resource).items():
        if member_name.startswith("_") or "_response" in member_name:
            continue  # wrappers of the same calls
        if inspect.isfunction(member):
            yield SdkCall(f"{name}.{member_name}", member)
        elif getter := getattr(member, "func", getattr(member, "fget", None)):
            nested[f"{name}.{member_name}"] = get_type_hints(
                getter, vars(inspect.getmodule(resource))
            )["return"]
    for nested_name, nested_resource in nested.items():
        yield from walk_resource(nested_name, nested_resource)


def _list_parameter_paths(annotation: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields of a parameter's TypedDict; the path itself without one."""
    inner = [*list_typed_dicts(annotation)]
    if not inner:
        yield path
    for typed_dict in inner:
        for name, field_type in get_type_hints(typed_dict).items():
            yield from _list_parameter_paths(field_type, f"{path}.{name}")


def list_typed_dicts(annotation: Any) -> Iterator[Any]:
    """Yield the outermost TypedDicts of an annotation, such as that of a list's items."""
    if is_typeddict(annotation):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from list_typed_dicts(argument)


class SdkUse:
    """What gpuform does with each call and field of the SDK, by together.yaml and the code."""

    def __init__(self) -> None:
        document = load_document("together")
        self.facts: Mapping[str, Any] = document.content
        self._answers = {answer.model: answer for answer in document.answers}

    @property
    def _places(self) -> Mapping[str, Mapping[str, str]]:
        """Return where together.yaml describes the fields of an SDK model, by its name."""
        places: Mapping[str, Mapping[str, str]] = self.facts["sdk"]["models"]
        return places

    @property
    def version(self) -> str:
        """Return the version of the package that together.yaml was compared with."""
        return str(self.facts["sdk"]["version"])

    def describe_call(self, call: SdkCall) -> Use:
        """Return gpuform's use of a call. Raises UnknownField."""
        if used := self._find_used_call(call):
            return Use(SUPPORTED, used["use"])
        return Use(IGNORED, self._find_unused_call(call)["why"])

    def get_http_call(self, call: SdkCall) -> str:
        """Return method and path of a call. Raises UnknownField."""
        return str((self._find_used_call(call) or self._find_unused_call(call))["call"])

    def describe_parameter(self, call: SdkCall, path: str) -> Use:
        """Return gpuform's use of a call's parameter. Raises UnknownField."""
        used = self._find_used_call(call)
        if used is None:
            return Use(IGNORED, f"gpuform does not send `{call.name}`")
        notes = self.facts["sdk"]["parameters"].get(call.name, {})
        if path in notes:
            return Use(SUPPORTED, notes[path])
        kind = self.facts["sent"].get(used["call"], {}).get("kind")
        if kind and path in list_leaf_paths(load_lifecycle_class("together", kind).inputs):
            return Use(SUPPORTED, f"the input `{path}` of `{kind}`")
        raise UnknownField(f"together: the parameter {path} of {call.name} is not known")

    def list_answers(self) -> dict[type[BaseModel], list[SdkCall]]:
        """Return the models that calls answer, also within lists, each with its calls."""
        answers: dict[type[BaseModel], list[SdkCall]] = {}
        for call in list_sdk_calls():
            fields = call.answer.model_fields.values()
            nested = [item for field in fields for item in list_models(field.annotation)]
            items = [item for item in nested if item.__name__ in self._places]
            is_listed = call.answer.__name__ in self._places
            for model in [call.answer, *(() if is_listed else items)]:
                answers.setdefault(model, []).append(call)
        return answers

    def list_fields(self, model: type[BaseModel], before: str = "") -> Iterator[str]:
        """Yield the paths of a model's fields, without those of another model in together.yaml."""
        for name, field in model.model_fields.items():
            inner = [*list_models(field.annotation)]
            for item in inner:
                if item.__name__ not in self._places:
                    yield from self.list_fields(item, f"{before}{name}.")
            if not inner:
                yield before + name

    def describe_field(self, model: type[BaseModel], path: str) -> Use:
        """Return gpuform's use of a field of an SDK model. Raises UnknownField."""
        label = f"{model.__name__}.{path}"
        if reason := self.facts["sdk"]["ignored fields"].get(label):
            return Use(IGNORED, reason)
        place = self._places.get(model.__name__)
        if place is None:
            raise UnknownField(f"together: the field {label} is not known")
        answer = self._answers[place["model"]]
        path_in_answer = ".".join(filter(None, (place.get("at"), path)))
        return _describe_answer_field(answer, path_in_answer, label)

    def _find_used_call(self, call: SdkCall) -> Mapping[str, Any] | None:
        used = (used for used in self.facts["calls"] if used.get("sdk") == call.name)
        return next(used, None)

    def _find_unused_call(self, call: SdkCall) -> Mapping[str, Any]:
        for unused in self.facts["unsupported calls"]:
            if unused["sdk"] == call.name:
                return dict(unused)
        raise UnknownField(f"together: the call {call.name} is not known")


def _describe_answer_field(answer: Answer, path: str, label: str) -> Use:
    """Return gpuform's use of a field of an object that together.yaml describes."""
    declared, reported, used, dropped = (
        next((note for pattern, note in part.items() if includes_path(pattern, path)), None)
        for part in (answer.declared, answer.reported, answer.used, answer.dropped)
    )
    texts = [
        *([f"input `{declared}`"] if declared else []),
        *([f"output `{reported}`"] if reported else []),
        *([used] if used else []),
    ]
    if declared or (used and not used.startswith(_SHOWN)):
        return Use(SUPPORTED, "; ".join(texts))
    if texts:
        return Use(SHOWN_ONLY, "; ".join(texts))
    if dropped:
        return Use(IGNORED, dropped)
    raise UnknownField(f"together: the field {label} is not known")
