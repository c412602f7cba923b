"""How long an editor waits for `gpuform lsp` in a large topology.

python tests/benchmarks/editing.py [--resources 1000] [--times 5]

The editor is pygls' own client, over the pipes of a real process. Of several times the median
counts. `diagnostics` is from a key typed until the server has told what is wrong now.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from lsprotocol import types
from pygls.lsp.client import LanguageClient

sys.path.insert(0, str(Path(__file__).parent))
from running import measured, table
from validating import written

Step = Callable[[], Awaitable[object]]
GPUFORM = (sys.executable, "-m", "gpuform.stacks.cli")


class Editor:
    """One editor with one file open."""

    def __init__(self, file: Path) -> None:
        self.text = file.read_text()
        self._uri = file.as_uri()
        self._version = 0
        self._told = asyncio.Event()
        self.client = LanguageClient("benchmark", "1")

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(parameters: types.PublishDiagnosticsParams) -> None:
            if parameters.version in (None, self._version):
                self._told.set()

    async def open(self) -> None:
        item = types.TextDocumentItem(self._uri, "yaml", self._version, self.text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        await self._told.wait()

    async def type(self) -> None:
        """Adds a comment to the last cluster, and waits for what is told of the text."""
        self._version += 1
        self._told.clear()
        head, _, tail = self.text.rpartition("ON_DEMAND")
        text = f"{head}ON_DEMAND # {self._version}{tail}"
        which = types.VersionedTextDocumentIdentifier(self._version, self._uri)
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(which, [whole]))
        await self._told.wait()

    def steps(self) -> dict[str, Step]:
        """What an editor asks for, at the last cluster of the file."""
        which = types.TextDocumentIdentifier(self._uri)
        lines = self.text.splitlines()
        last = len(lines) - 1
        volume = types.Position(last, lines[last].index(".data") + 2)
        key = types.Position(last, 6)
        client = self.client

        async def complete() -> None:
            await client.text_document_completion_async(types.CompletionParams(which, volume))

        async def hover() -> None:
            assert await client.text_document_hover_async(types.HoverParams(which, key))

        async def define() -> None:
            assert await client.text_document_definition_async(
                types.DefinitionParams(which, volume)
            )

        async def rename() -> None:
            assert await client.text_document_rename_async(
                types.RenameParams(which, volume, "bulk")
            )

        return {
            "diagnostics": self.type,
            "completion": complete,
            "hover": hover,
            "definition": define,
            "rename, used everywhere": rename,
        }


async def latencies(file: Path, times: int) -> dict[str, float]:
    """Seconds of each step."""
    editor = Editor(file)
    client = editor.client
    await client.start_io(*GPUFORM, "lsp")
    root = file.parent.as_uri()
    await client.initialize_async(
        types.InitializeParams(
            capabilities=types.ClientCapabilities(),
            root_uri=root,
            workspace_folders=[types.WorkspaceFolder(root, "bench")],
        )
    )
    client.initialized(types.InitializedParams())
    await editor.open()
    found = {}
    for label, step in editor.steps().items():
        taken = []
        for _ in range(times):
            began = time.monotonic()
            await step()
            taken.append(time.monotonic() - began)
        found[label] = statistics.median(taken)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return found


def main() -> None:
    """Prints the figures of a quarter of the resources, of all, and how they grow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=1000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    counts = (options.resources // 4, options.resources)
    rows = [("resources", *map(str, counts), "growth")]
    with TemporaryDirectory() as name:
        found = []
        for count in counts:
            folder = Path(name, str(count))
            folder.mkdir()
            (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
            file = Path(written(folder, count)).rename(folder / "topology.yaml")
            validate = measured([*GPUFORM, "validate", str(file)], folder)
            waits = asyncio.run(latencies(file, options.times))
            found.append({"gpuform validate": validate.seconds, **waits})
        few, all_ = found
        for label in few:
            growth = f"{all_[label] / few[label]:.1f}"
            rows.append((label, f"{few[label]:.3f} s", f"{all_[label]:.3f} s", growth))
        ratios = [f"{each['diagnostics'] / each['gpuform validate']:.2f}" for each in found]
        rows.append(("ratio of diagnostics to validate", *ratios, ""))
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()
