"""Render the page of the expressions that a topology's values hold."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.catalog import list_lookups, load_lookup
from gpuform.providers.platform import list_own_platforms
from gpuform.stacks.expressions.sandbox import FILTERS, METHODS
from gpuform.stacks.expressions.template import parse
from gpuform.stacks.lsp.vocabulary import render_yaml_value
from tools.reference.markdown import escape_prose, join_as_code, render_page, render_table

_LEAD: Final = """\
This page describes the expression language of topologies: what a value can refer to, every filter,
and what is not allowed. Expressions are those of Jinja2, without its statements.
"""
_WHERE: Final = """\
## Where expressions are allowed

A value may be an expression, or text that contains expressions. YAML needs the quotes.

```yaml
clusters:
  train:
    platform: together
    num_gpus: "{{ config.gpus }}"              # an expression alone keeps the type of its value
    cluster_name: "train-{{ pulumi.stack }}"   # in a text, every value becomes text
```

* An expression alone keeps the type of its value: a number stays a number.
* In a text, lists and objects are written as JSON.
* These cannot be expressions: names and keys, `platform`, `options` as a whole, `config`,
  and the keys `file` and `name` under `include`.
* There are no statements (`{% ... %}`). Write a condition as `{{ a if b else c }}`. Declare several
  resources with `for_each`.

## References of other tools

Text that looks like a reference of Terraform, Pulumi YAML, GitHub Actions or ERB is an error in
`validate`, `preview`, `up` and editors: `${shared_volumes.data.id}`, `${data.id}`, `${var.size}`,
`${{ ... }}`, `%{ if ... }`, `<%= ... %>`. The error shows what to write instead. If you
want the text itself, write it as an expression, here and wherever braces cause problems:

```yaml
clusters:
  train:
    platform: tensorone
    environment_variables:
      PATTERN: "{{ '${spring.name}' }}"   # the container gets ${spring.name}
```

Shell variables, such as `${HOME}`, are text. Scripts (multi-line text, and properties such as
`init_script`) have their own variables: there only references that name an entry of the topology,
such as `${shared_volumes.data.id}`, are errors.

Try an expression with [gpuform console](commands/files/console.md):

<!-- not run: it needs a project -->
```bash
gpuform console -e "config.gpus // 8"
```
"""
_ROOTS: Final = (
    ("config.NAME", "A value of the stack's configuration."),
    ("inputs.NAME", "In a module: the value of an input."),
    ("modules.NAME.OUTPUT", "An output of a module."),
    ("modules.NAME.KEY.OUTPUT", "An output of one instance of a module with `for_each`."),
    ("each.key", "The key of the instance of an entry with `for_each`."),
    ("each.value", "The value of `for_each` at this key."),
    ("SECTION.NAME", "A resource. As a value: the resource's id, with a dependency on it."),
    ("SECTION.NAME.KEY", "One instance of an entry with `for_each`."),
    ("SECTION.NAME.PROPERTY", "An output of a resource, or one of its inputs."),
    ("stack_references.NAME.OUTPUT", "An output of another stack."),
    ("pulumi.stack", "The name of the stack."),
    ("pulumi.project", "The name of the project."),
    ("PLATFORM.LOOKUP(...)", "Data of a platform: see [look-ups](#look-ups)."),
    ("range(N)", "The whole numbers from 0 to N - 1."),
)
_AFTER_ROOTS: Final = """\
Write a name with a hyphen in brackets: `{{ clusters['train-big'].status }}`.
"""
_KNOWN: Final = """\
## Unknown and secret values

* The outputs of a resource that does not exist yet are unknown while gpuform plans. Every value
  computed from one is a Pulumi output. The plan shows it as `[known after apply]`.
* A resource that uses an output depends on the resource that has the output.
* A value computed from a secret is secret, too: no plan shows it, and the state has it encrypted.
* These values must be known while gpuform plans: `for_each`, `when`, the names under
  `stack_references` and most `options`. They cannot refer to resources, other stacks or secrets.
* The options that name resources may refer to them: `depends_on`, `parent`, `deleted_with`,
  `replace_with`. So may `id` and `replacement_trigger`.
"""
_OPERATORS: Final = (
    (
        "+  -  *  /  //  %  **",
        "Arithmetic. `//` is integer division, `%` is the remainder.",
        "17 // 8",
    ),
    ("~", "Joins values as text.", "'train-' ~ 2"),
    ("==  !=  <  <=  >  >=", "Comparisons.", "8 <= 16"),
    ("and  or  not", "Logic.", "true and not false"),
    ("in", "Whether a list, text or object contains the value.", "'H100' in 'H100_SXM'"),
    ("is", "A test of Jinja2, such as `defined`, `odd`, `divisibleby(8)`.", "24 is divisibleby(8)"),
    (
        "a if b else c",
        "The first value if the condition is true, else the second.",
        "'big' if 16 > 8 else 'small'",
    ),
    ("[...]  {...}", "A list; an object.", "[1, 2][0]"),
    ("a.b  a['b']  a[0]  a[1:]", "An entry of an object; an item of a list.", "{'a': 1}.a"),
)
FILTER_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "abs": ("The number without its sign.", "-3 | abs"),
    "b64decode": ("The decoded text of a Base64 string.", "'b2s=' | b64decode"),
    "b64encode": ("The text encoded as Base64.", "'ok' | b64encode"),
    "capitalize": ("The first letter upper-case, the others lower-case.", "'aB' | capitalize"),
    "count": ("As `length`.", "[1, 2] | count"),
    "d": ("As `default`.", "missing | d(1)"),
    "default": (
        "Another value if the value is undefined; with `true` also if it is empty.",
        "'' | default('none', true)",
    ),
    "dictsort": ("Keys and values of an object, sorted by key.", "{'b': 2, 'a': 1} | dictsort"),
    "first": ("The first item.", "['a', 'b'] | first"),
    "flatten": ("Nested lists as one list.", "[[1, 2], [3]] | flatten"),
    "float": (
        "The text as a number. An error for other text, unless you give a default.",
        "'1.5' | float",
    ),
    "fromjson": ("The value of JSON text.", "'[1, 2]' | fromjson"),
    "groupby": (
        "Items grouped by an attribute: pairs of its value and a list of items.",
        "[{'k': 'x', 'n': 1}, {'k': 'x', 'n': 2}] | groupby('k') | map('first') | list",
    ),
    "indent": ("The text with its lines indented.", "'a\\nb' | indent(2)"),
    "int": (
        "The text as a whole number. An error for other text, unless you give a default.",
        "'12' | int",
    ),
    "items": ("Keys and values of an object.", "{'a': 1} | items"),
    "join": ("Items as one text.", "['a', 'b'] | join('-')"),
    "last": ("The last item.", "['a', 'b'] | last"),
    "length": ("The number of items, entries or characters.", "'abc' | length"),
    "list": ("A list of the items.", "'ab' | list"),
    "lower": ("The text in lower case.", "'AB' | lower"),
    "map": (
        "An attribute of each item, or the result of a filter for each item.",
        "[{'id': 7}] | map(attribute='id')",
    ),
    "max": ("The largest item.", "[1, 3, 2] | max"),
    "min": ("The smallest item.", "[1, 3, 2] | min"),
    "reject": ("The items that fail a test.", "[1, 2] | reject('odd')"),
    "rejectattr": (
        "The items whose attribute fails a test.",
        "[{'id': 7}, {'id': 8}] | rejectattr('id', 'eq', 7)",
    ),
    "replace": ("The text with a part replaced.", "'a-b' | replace('-', '_')"),
    "reverse": ("The items in reverse order.", "[1, 2] | reverse"),
    "round": ("The number rounded to a number of digits.", "1.25 | round(1)"),
    "select": ("The items that pass a test.", "[1, 2] | select('odd')"),
    "selectattr": (
        "The items whose attribute passes a test.",
        "[{'id': 7}, {'id': 8}] | selectattr('id', 'eq', 7)",
    ),
    "sort": ("The items sorted.", "[2, 1] | sort"),
    "string": ("The value as text.", "true | string"),
    "sum": ("The sum of numbers.", "[1, 2.5] | sum"),
    "title": ("The text with a capital at the start of each word.", "'a b' | title"),
    "tojson": ("The value as JSON.", "{'a': none} | tojson"),
    "trim": ("The text without spaces around it.", "' a ' | trim"),
    "unique": ("Each item once.", "[2, 1, 2] | unique"),
    "upper": ("The text in upper case.", "'ab' | upper"),
    "urlencode": ("The text escaped for a URL.", "'a b' | urlencode"),
}
"""The result of each filter, and an example."""
_METHOD_TYPES: Final[Mapping[type, str]] = {str: "text", Mapping: "object"}
_REFUSED: Final = """\
## What is not allowed

An expression can only use values. It cannot read files, import modules or run for ever, and it has
the same result in every run.

* No statements, macros or assignments: `{% ... %}` is an error.
* No Python attributes, and no functions except `range` and the look-ups.
* No random values, no time, no regular expressions and no formatting to a width.
* `%` does not format text: join text with `~`.
* Text with expressions has at most 100,000 characters. The size of a result is limited, too: the
  error is `the expression takes too many steps, or its result is too large`.
* An unknown name is an error that lists the known names. Use `default` where a name may be missing:
  `{{ clusters.train.port_urls.get('8888', 'none') }}`.

Numbers and booleans in YAML are read strictly. Only `true` and `false` are booleans, and only plain
decimals are numbers: `no`, `1e3`, `007` and dates are text.
"""


def render_expressions_page() -> str:
    """Return the page of the expression language, as Markdown."""
    return render_page("Expressions", _LEAD, _render_parts())


def _render_parts() -> Iterator[str]:
    """Yield the parts of the page about expressions; the results of examples are computed."""
    yield _WHERE
    yield "## What a value can refer to"
    yield render_table(("reference", "means"), [(f"`{form}`", meaning) for form, meaning in _ROOTS])
    yield _AFTER_ROOTS
    yield _KNOWN
    yield "## Operators"
    rows = [
        (
            # Two blanks separate the operators: `a if b else c` contains single blanks.
            join_as_code(forms.split("  ")),
            meaning,
            f"`{example}`",
            f"`{_evaluate_example(example)}`",
        )
        for forms, meaning, example in _OPERATORS
    ]
    yield render_table(("operator", "does", "example", "result"), rows)
    yield "## Filters"
    yield "A filter follows a value and a bar. You can chain filters."
    yield "\n".join(
        # A filter without a text fails here, so that no filter stays undescribed.
        f"* `{name}`: {FILTER_TEXTS[name][0]} `{{{{ {FILTER_TEXTS[name][1]} }}}}` is "
        f"`{_evaluate_example(FILTER_TEXTS[name][1])}`"
        for name in sorted(FILTERS)
    )
    yield "## Methods"
    yield "These methods of Python are available: `{{ 'a,b'.split(',') }}`."
    methods = [
        (_METHOD_TYPES[kind], join_as_code(sorted(names))) for kind, names in METHODS.items()
    ]
    yield render_table(("of a", "methods"), methods)
    yield "## Look-ups"
    yield (
        "A look-up reads from the platform while gpuform plans, with the stack's key. `gpuform "
        "validate` sends no requests: there the result is unknown.\n\n"
        "```yaml\nconfig:\n  region: {default: kr-west1}\noutputs:\n"
        "  image: \"{{ (scp.images('kr-west1') | selectattr('os_distro', 'eq', 'UBUNTU') | first)"
        '.id }}"\n```'
    )
    yield render_table(("look-up", "returns"), _list_lookups())
    yield _REFUSED


def _evaluate_example(expression: str) -> str:
    """Return the result of an expression as YAML, so that the page shows real results."""
    value: Any = parse(f"{{{{ {expression} }}}}").evaluate({})
    return render_yaml_value(value)


def _list_lookups() -> Iterator[tuple[str, str]]:
    """Yield each platform's lookups: the call with its parameters as code, and its meaning."""
    for platform in list_own_platforms():
        for name in list_lookups(platform):
            function = load_lookup(platform, name)
            doc = (function.__doc__ or "").strip().partition("\n\n")[0]
            parameters = ", ".join(
                map(_format_parameter, inspect.signature(function).parameters.values())
            )
            yield f"`{platform}.{name}({parameters})`", escape_prose(doc)


def _format_parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter as `name`, or as `name=default` with the default None shown as `none`."""
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name}={'none' if parameter.default is None else repr(parameter.default)}"
