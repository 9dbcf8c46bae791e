"""The counts of a process: what is added, and that no client can make a label."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from burnish.server.gateway.metrics import counts
from burnish.server.gateway.metrics.counts import Counts
from burnish.server.gateway.metrics.from_gateways import families
from burnish.server.gateway.metrics.published import Totals


def totals_of(made: Counts) -> Totals:
    return {(name, labels): numbers for name, labels, numbers in made.samples()}


def shown(totals: Totals) -> dict[tuple[str, ...], float]:
    class Shown(Collector):
        def collect(self):  # type: ignore[no-untyped-def]
            yield from families(totals)

    registry = CollectorRegistry()
    registry.register(Shown())
    parsed = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for family in parsed for s in family.samples}


def test_replies_are_counted_by_agent_with_tokens_and_times() -> None:
    made = Counts()
    made.answered("/v1/chat/completions", 200, 0.03)
    made.answered("/v1/chat/completions", 200, 3.0)
    made.answered("/v1/chat/completions", 503, 0.001)
    made.replied("agent", 10, 5, "stop", 0.2, 1.0)
    made.replied("agent", 3, 1, None, None, 0.1)
    found = shown(totals_of(made))
    assert found["burnish_requests_total", "/v1/chat/completions", "200"] == 2
    assert found["burnish_requests_total", "/v1/chat/completions", "503"] == 1
    assert found["burnish_request_seconds_count", "/v1/chat/completions"] == 3
    assert found["burnish_request_seconds_bucket", "0.05", "/v1/chat/completions"] == 2
    assert found["burnish_tokens_total", "agent", "prompt"] == 13
    assert found["burnish_tokens_total", "agent", "output"] == 6
    assert found["burnish_replies_total", "agent", "stop"] == found["burnish_replies_total", "agent", "other"] == 1
    assert found["burnish_time_to_first_token_seconds_sum", "agent"] == 0.2
    assert round(found["burnish_time_per_output_token_seconds_sum", "agent"], 9) == 0.2


def test_an_agent_beyond_the_most_and_a_personal_agent_get_no_label_of_their_own() -> None:
    made = Counts()
    for number in range(counts.MAX_AGENTS + 5):
        made.replied(f"a{number}", 1, 1, "whatever a client may say", None, 0.1)
    made.replied("a0.u-0123456789ab", 1, 1, "stop", None, 0.1)
    agents = {labels[0] for name, labels in totals_of(made) if name == counts.TOKENS}
    assert len(agents) == counts.MAX_AGENTS + 1 and counts.OTHER in agents
    found = shown(totals_of(made))
    assert found["burnish_tokens_total", counts.OTHER, "output"] == 5
    assert found["burnish_tokens_total", "a0", "output"] == 2
    assert {labels[1] for name, labels in totals_of(made) if name == counts.REPLIES} == {"other", "stop"}
