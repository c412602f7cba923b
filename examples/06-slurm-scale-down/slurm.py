"""Runs a command of Slurm in the emulated cluster, as people do on its login node.

python slurm.py sinfo
python slurm.py sbatch --job-name=evaluate --nodelist=slurm-worker-2 --wrap='sleep 1800'
"""

import sys
from pathlib import Path

import httpx

from gpuform.providers.emulator.server import serve


def main(command: list[str]) -> int:
    with serve(store_path=Path(".gpuform", "emulator.db")) as emulator:
        controls = f"{emulator.url}/_emulator"
        clusters = httpx.get(f"{controls}/objects").json()["together"]["clusters"]
        if not clusters:
            sys.exit("there is no cluster yet: gpuform up --emulate")
        path = f"{controls}/slurm/{clusters[0]['id']}/run"
        told = httpx.post(path, json={"command": command}).json()
    sys.stdout.write(told["stdout"])
    sys.stderr.write(told["stderr"])
    return int(told["code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
