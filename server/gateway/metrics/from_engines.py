"""The engines' health: whether they answer, and a few of vLLM's own figures, each with the number of its engine."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from burnish.serving_table import Routes

PASSED_ON = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
)
"""Families of vLLM's that are passed on, without the ending `_total`."""
PATIENCE = 1.0
"""Seconds for one engine."""
MAX_BYTES = 4 * 2**20
MAX_LINES = 2_000
_KINDS = ("_total", "_bucket", "_sum", "_count", "_created", "")
_NAMES = frozenset(name + kind for name in PASSED_ON for kind in _KINDS)
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
log = structlog.get_logger(__name__)


def families(routes: Routes) -> Iterator[Metric]:
    """`burnish_engine_up`, and the figures of the engines that answered."""
    up = GaugeMetricFamily("burnish_engine_up", "1: the engine answers.", labels=("server",))
    passed: dict[str, Metric] = {}
    for number, url in enumerate(routes.engines):
        try:
            found = list(text_string_to_metric_families(_asked(url, routes.engine_key)))
        except (OSError, ValueError, urllib.error.URLError) as error:
            log.debug("an engine gives no figures", url=url, error=repr(error))
            up.add_metric((str(number),), 0.0)
            continue
        up.add_metric((str(number),), 1.0)
        for family in found:
            if family.name not in PASSED_ON:
                continue
            metric = passed.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    metric.add_sample(sample.name, {**sample.labels, "server": str(number)}, sample.value)
    yield up
    yield from passed.values()


def _asked(url: str, key: str) -> str:
    """The lines of the figures that are passed on. Raises OSError."""
    request = urllib.request.Request(f"{url}/metrics", headers={"authorization": f"Bearer {key}"} if key else {})
    with _open(request, timeout=PATIENCE) as answer:
        text = answer.read(MAX_BYTES).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if _name_of(line) in _NAMES]
    return "\n".join(lines[:MAX_LINES]) + "\n"


def _name_of(line: str) -> str:
    if line.startswith(("# HELP ", "# TYPE ")):
        return line.split(" ", 3)[2]
    return line.partition("{")[0].partition(" ")[0]
