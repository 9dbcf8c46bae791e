"""`python -m benchmarks.seen.unmeasured run gateway`: the gateway without its metrics, to compare with.

Only the counting and the publishing are left out. Everything else is the real process.
"""

import asyncio
from typing import Any

from burnish.cli import main
from burnish.server.gateway.metrics.counts import Counts
from burnish.server.gateway.metrics.published import Published


def _nothing(*_: Any) -> None:
    """Take the place of a count."""


async def _forever(_: Published) -> None:
    await asyncio.Event().wait()


if __name__ == "__main__":
    for name in ("answered", "replied"):
        setattr(Counts, name, _nothing)
    setattr(Published, "publish_forever", _forever)  # noqa: B010 - mypy forbids an assignment to a method
    main()
