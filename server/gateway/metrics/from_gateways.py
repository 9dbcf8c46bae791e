"""The gateways' counts as Prometheus families."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from burnish.server.gateway.metrics import counts
from burnish.server.gateway.metrics.published import IN_FLIGHT, Totals

RECORDS = "records"
_COUNTERS = {
    counts.REQUESTS: ("burnish_requests", "Requests by route and status (499: the client left).", ("route", "status")),
    counts.REPLIES: ("burnish_replies", "Replies by agent and by what ended them.", ("agent", "finish")),
    counts.TOKENS: ("burnish_tokens", "Tokens of prompts and of replies.", ("agent", "kind")),
    RECORDS: ("burnish_records", "Records written to the segments, and records lost to a full disk.", ("result",)),
}
_HISTOGRAMS = {
    counts.REQUEST_SECONDS: ("burnish_request_seconds", "Seconds from a request's head to its answer's end.", "route"),
    counts.FIRST_TOKEN: (
        "burnish_time_to_first_token_seconds",
        "Seconds from a streamed request's body to its first event.",
        "agent",
    ),
    counts.PER_TOKEN: (
        "burnish_time_per_output_token_seconds",
        "Mean seconds between two tokens of a streamed reply, one observation a reply.",
        "agent",
    ),
}


def families(total: Totals) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
    """One family for each name, with a series for each combination of labels."""
    for key, (name, text, labels) in _COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=labels)
        for values, numbers in _of(total, key):
            counter.add_metric(values, numbers[0])
        yield counter
    for key, (name, text, label) in _HISTOGRAMS.items():
        histogram = HistogramMetricFamily(name, text, labels=(label,))
        for values, numbers in _of(total, key):
            if len(numbers) == len(counts.BOUNDS[key]) + 2:
                histogram.add_metric(values, _buckets(counts.BOUNDS[key], numbers[:-1]), sum_value=numbers[-1])
        yield histogram
    running = sum(numbers[0] for _, numbers in _of(total, IN_FLIGHT))
    yield GaugeMetricFamily("burnish_requests_in_flight", "Requests that run now.", value=running)


def _of(total: Totals, key: str) -> list[tuple[tuple[str, ...], list[float]]]:
    return [(labels, numbers) for (name, labels), numbers in sorted(total.items()) if name == key]


def _buckets(bounds: tuple[float, ...], numbers: list[float]) -> list[tuple[str, float]]:
    made, so_far = [], 0.0
    for bound, number in zip((*map(str, bounds), "+Inf"), numbers, strict=True):
        so_far += number
        made.append((bound, so_far))
    return made
