"""The counts of one gateway process. Each is an addition in memory: no lock, no file, no call that could wait.

Labels are bounded. A path is a known route or `other`, a finish reason is one of a few, a personal agent counts as its
parent, and after `MAX_AGENTS` agents all further ones count as `other`.
"""

from bisect import bisect_left
from collections.abc import Sequence

from burnish.adapters.registry.personal import family_of

OTHER = "other"
MAX_AGENTS = 200
MAX_NAMES = 10_000
"""Names of agents whose counts are found without a look at the name."""
FINISHES = frozenset({"stop", "length", "tool_calls", "abort", "content_filter"})
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0)
REQUESTS, REQUEST_SECONDS, REPLIES, TOKENS = "requests", "request_seconds", "replies", "tokens"
FIRST_TOKEN, PER_TOKEN = "first_token_seconds", "per_token_seconds"
BOUNDS = {REQUEST_SECONDS: SECONDS, FIRST_TOKEN: SECONDS, PER_TOKEN: TOKEN_SECONDS}
Sample = tuple[str, tuple[str, ...], list[float]]
"""A name, label values, and numbers: one for a counter; for a histogram the count of each bucket, then the sum."""


class Histogram:
    """Numbers of observations up to each of the bounds, and beyond."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def numbers(self) -> list[float]:
        return [*self.counts, self.total]


class AgentCounts:
    """The replies of one agent."""

    __slots__ = ("finishes", "first_token", "n_output", "n_prompt", "per_token")

    def __init__(self) -> None:
        self.n_prompt = 0
        self.n_output = 0
        self.finishes: dict[str, int] = {}
        self.first_token = Histogram(SECONDS)
        self.per_token = Histogram(TOKEN_SECONDS)


class Counts:
    """One per gateway process."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._agents: dict[str, AgentCounts] = {}
        self._by_name: dict[str, AgentCounts] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        """One request to `route` got `status` and took `seconds`."""
        key = (route, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        found = self._seconds.get(route)
        if found is None:
            found = self._seconds[route] = Histogram(SECONDS)
        found.observe(seconds)

    def replied(
        self, agent: str, n_prompt: int, n_output: int, finish: str | None, first: float | None, seconds: float
    ) -> None:
        """One reply of `agent` ended after `seconds`. `first` is the time to its first token, None if it came whole."""
        counts = self._by_name.get(agent) or self._counts_of(agent)
        counts.n_prompt += n_prompt
        counts.n_output += n_output
        reason = finish if finish in FINISHES else OTHER
        counts.finishes[reason] = counts.finishes.get(reason, 0) + 1
        if first is not None:
            counts.first_token.observe(first)
            if n_output > 1:
                counts.per_token.observe((seconds - first) / (n_output - 1))

    def samples(self) -> list[Sample]:
        """All counts so far. May be called in any thread."""
        made: list[Sample] = [
            (REQUESTS, (route, str(status)), [n]) for (route, status), n in list(self._requests.items())
        ]
        made += [(REQUEST_SECONDS, (route,), found.numbers) for route, found in list(self._seconds.items())]
        for agent, counts in list(self._agents.items()):
            made += [(REPLIES, (agent, reason), [n]) for reason, n in list(counts.finishes.items())]
            made += [(TOKENS, (agent, "prompt"), [counts.n_prompt]), (TOKENS, (agent, "output"), [counts.n_output])]
            made += [(FIRST_TOKEN, (agent,), counts.first_token.numbers)]
            made += [(PER_TOKEN, (agent,), counts.per_token.numbers)]
        return made

    def _counts_of(self, agent: str) -> AgentCounts:
        label = family_of(agent)
        if label not in self._agents and len(self._agents) >= MAX_AGENTS:
            label = OTHER
        counts = self._agents.setdefault(label, AgentCounts())
        if len(self._by_name) < MAX_NAMES:
            self._by_name[agent] = counts
        return counts
