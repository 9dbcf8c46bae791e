"""deploy/monitoring: every rule and panel parses, and every metric in them exists."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.server.gateway.metrics.from_engines import PASSED_ON
from burnish.server.gateway.metrics.scrape import PATH, Scraper

HOME = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
NAME = re.compile(r"(?:burnish_|vllm:)\w+")
KINDS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def rules() -> list[Any]:
    (group,) = yaml.safe_load((HOME / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[Any]:
    return list(json.loads((HOME / "grafana.json").read_text())["panels"])


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all series that `/metrics` may show."""
    settings = Settings(state_dir=tmp_path_factory.mktemp("monitoring"))
    journal = prepare(settings)
    text = Scraper(settings, journal).text().decode()
    journal.close()
    found = {family.name + kind for family in text_string_to_metric_families(text) for kind in KINDS[family.type]}
    return found | {name + kind for name in PASSED_ON for kind in ("", "_total", "_bucket", "_sum", "_count")}


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_parses_and_its_metrics_exist(expression: str, exposed: set[str]) -> None:
    promql_parser.parse(expression)
    names = set(NAME.findall(expression))
    assert names and names <= exposed


def test_a_broken_expression_is_found(exposed: set[str]) -> None:
    with pytest.raises(ValueError):
        promql_parser.parse("rate(burnish_requests_total[5m]")
    assert "burnish_requests" not in exposed


def test_every_alert_says_what_is_wrong_and_the_remedy() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 10
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "warn")
        assert {"summary", "remedy"} <= set(rule["annotations"])
        assert all(text.rstrip().endswith(".") for text in rule["annotations"].values())


def test_every_family_of_burnish_is_on_the_dashboard_or_in_an_alert(exposed: set[str]) -> None:
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed if name.startswith("burnish_")}
    told = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    assert families - told == {
        "burnish_observations",
        "burnish_step_ended_timestamp_seconds",
        "burnish_step_gradient_norm",
        "burnish_step_loss",
        "burnish_step_rows",
        "burnish_step_seconds",
        "burnish_versions_undecided",
    }


def test_panels_do_not_overlap() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places)


def test_prometheus_scrapes_the_route() -> None:
    (job,) = yaml.safe_load((HOME / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == PATH
    assert (HOME / yaml.safe_load((HOME / "prometheus.yml").read_text())["rule_files"][0]).exists()
