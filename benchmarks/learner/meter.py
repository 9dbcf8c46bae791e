"""The worker's side of the measurement: steps on demand over stdin and stdout, with time, loss and memory.

Standard library only, because TRL's environment runs it too.
"""

import gc
import json
import sys
import time
from collections.abc import Callable


def serve(step: Callable[[], float]) -> None:
    """Answer each line of stdin with one step: {"seconds", "loss", "peak_mib"}.

    The resident memory at the call counts as the loaded model.
    """
    gc.collect()
    loaded = _resident("VmRSS")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # resets the high-water mark
    _print_figures({"loaded_mib": loaded / 1024})
    for _ in sys.stdin:
        started = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - started
        _print_figures({"seconds": seconds, "loss": loss, "peak_mib": (_resident("VmHWM") - loaded) / 1024})


def _print_figures(found: dict[str, float]) -> None:
    print("@" + json.dumps(found), flush=True)  # libraries print too, so our lines begin with @


def _resident(name: str) -> int:
    """KiB."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))
