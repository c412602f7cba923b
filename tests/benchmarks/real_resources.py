"""Measure 1000 shared volumes of Together on the emulator: `up`, `preview`, `refresh`, `destroy`.

python tests/benchmarks/real_resources.py [--volumes 1000]

For each command: time, peak memory, requests, written bytes, and the processor time by the spans of
`--profile`: the program with the SDK, the engine, the lifecycles, HTTP and the state. The emulator
runs in a process of its own.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import Bench, create_bench, render_table

PROGRAM = """
from gpuform.providers.together import SharedVolume

for number in range({volumes}):
    SharedVolume(
        f"data-{{number}}", volume_name=f"data-{{number}}", region="us-central-8", size_tib=1
    )
"""
SPEED = 1200.0
COUNTED = str(Path(__file__).parent / "counted.py")
COMMANDS = (
    ("up", "up", "--yes", "--skip-preview"),
    ("preview", "preview", "--expect-no-changes"),
    ("refresh", "refresh", "--yes", "--skip-preview"),
    ("destroy", "destroy", "--yes", "--skip-preview"),
)
SHARES = {
    "program": "program and SDK",
    "step": "engine",
    "provider": "lifecycles",
    "request": "HTTP",
    "state": "state",
}


def measure_command(stack: Bench, *arguments: str) -> Mapping[str, str]:
    """Return the figures of a command by label."""
    stack.forget_requests()
    platform_seconds = stack.read_platform_seconds()
    profile, counted = stack.directory / "profile.json", stack.directory / "counted.json"
    ran = stack.run(*arguments, "--profile", str(profile), by=[COUNTED, str(counted)])
    platform_seconds = stack.read_platform_seconds() - platform_seconds
    fsyncs, written = json.loads(counted.read_text())
    requests = stack.list_requests()
    shares = read_shares(profile)
    return {
        "time": f"{ran.seconds:.2f} s",
        "processor time": f"{ran.work:.2f} s",
        **{f"  {name}": f"{shares[kind]:.2f} s" for kind, name in SHARES.items()},
        "  start, view and all else": f"{ran.work - sum(shares.values()):.2f} s",
        "processor time of the emulator": f"{platform_seconds:.2f} s",
        "requests": str(len(requests)),
        "  of them lists": str(sum(map(is_list, requests))),
        "written to disk": f"{written / 2**20:.1f} MiB",
        "fsyncs": str(fsyncs),
        "peak memory": f"{ran.peak:.0f} MiB",
    }


def is_list(request: Mapping[str, str]) -> bool:
    """Return whether a request lists volumes."""
    return request["method"] == "GET" and request["path"].endswith("/volumes")


def read_shares(profile: Path) -> Mapping[str, float]:
    """Return the seconds of processor time by kind of span, without nested spans."""
    events = json.loads(profile.read_text().rstrip().rstrip(",") + "]")
    spans = [event for event in events if event["ph"] == "X"]
    seconds_by_kind: Counter[str] = Counter()
    open_spans: dict[int, list[tuple[float, str]]] = {}
    for span in sorted(spans, key=lambda span_: (span_["tid"], span_["ts"], -span_["dur"])):
        outer = open_spans.setdefault(span["tid"], [])
        while outer and outer[-1][0] <= span["ts"]:
            outer.pop()
        seconds_by_kind[span["cat"]] += span["tdur"] / 1e6
        if outer:
            seconds_by_kind[outer[-1][1]] -= span["tdur"] / 1e6
        outer.append((span["ts"] + span["dur"], span["cat"]))
    return seconds_by_kind


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=1000)
    options = parser.parse_args()
    with create_bench(SPEED) as stack:
        stack.declare(PROGRAM.format(volumes=options.volumes))
        columns = [measure_command(stack, *arguments) for _, *arguments in COMMANDS]
    rows = [(f"{options.volumes} volumes", *(name for name, *_ in COMMANDS))]
    rows += [(label, *(column[label] for column in columns)) for label in columns[0]]
    sys.stdout.write(render_table(rows))


if __name__ == "__main__":
    main()
