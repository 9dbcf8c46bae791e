"""Gateways and a judge on hosts of their own: PostgreSQL, and a state directory that all hosts have mounted."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests import postgres
from tests.e2e.hosts import ADDRESS, Hosts, connected, hosts_lack
from tests.e2e.whole import free_port, until
from tests.postgres import Postgres

GATEWAY = "http://127.0.0.1:8700"
FRONTS = ("front-1", "front-2")
BURNISH = (sys.executable, "-m", "burnish", "run")


@dataclass
class Several:
    hosts: Hosts
    server: Postgres
    database: str
    key: str

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return self.server.rows(query, self.database)

    def chat(self, host: str, *texts: str) -> tuple[int, dict[str, object]]:
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
        return self.hosts.ask(host, f"{GATEWAY}/v1/chat/completions", {"model": "agent", "messages": messages})


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """In the middle: database, engine, ingester and swapper. Two fronts: a gateway on each, a judge on the second."""
    if (lacking := hosts_lack()) is not None:
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("hosts")
    port, engine_port = free_port(), free_port()
    with connected(folder, "back", *FRONTS) as hosts:
        within = ("ip", "netns", "exec", hosts.space("back"))
        with postgres.serve(within=within, address=ADDRESS, port=port) as server:
            name = server.empty()
            settings = {
                "STATE_DIR": str(folder / "state"),
                "JOURNAL__URL": f"postgresql+psycopg://burnish@{ADDRESS}:{port}/{name}",
                "ENGINE__URLS": [f"http://{ADDRESS}:{engine_port}"],
                "GATEWAY__PROCESSES": 1,
            }
            stub = (sys.executable, "-m", "burnish.testing", "--host", ADDRESS, "--port", str(engine_port))
            hosts.start("back", "engine", stub)
            for part in ("ingester", "swapper"):
                hosts.start("back", part, [*BURNISH, part], settings)
            for host in FRONTS:
                hosts.start(host, f"gateway-{host}", [*BURNISH, "gateway"], settings)
            hosts.start("front-2", "judge", [*BURNISH, "judge"], settings)
            made = Several(hosts, server, name, "")
            for host in FRONTS:
                until(lambda host=host: made.chat(host, "Are you there?")[0] == 200, f"{host} to answer", 120)  # type: ignore[misc]
            made.key = (folder / "state" / "admin.key").read_text().strip()
            yield made


def test_a_conversation_may_change_its_host_at_every_turn(several: Several) -> None:
    first = "On which host are we?"
    status, one = several.chat("front-1", first)
    reply = one["choices"][0]["message"]["content"]  # type: ignore[index]
    later, two = several.chat("front-2", first, reply, "And now?")
    assert (status, later) == (200, 200)
    query = "SELECT parent_id FROM interaction WHERE request_id = '{}' OR interaction_id = '{}'"
    until(lambda: bool(several.rows(query.format(two["id"], two["id"]))), "the second turn to be filed", 60)
    ((parent,),) = several.rows(query.format(two["id"], two["id"]))
    assert parent == one["id"]


def test_a_rating_may_come_to_another_host(several: Several) -> None:
    _, reply = several.chat("front-1", "Rate me elsewhere.")
    body = {"target": reply["id"], "rating": "up"}
    assert several.hosts.ask("front-2", f"{GATEWAY}/v1/feedback", body, several.key)[0] == 202
    query = f"SELECT 1 FROM feedback WHERE interaction_id = '{reply['id']}'"
    until(lambda: bool(several.rows(query)), "the rating to reach its reply", 60)


def test_a_new_key_is_known_on_every_host_at_once(several: Several) -> None:
    body = {"name": "elsewhere", "scopes": ["feedback"]}
    status, made = several.hosts.ask("front-1", f"{GATEWAY}/admin/keys", body, several.key)
    assert status == 200, made
    _, reply = several.chat("front-2", "Who may rate?")
    given = {"target": reply["id"], "rating": "down"}
    assert several.hosts.ask("front-2", f"{GATEWAY}/v1/feedback", given, made["secret"])[0] == 202


def test_a_host_without_a_cable_harms_nobody_else_and_loses_nothing(several: Several) -> None:
    asked = [f"before and after {n}" for n in range(4)]
    assert several.chat("front-2", asked[0])[0] == 200
    several.hosts.cable("front-2", is_in=False)
    assert several.chat("front-1", asked[1])[0] == 200
    status, said = several.chat("front-2", "into the dark")
    assert status == 503, said
    several.hosts.cable("front-2", is_in=True)
    until(lambda: several.chat("front-2", asked[2])[0] == 200, "the second front to answer again", 60)
    assert several.chat("front-1", asked[3])[0] == 200
    found = "SELECT count(*) FROM blob WHERE body LIKE '%before and after %'"
    until(lambda: several.rows(found) == [(4,)], "everything to be filed", 60)


def test_the_judge_works_on_another_host(several: Several) -> None:
    """It has lost its connection to the database in the test before. The stub's words are no verdict, so it may try
    again."""
    first = "Is this judged elsewhere?"
    _, one = several.chat("front-1", first)
    reply = one["choices"][0]["message"]["content"]  # type: ignore[index]
    several.chat("front-1", first, reply, "No, that is wrong.")
    query = f"SELECT worker FROM judge_job WHERE subject LIKE '{one['id']}%' AND attempts > 0"
    until(lambda: bool(several.rows(query)), "the judge to try", 120)
    assert several.hosts.programs["judge"].poll() is None
