"""``python -m shardc.analysis.calibrate.exchange_main OUT.json RUNS``: collectives of all ranks of a job, timed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from shardc.analysis.calibrate.exchanges import measure_exchanges, measure_steps
from shardc.hlo.files import write_atomically
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.jobs.job import process_count, process_index

__all__ = ["main"]


def main() -> int:
    path, runs = Path(sys.argv[1]), int(sys.argv[2])
    config, devices = job_config(), process_count()
    timings = measure_exchanges(devices, config, runs)
    steps = measure_steps(devices, config, runs)
    if process_index() == 0:
        data = {"collectives": {name: asdict(t) for name, t in timings.items()}, "steps": steps}
        write_atomically(path, json.dumps(data).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
