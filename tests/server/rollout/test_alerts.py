"""Alerts: a POST if a webhook is set. A dead, slow or refusing webhook costs only a log line."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from burnish.server.rollout.alerts import Alerts


async def hook(answer: Any) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_post("/hook", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"


async def test_a_webhook_gets_the_event_as_json() -> None:
    got: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        got.append(await request.json())
        return web.Response(status=204)

    runner, url = await hook(answer)
    alerts = Alerts(url)
    alerts.send("rolled back", agent="agent", **{"from": 2, "to": 1})
    await alerts.close()
    await runner.cleanup()
    assert got == [{"event": "rolled back", "agent": "agent", "from": 2, "to": 1}]


@pytest.mark.parametrize("kind", ["dead", "refusing", "slow", "no url"])
async def test_a_bad_webhook_costs_nothing(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def answer(_: web.Request) -> web.Response:
        if kind == "slow":
            await asyncio.sleep(5)
        return web.Response(status=500)

    runner, url = await hook(answer)
    if kind == "dead":
        await runner.cleanup()
    alerts = Alerts("nonsense" if kind == "no url" else url, timeout=0.2)
    alerts.send("canary stopped", agent="agent")
    await alerts.close()
    await runner.cleanup()
    assert "the alert webhook" in capsys.readouterr().out


def test_outside_an_event_loop_it_is_only_logged(capsys: pytest.CaptureFixture[str]) -> None:
    Alerts("http://127.0.0.1:9/hook").send("canary stopped", agent="agent")
    assert "canary stopped" in capsys.readouterr().out
