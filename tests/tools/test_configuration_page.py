"""The page of configuration: no variable that gpuform reads is missing, and none is made up."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.providers.platform import list_own_platforms, list_settings
from gpuform.stacks.engine.machine import list_ci_variables
from tools.reference.configuration_page import render_configuration_page
from tools.reference.variables import VARIABLES

ROOT = Path(__file__).parents[2]
PAGE = render_configuration_page()
NAMED = {each.name for each in VARIABLES}
OF_PLATFORMS = {each.variable for each in list_settings()} | {
    each.address for each in list_own_platforms().values()
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
    *("AWS_ROLE_ARN", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID"),
}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """The source that may name a variable, but for the emulator, which is a web server."""
    for room in ("schemas", "providers", "stacks"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if "emulator" in path.parts:
                continue
            text = path.read_text()
            if READS.search(text) or PREFIXES.search(text):
                yield path, ast.parse(text)


def constants_of(tree: ast.Module) -> dict[str, str]:
    """The texts that a module gives names to."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=value)
            ):
                pairs = [(target, value)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs = list(zip(target.elts, value.elts, strict=True))
                for name, text in pairs:
                    if isinstance(name, ast.Name) and isinstance(text, ast.Constant):
                        found[name.id] = str(text.value)
    return found


def imported(tree: ast.Module, names: dict[str, str]) -> dict[str, str]:
    """The texts that a module imports under other names."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    pairs = [(each.asname, each.name) for node in imports for each in node.names]
    return {own: names[name] for own, name in pairs if own and name in names}


def key_of(node: ast.AST) -> ast.expr | None:
    """What is looked up, where a node looks into an environment."""
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
def test_no_variable_that_is_read_is_missing() -> None:
    trees = list(modules())
    names = {
        name: text
        for _, tree in trees
        for name, text in constants_of(tree).items()
        if name.isupper()
    }
    read, others = set(), []
    for path, tree in trees:
        own = constants_of(tree) | imported(tree, names)
        for node in ast.walk(tree):
            match key_of(node):
                case None:
                    pass
                case ast.Constant(value=str() as text):
                    read.add(text)
                case ast.Name(id=name) if name in own or name in names:
                    read.add(own.get(name) or names[name])
                case other:
                    others.append(f"{path.relative_to(ROOT)}: {ast.unparse(other)}")
    assert len(read) > 40
    assert read - KNOWN == set()
    assert set(others) == {
        "providers/operations.py: variable",  # of the platforms' descriptors
        "providers/context/transport.py: name",  # SSL_CERT_FILE, SSL_CERT_DIR
        "providers/environment.py: known[platform_name].address",
        "providers/importing.py: build_secret_variable(secret_name)",  # GPUFORM_OS_USER_PASSWORD
        "stacks/cli/commands/server_commands.py: name",  # of a stopped emulator
        "stacks/code_hosts/review_target.py: variable",  # the tokens
        "stacks/engine/project/module_imports.py: name",  # put back as it was
        "stacks/engine/store/backend.py: name",  # PULUMI_DIY_BACKEND_...
        "stacks/operations/opening/variables.py: name",  # put back as it was
        "stacks/testing/events.py: TRUSTED",  # of a WSGI environment
        "stacks/testing/case_run.py: name",  # taken away from tests
    }


def test_no_text_that_looks_like_a_variable_is_missing() -> None:
    """Also where it is not read by its name: in tables, and by libraries."""
    nodes = (node for _, tree in modules() for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    found = {each for each in texts if isinstance(each, str) and PREFIXES.fullmatch(each)}
    assert found - KNOWN - SET_FOR_OTHERS == set()


def test_no_variable_is_made_up() -> None:
    source = "\n".join(
        path.read_text()
        for room in ("schemas", "providers", "stacks")
        for path in (ROOT / room).rglob("*.py")
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
    for each in list_settings():
        assert f"| `{each.config}` |" in PAGE
    assert "| `together:apiKey` | `gpuform:togetherApiKey` | `TOGETHER_API_KEY` |" in PAGE
