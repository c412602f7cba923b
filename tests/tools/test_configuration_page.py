"""The page of configuration has every variable that gpuform reads, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.providers.platform import list_own_platforms, list_settings
from gpuform.stacks.engine.ci_job import list_ci_variables
from tools.reference.configuration_page import render_configuration_page
from tools.reference.variables import VARIABLES

ROOT = Path(__file__).parents[2]
PAGE = render_configuration_page()
NAMED = {item.name for item in VARIABLES}
OF_PLATFORMS = {item.variable for item in list_settings()} | {
    item.address for item in list_own_platforms().values()
}
OF_JOBS = {name for names in list_ci_variables().values() for name in names}
KNOWN = NAMED | OF_PLATFORMS | OF_JOBS

PREFIXES = re.compile(
    r"(GPUFORM|PULUMI|AWS|AZURE|GOOGLE|VAULT|GITHUB|GH|GITLAB|CI|TOGETHER|TENSORONE|SCP|AIOS|LENS)"
    r"_[A-Z0-9_]*[A-Z0-9]"
)
READS = re.compile("environ|getenv|envvar")
SET_FOR_OTHERS = {
    "PULUMI_SKIP_UPDATE_CHECK",  # for the Pulumi CLI that is asked for its version
    # Written into the workflows of `gpuform new ci`:
    *("AWS_ROLE_ARN", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID", "CI_ENVIRONMENT_NAME"),
}


def parse_modules() -> Iterator[tuple[Path, ast.Module]]:
    """Yield the modules that may name a variable, without the emulator, which is a web server."""
    for folder in ("schemas", "providers", "stacks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "emulator" in path.parts:
                continue
            source = path.read_text()
            if READS.search(source) or PREFIXES.search(source):
                yield path, ast.parse(source)


def list_constants(tree: ast.Module) -> dict[str, str]:
    """Return the texts of a module's constants, by name."""
    constants: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=value)
            ):
                pairs = [(target, value)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs = list(zip(target.elts, value.elts, strict=True))
                for name, constant in pairs:
                    if isinstance(name, ast.Name) and isinstance(constant, ast.Constant):
                        constants[name.id] = str(constant.value)
    return constants


def list_imported_constants(tree: ast.Module, names: dict[str, str]) -> dict[str, str]:
    """Return the texts of constants imported under other names, by the new names."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    pairs = [(alias.asname, alias.name) for node in imports for alias in node.names]
    return {own: names[name] for own, name in pairs if own and name in names}


def find_variable_key(node: ast.AST) -> ast.expr | None:
    """Return the key of a look-up in an environment, or None for any other node."""
    match node:
        case ast.Call(func=ast.Attribute(value=there, attr="get" | "pop"), args=[key, *_]):
            pass
        case ast.Subscript(value=there, slice=key):
            pass
        case ast.Compare(left=key, comparators=[there], ops=[ast.In() | ast.NotIn()]):
            pass
        case ast.keyword(arg="envvar", value=key):
            return key
        case ast.Call(func=ast.Attribute(attr="getenv"), args=[key, *_]):
            return key
        case _:
            return None
    return key if re.search(r"environ$", ast.unparse(there)) else None


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_every_variable_that_the_source_reads_is_declared() -> None:
    trees = list(parse_modules())
    names = {
        name: value
        for _, tree in trees
        for name, value in list_constants(tree).items()
        if name.isupper()
    }
    read, others = set(), []
    for path, tree in trees:
        own = list_constants(tree) | list_imported_constants(tree, names)
        for node in ast.walk(tree):
            match find_variable_key(node):
                case None:
                    pass
                case ast.Constant(value=str() as value):
                    read.add(value)
                case ast.Name(id=name) if own.get(name) or name in names:
                    read.add(own.get(name) or names[name])
                case other:
                    others.append(f"{path.relative_to(ROOT)}: {ast.unparse(other)}")
    assert len(read) > 40
    of_others = {"SSL_CERT_FILE", "SSL_CERT_DIR", "UV", "GIT_DIR"}  # of OpenSSL, uv and git
    assert read - KNOWN == of_others
    assert set(others) == {
        *(  # permissions and answers, of `providers.permissions`
            f"providers/context/run_context.py: permissions.{name}"
            for name in (
                "VARIABLE",
                "ADOPT_VARIABLE",
                "ANEW_VARIABLE",
                "REPAIR_VARIABLE",
                "REVIEWED_VARIABLE",
            )
        ),
        "providers/context/telemetry.py: name",  # those of OpenTelemetry
        "providers/context/telemetry.py: _EXPORTER_VARIABLES[signal]",
        "providers/context/telemetry.py: f'OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL'",
        "providers/operations.py: variable",  # of the platforms' descriptors
        "providers/environment.py: platform_by_name[platform_name].address",
        "providers/importing.py: build_secret_variable(name)",  # GPUFORM_OS_USER_PASSWORD
        "stacks/cli/commands/server_commands.py: name",  # of a stopped emulator
        "stacks/code_hosts/review_target.py: variable",  # the tokens
        "stacks/engine/project/process_use.py: name",  # put back as it was
        "stacks/engine/store/backend.py: name",  # PULUMI_DIY_BACKEND_...
        "stacks/gates/evaluating.py: name",  # passed on to opa
        "stacks/rehearsing/worker.py: name",  # taken away from the rehearsing process
        "stacks/testing/events.py: TRUSTED",  # of a WSGI environment
        "stacks/testing/case_run.py: name",  # taken away from tests
    }


def test_every_text_that_looks_like_a_variable_is_declared() -> None:
    """Cover also variables in tables, and variables that libraries read."""
    nodes = (node for _, tree in parse_modules() for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    variables = {
        constant_text
        for constant_text in texts
        if isinstance(constant_text, str) and PREFIXES.fullmatch(constant_text)
    }
    assert variables - KNOWN - SET_FOR_OTHERS == set()


def test_every_declared_variable_is_in_the_source() -> None:
    source = "\n".join(
        path.read_text()
        for folder in ("schemas", "providers", "stacks")
        for path in (ROOT / folder).rglob("*.py")
    )
    words = set(re.findall(r"\w+", source))
    made_up = {name for name in NAMED - words if "_BACKEND_" not in name}
    assert made_up == {
        "GPUFORM_OS_USER_PASSWORD",  # GPUFORM_ and the field's name
        *("PULUMI_SELF_MANAGED_STATE_GZIP", "PULUMI_SELF_MANAGED_STATE_DISABLE_CHECKPOINT_BACKUPS"),
    }
    assert len(NAMED) == len(VARIABLES)


def test_the_page_has_every_variable_and_every_key() -> None:
    assert [name for name in sorted(KNOWN) if name and f"`{name}`" not in PAGE] == []
    for setting in list_settings():
        assert f"| `{setting.config}` |" in PAGE
    assert "| `together:apiKey` | `gpuform:togetherApiKey` | `TOGETHER_API_KEY` |" in PAGE
