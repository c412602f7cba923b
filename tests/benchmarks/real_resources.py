"""1000 shared volumes of Together against the emulator: `up`, `preview`, `refresh`, `destroy`.

python tests/benchmarks/real_resources.py [--volumes 1000]

For each command its time, its peak memory, its requests, what it writes, and where its processor
time goes, by the spans of `--profile`: the program with the SDK, the engine, the lifecycles, HTTP
and the state. The emulator works in a process of its own.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from running import Bench, bench, table

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


def profiled(stack: Bench, *arguments: str) -> Mapping[str, str]:
    """The figures of one command, by what they are."""
    stack.forget_requests()
    worked = stack.platform_work()
    profile, counted = stack.directory / "profile.json", stack.directory / "counted.json"
    ran = stack.run(*arguments, "--profile", str(profile), by=[COUNTED, str(counted)])
    worked = stack.platform_work() - worked
    fsyncs, written = json.loads(counted.read_text())
    requests = stack.requests()
    shares = shares_of(profile)
    return {
        "time": f"{ran.seconds:.2f} s",
        "processor time": f"{ran.work:.2f} s",
        **{f"  {name}": f"{shares[kind]:.2f} s" for kind, name in SHARES.items()},
        "  start, view and all else": f"{ran.work - sum(shares.values()):.2f} s",
        "processor time of the emulator": f"{worked:.2f} s",
        "requests": str(len(requests)),
        "  of them lists": str(sum(map(is_list, requests))),
        "written to disk": f"{written / 2**20:.1f} MiB",
        "fsyncs": str(fsyncs),
        "peak memory": f"{ran.peak:.0f} MiB",
    }


def is_list(request: Mapping[str, str]) -> bool:
    """Whether one request asks for many volumes."""
    return request["method"] == "GET" and request["path"].endswith("/volumes")


def shares_of(profile: Path) -> Mapping[str, float]:
    """Seconds of processor time by kind of span, without that of the spans inside."""
    events = json.loads(profile.read_text().rstrip().rstrip(",") + "]")
    spans = [event for event in events if event["ph"] == "X"]
    found: Counter[str] = Counter()
    around: dict[int, list[tuple[float, str]]] = {}
    for span in sorted(spans, key=lambda each: (each["tid"], each["ts"], -each["dur"])):
        outer = around.setdefault(span["tid"], [])
        while outer and outer[-1][0] <= span["ts"]:
            outer.pop()
        found[span["cat"]] += span["tdur"] / 1e6
        if outer:
            found[outer[-1][1]] -= span["tdur"] / 1e6
        outer.append((span["ts"] + span["dur"], span["cat"]))
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=1000)
    options = parser.parse_args()
    with bench(SPEED) as stack:
        stack.declare(PROGRAM.format(volumes=options.volumes))
        columns = [profiled(stack, *arguments) for _, *arguments in COMMANDS]
    rows = [(f"{options.volumes} volumes", *(name for name, *_ in COMMANDS))]
    rows += [(what, *(column[what] for column in columns)) for what in columns[0]]
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()
