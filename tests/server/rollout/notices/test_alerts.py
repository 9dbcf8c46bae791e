"""Alerts: a signed POST for each notice, in order, again after a failure. A bad webhook costs only log lines."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from burnish.server.rollout.notices import webhook as hooks
from burnish.server.rollout.notices.alerts import Alerts
from burnish.server.rollout.notices.webhook import Outcome, Webhook, is_public, secret_in

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@dataclass
class Receiver:
    """A webhook's other end. `statuses` are its next answers, then 204."""

    statuses: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append(({key.lower(): value for key, value in request.headers.items()}, await request.read()))
        status = self.statuses.pop(0) if self.statuses else 204
        return web.Response(status=status, headers={"location": self.url} if status == 302 else {})

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


async def hook(answer: Callable[[web.Request], Awaitable[web.Response]]) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_post("/hook", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"


def local(url: str, **options: Any) -> Webhook:
    return Webhook(url, SECRET, allows_private=True, **options)


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(2000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


async def test_a_webhook_gets_the_event_signed() -> None:
    receiver = Receiver()
    runner, url = await hook(receiver.answer)
    alerts = Alerts(local(url))
    alerts.send("rolled back", agent="agent", reason="worse", **{"from": 2, "to": 1})
    await alerts.close()
    await runner.cleanup()
    ((headers, body),) = receiver.got
    tree = json.loads(body)
    assert (tree["event"], tree["agent"], tree["from"], tree["to"]) == ("rolled back", "agent", 2, 1)
    assert tree["text"] == "agent was rolled back from v2 to v1: worse"
    assert headers["webhook-id"] == tree["id"]
    signed = f"{tree['id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(b"k" * 32, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


async def test_a_slack_receiver_gets_text_alone() -> None:
    receiver = Receiver()
    runner, url = await hook(receiver.answer)
    alerts = Alerts(local(f"slack+{url}"))
    alerts.send("version refused", agent="agent", version=3, by="gate", reason="<unlearned> 9 & more")
    await alerts.close()
    await runner.cleanup()
    assert receiver.bodies == [{"text": "Burnish: agent@v3 was refused by gate: &lt;unlearned&gt; 9 &amp; more"}]


async def test_a_failed_notice_comes_again_with_its_id_and_before_the_next(tmp_path: Path) -> None:
    receiver = Receiver(statuses=[503, 429, 204])
    runner, url = await hook(receiver.answer)
    alerts = Alerts(local(url), tmp_path / "notices.json", first_pause=0.01)
    alerts.send("one")
    alerts.send("two")
    await until(lambda: len(receiver.got) == 4)
    await alerts.close()
    await runner.cleanup()
    assert [body["event"] for body in receiver.bodies] == ["one", "one", "one", "two"]
    assert len({headers["webhook-id"] for headers, _ in receiver.got[:3]}) == 1
    assert json.loads((tmp_path / "notices.json").read_text()) == []


async def test_what_waits_goes_out_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "notices.json"
    before = Alerts(local("http://127.0.0.1:9/hook"), file)
    before.send("one", notice_id="audit-7")
    await before.close()
    receiver = Receiver()
    runner, url = await hook(receiver.answer)
    after = Alerts(local(url), file)
    after.resume()
    await until(lambda: bool(receiver.got))
    await after.close()
    await runner.cleanup()
    assert receiver.got[0][0]["webhook-id"] == "audit-7"


async def test_a_notice_that_is_refused_or_too_old_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver(statuses=[404, 204])
    runner, url = await hook(receiver.answer)
    alerts = Alerts(local(url), first_pause=0.01)
    alerts.send("refused")
    alerts.send("next")
    await until(lambda: len(receiver.got) == 2)
    monkeypatch.setattr("burnish.server.rollout.notices.alerts.OLDEST", 0.0)
    receiver.statuses = [500, 204]
    alerts.send("old")
    alerts.send("new")
    await until(lambda: len(receiver.got) == 4)
    await alerts.close()
    await runner.cleanup()
    assert [body["event"] for body in receiver.bodies] == ["refused", "next", "old", "new"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("not an address", False),
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
    ],
)
def test_an_address_is_public_or_not(host: str, expected: bool) -> None:
    assert is_public(host) is expected


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "2130706433"])
async def test_a_private_address_gets_nothing_unless_it_is_allowed(name: str) -> None:
    receiver = Receiver()
    runner, url = await hook(receiver.answer)
    outcome = await Webhook(url.replace("127.0.0.1", name), SECRET).post({"id": "1", "event": "e", "at": 1.0})
    allowed = await local(url).post({"id": "1", "event": "e", "at": 1.0})
    await runner.cleanup()
    assert (outcome, allowed) == (Outcome.REFUSED, Outcome.DELIVERED)
    assert len(receiver.got) == 1


async def test_a_redirect_is_not_followed() -> None:
    receiver = Receiver(statuses=[302])
    runner, url = await hook(receiver.answer)
    receiver.url = url
    assert await local(url).post({"id": "1", "event": "e", "at": 1.0}) is Outcome.REFUSED
    await runner.cleanup()
    assert len(receiver.got) == 1


@pytest.mark.parametrize("kind", ["dead", "refusing", "slow", "no url"])
async def test_a_bad_webhook_costs_nothing(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def answer(_: web.Request) -> web.Response:
        if kind == "slow":
            await asyncio.sleep(0.5)
        return web.Response(status=500)

    runner, url = await hook(answer)
    if kind == "dead":
        await runner.cleanup()
    alerts = Alerts(local("nonsense" if kind == "no url" else url, timeout=0.2))
    alerts.send("canary stopped", agent="agent")
    await alerts.close()
    await runner.cleanup()
    assert "the alert webhook" in capsys.readouterr().out


def test_outside_an_event_loop_it_is_only_logged(capsys: pytest.CaptureFixture[str]) -> None:
    Alerts(local("http://127.0.0.1:9/hook")).send("canary stopped", agent="agent")
    assert "canary stopped" in capsys.readouterr().out


def test_the_secret_is_made_once_and_is_private(tmp_path: Path) -> None:
    made = secret_in(tmp_path)
    assert made == secret_in(tmp_path)
    assert len(base64.b64decode(made.removeprefix("whsec_"))) == 32
    assert (tmp_path / "webhook.key").stat().st_mode & 0o777 == 0o600
    assert hooks.POST_SECONDS < 10
