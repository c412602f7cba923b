"""Render the page of configuration keys and environment variables."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpuform.providers.platform import Platform, build_plugin_key, list_own_platforms
from gpuform.stacks.engine.ci_job import list_ci_variables
from tools.reference.markdown import escape_prose, join_as_code, render_page, render_table
from tools.reference.variables import JOBS, VARIABLES, Variable

_LEAD: Final = """\
This page lists every configuration key and every environment variable that gpuform reads, and says
which one counts when several are set.
"""
_PRECEDENCE: Final = """\
## Which one counts

The first one that is set counts.

| what | order |
| --- | --- |
| a setting of a platform, such as its key | the value of an explicit provider of the plugin; the environment variable; the stack's `together:apiKey`; the stack's `gpuform:togetherApiKey`; for SCP the files in `~/.scpconf` |
| a value of your own (`config` of a topology) | the stack's file `Pulumi.STACK.yaml`; the default in `Pulumi.yaml`; `default` of the topology; on the emulator only, `emulator_default` |
| the stack | `--stack`; `PULUMI_STACK`; the selected one |
| the place of stacks | `PULUMI_BACKEND_URL`; `backend.url` of Pulumi.yaml; `gpuform login`; `~` |
| the passphrase | `PULUMI_CONFIG_PASSPHRASE`; the file of `PULUMI_CONFIG_PASSPHRASE_FILE`; a prompt |
| anything that has a flag | the flag; the variable; the default |

An empty variable counts as not set, except for the passphrase and `PULUMI_STACK`.
"""  # noqa: E501 - rows
_OWN: Final = """\
## Keys of a stack

`gpuform config set KEY VALUE` writes a key to `Pulumi.STACK.yaml`. Keys without a namespace belong to
the project: `config` of the [topology](topology.md#configuration) or of Pulumi.yaml declares them.
gpuform encrypts values that are declared secret, and rejects keys that nothing reads.

| key | meaning | default |
| --- | --- | --- |
| `NAME` | A value that the project declares. | as declared |
| `gpuform:form` | The form of the resources: `dynamic`, or `plugin` for the [provider plugin](../guides/plugin.md). | `dynamic` |
| `pulumi:...` | The Pulumi CLI's own settings of a stack. gpuform does not change them. | |
"""  # noqa: E501 - rows
_PROJECT: Final = """\
## Keys of Pulumi.yaml

| key | meaning | default |
| --- | --- | --- |
| `name` | Name of the project. | required |
| `runtime` | `python`, or `{name: python, options: {virtualenv: venv}}`. | required |
| `main` | Folder or file of the program. | the project's folder |
| `description` | Purpose of the project. | |
| `config` | Defaults of configuration keys: `type`, `default`, `secret`. | |
| `backend.url` | Where the project's stacks live. | the URL of `gpuform login` |
| `options.refresh` | `always`: runs read the platforms first, except with `--refresh=false`. | |
| `requiredPulumiVersion` | Required versions of Pulumi, such as `>=3.5.0 <4.0.0`. | |
| `stackConfigDir` | Folder of the files `Pulumi.STACK.yaml`. | the project's folder |

## Files beside Pulumi.yaml

| file | content |
| --- | --- |
| `topology.yaml` | [the declared resources](topology.md), if there is no `__main__.py` |
| `Pulumi.STACK.yaml` | the configuration of a stack |
| `prices.yaml`, `gates.yaml` | [prices and gates](prices-and-gates.md) |
| `.gpuform/` | the emulator's objects, and gpuform's records |
"""
_OTHERS: Final = """\
## Variables of libraries

gpuform uses libraries that read their own variables: `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`,
`SSL_CERT_FILE` and `SSL_CERT_DIR` for platforms; the other variables of AWS, Azure and Google for
their sign-in; `VAULT_CACERT` and `VAULT_CAPATH` for Vault. ssh, git and kubectl read their own
variables. `_GPUFORM_COMPLETE` is for [shell completion](commands/tools/completion.md).
"""


def render_configuration_page() -> str:
    """Return the page of configuration keys and environment variables, as Markdown."""
    return render_page("Configuration", _LEAD, _render_parts())


def _render_parts() -> Iterator[str]:
    """Yield the parts of the page about settings and environment variables."""
    yield _PRECEDENCE
    yield _OWN
    for platform in list_own_platforms().values():
        yield f"## Settings of {platform.title}\n\n{_render_settings(platform)}"
    yield _PROJECT
    yield "## Environment variables"
    yield (
        "The column *counts before* names another source of the same setting, which counts only if "
        "the variable is not set."
    )
    for group in dict.fromkeys(variable.group for variable in VARIABLES):
        yield f"### {group}"
        yield _render_variables(variable for variable in VARIABLES if variable.group == group)
        if group == JOBS:
            yield _render_ci_systems()
    yield _OTHERS


def _render_settings(platform: Platform) -> str:
    """Return a table of a platform's settings, with the variable for the platform's address."""
    rows = [
        [
            f"`{setting.config}`",
            f"`{build_plugin_key(setting.config)}`",
            f"`{setting.variable}`" if setting.variable else "",
            escape_prose(setting.description),
            "yes" if setting.secret else "",
        ]
        for setting in platform.settings
    ]
    head = ("key", "or", "variable", "meaning", "secret")
    variables = {setting.variable for setting in platform.settings}
    # The address of some platforms is one of their settings.
    if platform.address not in variables:
        rows.append(["", "", f"`{platform.address}`", "Another address of the platform.", ""])
    return render_table(head, rows)


def _render_variables(variables: Iterable[Variable]) -> str:
    """Return a table with a row for each environment variable."""
    head = ("variable", "meaning", "flag", "counts before", "default", "secret")
    rows = [
        [
            f"`{variable.name}`",
            variable.meaning,
            f"`{variable.flag}`" if variable.flag else "",
            variable.before,
            variable.default,
            "yes" if variable.secret else "",
        ]
        for variable in variables
    ]
    return render_table(head, rows)


def _render_ci_systems() -> str:
    """Return a table of the variables that identify each CI system and its jobs."""
    rows = [(system, join_as_code(names)) for system, names in list_ci_variables().items()]
    return (
        "The history of a stack names the CI job that made a change. The first variable of a row "
        "identifies the system. The others identify the build, the commit and the branch.\n\n"
        f"{render_table(('system', 'variables'), rows)}"
    )
