"""Render the page of the expressions that a topology's values hold."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.catalog import list_lookups, load_lookup
from gpuform.providers.platform import list_own_platforms
from gpuform.stacks.expressions.filters import FILTERS, METHODS
from gpuform.stacks.expressions.template import parse
from gpuform.stacks.language.type_text import yaml_text
from tools.reference.markdown import escape_prose, join_as_code, render_page, render_table

_LEAD: Final = """\
This page has the whole expression language of topologies: what a value can refer to, every filter,
and what is not allowed. Expressions are Jinja2's, without its statements.
"""
_WHERE: Final = """\
## Where expressions stand

A value may be an expression, or a text with expressions in it. YAML needs the quotes.

```yaml
clusters:
  train:
    platform: together
    num_gpus: "{{ config.gpus }}"              # an expression alone keeps the type of its value
    cluster_name: "train-{{ pulumi.stack }}"   # in a text, every value becomes text
```

* An expression alone keeps the type of its value: a number stays a number.
* In a text, lists and objects are written as JSON.
* These places hold no expressions: names and keys, `platform`, `options` as a whole, `config`,
  and the keys `file` and `name` under `include`.
* There are no statements (`{% ... %}`). Write a choice as `{{ a if b else c }}`. Declare several
  resources with `for_each`.

## References of other tools

A text that reads like a reference of Terraform, Pulumi YAML, GitHub Actions or ERB is a problem in
`validate`, `preview`, `up` and editors: `${shared_volumes.data.id}`, `${data.id}`, `${var.size}`,
`${{ ... }}`, `%{ if ... }`, `<%= ... %>`. The problem has the form to write instead. For the text
itself, write it as an expression, here and wherever braces are in the way:

```yaml
clusters:
  train:
    platform: tensorone
    environment_variables:
      PATTERN: "{{ '${spring.name}' }}"   # the container gets ${spring.name}
```

Variables of shells, such as `${HOME}`, are text. Scripts (texts of several lines, and properties
such as `init_script`) have variables of their own: there only `${shared_volumes.data.id}` and the
like, which name an entry of the topology, are problems.

Try one at once with [gpuform console](commands/files/console.md):

<!-- not run: it needs a project -->
```bash
gpuform console -e "config.gpus // 8"
```
"""
_ROOTS: Final = (
    ("config.NAME", "A value of the stack's configuration."),
    ("inputs.NAME", "In a module: what it is given."),
    ("modules.NAME.OUTPUT", "What a module gives out."),
    ("modules.NAME.KEY.OUTPUT", "The same of one instance of a module with `for_each`."),
    ("each.key", "The key of the instance of an entry with `for_each`."),
    ("each.value", "What `for_each` has under that key."),
    ("SECTION.NAME", "A resource. As a value it means its id, and a dependency."),
    ("SECTION.NAME.KEY", "One instance of an entry with `for_each`."),
    ("SECTION.NAME.PROPERTY", "What a resource gives out, or one of its own properties."),
    ("stack_references.NAME.OUTPUT", "An output of another stack."),
    ("pulumi.stack", "The name of the stack."),
    ("pulumi.project", "The name of the project."),
    ("PLATFORM.LOOKUP(...)", "What a platform has to offer: see [look-ups](#look-ups)."),
    ("range(N)", "The whole numbers from 0 to N - 1."),
)
_AFTER_ROOTS: Final = """\
A name with a hyphen goes into brackets: `{{ clusters['train-big'].status }}`.
"""
_KNOWN: Final = """\
## What is not known yet, and what is secret

* An output of a resource that does not exist yet is not known while gpuform plans. What is made of
  it becomes a Pulumi output. The plan shows it as `[known after apply]`.
* A resource that uses an output depends on the resource that it comes from.
* What is made of a secret is secret, too: no plan shows it, and the state has it encrypted.
* These have to be known while planning: `for_each`, `when`, the names under `stack_references` and
  most `options`. They may ask for no resource, no other stack and nothing secret.
* The options that name resources may ask for them: `depends_on`, `parent`, `deleted_with`,
  `replace_with`. So may `id` and `replacement_trigger`.
"""
_OPERATORS: Final = (
    ("+  -  *  /  //  %  **", "Numbers. `//` divides without a rest, `%` is the rest.", "17 // 8"),
    ("~", "Puts values together as text.", "'train-' ~ 2"),
    ("==  !=  <  <=  >  >=", "Comparisons.", "8 <= 16"),
    ("and  or  not", "Logic.", "true and not false"),
    ("in", "Whether a list, text or object has it.", "'H100' in 'H100_SXM'"),
    ("is", "A test of Jinja2, such as `defined`, `odd`, `divisibleby(8)`.", "24 is divisibleby(8)"),
    ("a if b else c", "A choice.", "'big' if 16 > 8 else 'small'"),
    ("[...]  {...}", "A list; an object.", "[1, 2][0]"),
    ("a.b  a['b']  a[0]  a[1:]", "An entry of an object; an item of a list.", "{'a': 1}.a"),
)
FILTER_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "abs": ("The number without its sign.", "-3 | abs"),
    "b64decode": ("The text of a Base64.", "'b2s=' | b64decode"),
    "b64encode": ("The Base64 of a text.", "'ok' | b64encode"),
    "capitalize": ("The first letter upper-case, the others lower-case.", "'aB' | capitalize"),
    "count": ("As `length`.", "[1, 2] | count"),
    "d": ("As `default`.", "missing | d(1)"),
    "default": (
        "Another value for what is not defined; with `true` also for what is empty.",
        "'' | default('none', true)",
    ),
    "dictsort": ("Keys and values of an object, sorted by key.", "{'b': 2, 'a': 1} | dictsort"),
    "first": ("The first item.", "['a', 'b'] | first"),
    "flatten": ("Lists in a list as one list.", "[[1, 2], [3]] | flatten"),
    "float": (
        "A number out of a text; refuses what is none, unless a default is given.",
        "'1.5' | float",
    ),
    "fromjson": ("The value of a JSON text.", "'[1, 2]' | fromjson"),
    "groupby": (
        "Items by the value of an attribute: pairs of the value and a list.",
        "[{'k': 'x', 'n': 1}, {'k': 'x', 'n': 2}] | groupby('k') | map('first') | list",
    ),
    "indent": ("The text with its lines moved to the right.", "'a\\nb' | indent(2)"),
    "int": ("A whole number; refuses what is none, unless a default is given.", "'12' | int"),
    "items": ("Keys and values of an object.", "{'a': 1} | items"),
    "join": ("Items as one text.", "['a', 'b'] | join('-')"),
    "last": ("The last item.", "['a', 'b'] | last"),
    "length": ("How many items, entries or characters.", "'abc' | length"),
    "list": ("A list of the items.", "'ab' | list"),
    "lower": ("The text in lower case.", "'AB' | lower"),
    "map": ("An attribute of each item, or a filter on each.", "[{'id': 7}] | map(attribute='id')"),
    "max": ("The greatest item.", "[1, 3, 2] | max"),
    "min": ("The least item.", "[1, 3, 2] | min"),
    "reject": ("The items for which a test does not hold.", "[1, 2] | reject('odd')"),
    "rejectattr": (
        "The items for whose attribute a test does not hold.",
        "[{'id': 7}, {'id': 8}] | rejectattr('id', 'eq', 7)",
    ),
    "replace": ("A text with a part replaced.", "'a-b' | replace('-', '_')"),
    "reverse": ("The items in the other order.", "[1, 2] | reverse"),
    "round": ("The number rounded, to so many digits.", "1.25 | round(1)"),
    "select": ("The items for which a test holds.", "[1, 2] | select('odd')"),
    "selectattr": (
        "The items for whose attribute a test holds.",
        "[{'id': 7}, {'id': 8}] | selectattr('id', 'eq', 7)",
    ),
    "sort": ("The items sorted.", "[2, 1] | sort"),
    "string": ("The value as text.", "true | string"),
    "sum": ("The sum of numbers.", "[1, 2.5] | sum"),
    "title": ("Each word with a capital.", "'a b' | title"),
    "tojson": ("The value as JSON.", "{'a': none} | tojson"),
    "trim": ("The text without spaces around it.", "' a ' | trim"),
    "unique": ("Each item once.", "[2, 1, 2] | unique"),
    "upper": ("The text in upper case.", "'ab' | upper"),
    "urlencode": ("The text as a part of a URL.", "'a b' | urlencode"),
}
"""What each filter does, and an example."""
_METHOD_TYPES: Final[Mapping[type, str]] = {str: "text", Mapping: "object"}
_REFUSED: Final = """\
## What is not allowed

An expression reaches values alone. It cannot read files, import, run for ever, or come out
otherwise in the next run.

* No statements, macros or assignments: `{% ... %}` is refused.
* No attributes of Python and no functions but `range` and the look-ups.
* No random values, no time, no regular expressions and no formatting to a width.
* `%` formats no text: put texts together with `~`.
* A text with expressions has at most 100,000 characters. What one evaluation makes is bounded, too:
  `the expression takes too many steps, or its result is too large` says so.
* A name that is not there is an error that names what is there. Use `default` where it may be
  missing: `{{ clusters.train.port_urls.get('8888', 'none') }}`.

Numbers and booleans in YAML are read strictly. Only `true` and `false` are booleans, and only plain
decimals are numbers: `no`, `1e3`, `007` and dates are the text that they look like.
"""


def render_expressions_page() -> str:
    """Return the page as Markdown."""
    return render_page("Expressions", _LEAD, _render_parts())


def _render_parts() -> Iterator[str]:
    yield _WHERE
    yield "## What a value can refer to"
    yield render_table(("reference", "means"), [(f"`{form}`", text) for form, text in _ROOTS])
    yield _AFTER_ROOTS
    yield _KNOWN
    yield "## Operators"
    rows = [
        (join_as_code(forms.split("  ")), text, f"`{each}`", f"`{_evaluate_example(each)}`")
        for forms, text, each in _OPERATORS
    ]
    yield render_table(("operator", "does", "example", "result"), rows)
    yield "## Filters"
    yield "A filter stands behind a value and a bar. Filters can follow each other."
    yield "\n".join(
        f"* `{name}`: {FILTER_TEXTS[name][0]} `{{{{ {FILTER_TEXTS[name][1]} }}}}` is "
        f"`{_evaluate_example(FILTER_TEXTS[name][1])}`"
        for name in sorted(FILTERS)
    )
    yield "## Methods"
    yield "They are Python's, of texts and of objects: `{{ 'a,b'.split(',') }}`."
    methods = [
        (_METHOD_TYPES[kind], join_as_code(sorted(names))) for kind, names in METHODS.items()
    ]
    yield render_table(("of a", "methods"), methods)
    yield "## Look-ups"
    yield (
        "A look-up asks the platform while gpuform plans, with the stack's key. `gpuform validate` "
        "asks nobody: there the result counts as not known.\n\n"
        "```yaml\nconfig:\n  region: {default: kr-west1}\noutputs:\n"
        "  image: \"{{ (scp.images('kr-west1') | selectattr('os_distro', 'eq', 'UBUNTU') | first)"
        '.id }}"\n```'
    )
    yield render_table(("look-up", "gives"), _lookup_rows())
    yield _REFUSED


def _evaluate_example(expression: str) -> str:
    value: Any = parse(f"{{{{ {expression} }}}}").evaluate({})
    return yaml_text(value)


def _lookup_rows() -> Iterator[tuple[str, str]]:
    for platform in list_own_platforms():
        for name in list_lookups(platform):
            function = load_lookup(platform, name)
            doc = (function.__doc__ or "").strip().partition("\n\n")[0]
            parameters = ", ".join(
                map(_format_parameter, inspect.signature(function).parameters.values())
            )
            yield f"`{platform}.{name}({parameters})`", escape_prose(doc)


def _format_parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name}={'none' if parameter.default is None else repr(parameter.default)}"
