"""`python -m benchmarks.real_model`: whether a real language model learns from its (simulated) users, out of the box.

The command line and the files of runs and summaries are those of `benchmarks.learning`.
"""

import sys

from benchmarks.learning.__main__ import Benchmark, main
from benchmarks.real_model import first, model, speed, trial
from benchmarks.real_model.continual.part import PART as CONTINUAL
from benchmarks.real_model.english.part import PART as ENGLISH
from burnish.errors import BurnishError

PARTS = (ENGLISH, CONTINUAL, speed.PART, trial.PART, first.PART)
REAL_MODEL = Benchmark("benchmarks.real_model", (__doc__ or "").split("\n\n")[0], PARTS, 4, model.engine)


if __name__ == "__main__":
    try:
        main(benchmark=REAL_MODEL)
    except BurnishError as error:
        sys.exit(f"benchmarks.real_model: {error}")
