"""Every page with a fake admin API: what it asks for, what it shows, and what its forms send."""

import re
import time
from html.parser import HTMLParser

import pytest

from burnish.server.ui.pages import PAGES
from tests.server.ui.fake_api import ANSWERS, FakeApi
from tests.server.ui.visitors import post, visiting

SHOWN = {
    "/a/agent/overview": [
        "waits for 3 more rated replies",
        "judge x is unfit",
        "80%",
        "stale",
        "trained into v3",
        "Worst in <b>route: messages</b>",
        "-30 points",
        "5,000 to 1",
        "no change",
    ],
    "/a/agent/conversations": ["Where is &lt;order&gt; 7?", "On its way.", "trained into v3", "Older"],
    "/a/agent/sessions/s-1": ["Where is &lt;order&gt; 7?", "reply of v2"],
    "/a/agent/turns/chatcmpl-1": [
        "trained into",
        "by user",
        "too long",
        "hint, accepted",
        "told to vote",
        "exit code",
        "4.9% less",
    ],
    "/a/agent/versions": [
        "forgot 9 of 64",
        "rolled back twice",
        "Roll back to v2",
        "v3 compared with v2",
        "v3 50% good of 20 judged turns, v2 80%",
        "reward <b>12 to 1</b>, stops at 200 to 1",
    ],
    "/a/agent/versions/3": [
        "12 turns",
        "mechanical",
        "Roll back to v2",
        "Compare with v2",
        "won <b>3</b>",
        "/turns/chatcmpl-2",
        "in <b>80%</b> of 10 votes",
        "By slice, in its watch beside v2",
        "Worst in <b>tool: ls</b>",
        "-15 points",
        "Is ice &lt;cold&gt;?",
    ],
    "/a/agent/feedback": ["too long", "ann", "Correct", "said=demonstration"],
    "/a/agent/labels": ["Cannot tell", "On its way.", "why=second"],
    "/a/agent/compare": ["v3 (live)", "Ask both"],
    "/a/agent/learner": ["kl to base/k3", "published", "refused", "Take a step now"],
    "/a/agent/learner/3": ["No bold.", "chatcmpl-1", "4.9% less likely a token"],
    "/a/agent/judges": [
        "base/1",
        "0.9 to 0.99",
        "People agree with it on <b>80%</b> of 10",
        'verdicts on replies</td><td class="n">2,400',
        "500,000",
        "3 min",
        "2026-11-02",
    ],
    "/agents": ["learner.min_rows = 8"],
    "/keys": ["sign in with the key in"],
    "/people?user=ann": ["Keep out of training", "done"],
    "/audit": ["promote", "Older"],
}


class Tags(HTMLParser):
    """The tags of a page, and whether each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.inline: list[str] = []
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [str(value) for name, value in attrs if name == "id"]
        self.inline += [name for name, _ in attrs if name == "style" or name.startswith("on")]
        if tag == "script" and "src" not in dict(attrs):
            self.inline.append("script")
        if tag not in {"meta", "link", "input", "img", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@pytest.mark.parametrize("path", SHOWN)
async def test_a_page_shows_what_the_api_says_and_is_sound_html(path: str) -> None:
    async with visiting(FakeApi()) as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    text = answer.text
    assert [words for words in SHOWN[path] if words not in text] == []
    assert "<order>" not in text  # what people write is escaped
    tags = Tags()
    tags.feed(re.sub(r"<(path|rect|circle|line)([^>]*)/>", "", text))
    assert (tags.faults, tags.open, tags.inline) == ([], [], [])
    assert len(set(tags.ids)) == len(tags.ids)


def test_every_page_is_shown_by_a_test() -> None:
    paths = {re.sub(r"\{(\w+)(:\w+)?\}", r"\1", path) for path, methods, _ in PAGES if "GET" in methods}
    names = {"agent": "agent", "session": "s-1", "turn": "chatcmpl-1", "version": "3"}
    filled = {
        "/".join(names.get(part, part) if part not in ("sessions",) else part for part in path.split("/"))
        for path in paths
    }
    assert filled - {path.partition("?")[0] for path in SHOWN} == {"/", "/go"}


async def test_filters_become_the_apis_query_and_stay_in_the_form() -> None:
    api = FakeApi()
    async with visiting(api) as client:
        answer = await client.get(
            "/a/agent/conversations?text=%3Corder%3E&version=v2&user=ann&fate=trained&hours=24&before=9.0:x"
        )
    assert '<option value="24" selected>day</option>' in answer.text
    assert "<mark>&lt;order&gt;</mark>" in answer.text
    asked = next(each for each in api.asked if "/turns?" in each)
    for wanted in (
        "text=%3Corder%3E",
        "version=2",
        "user=ann",
        "fate=trained",
        "before=9.0",
        f"since={int(time.time() - 86_400) // 100}",
    ):
        assert wanted in asked
    assert 'href="/a/agent/conversations?text=%3Corder%3E' in answer.text.replace("&amp;", "&")


async def test_a_search_goes_on_until_a_page_is_full_or_there_is_no_more() -> None:
    pages = iter([{"turns": [], "next": "2.0:b", "looked_to": 2.0}, {"turns": [], "next": None, "looked_to": 1.0}])
    api = FakeApi()

    class Paged(dict[str, object]):
        def __getitem__(self, path: str) -> object:
            return next(pages) if path.endswith("/turns") else super().__getitem__(path)

    api.answers = Paged(api.answers)
    async with visiting(api) as client:
        answer = await client.get("/a/agent/conversations?text=x")
    assert sum("/turns?" in each for each in api.asked) == 2
    assert "Nothing found." in answer.text


@pytest.mark.parametrize(
    ("path", "fields", "sent"),
    [
        ("/a/agent/say", {"target": "t", "rating": "up"}, ("/v1/feedback", {"target": "t", "rating": 1.0})),
        ("/a/agent/say", {"target": "t", "rating": "unsure"}, ("/v1/feedback", {"target": "t", "rating": 0.0})),
        (
            "/a/agent/say",
            {"target": "t", "correction": "Yes.\r\nNow.", "was": "No."},
            ("/v1/feedback", {"target": "t", "correction": "Yes.\nNow."}),
        ),
        (
            "/a/agent/say",
            {"target": "t", "comment": "brief", "correction": "No.", "was": "No."},
            ("/v1/feedback", {"target": "t", "comment": "brief"}),
        ),
        (
            "/a/agent/release",
            {"verb": "promote", "version": "2", "expected": "3", "reason": "better"},
            ("/admin/agents/agent/promote", {"version": 2, "expected": 3, "reason": "better"}),
        ),
        (
            "/a/agent/release",
            {"verb": "rollback", "expected": "3"},
            ("/admin/agents/agent/rollback", {"expected": 3}),
        ),
        ("/a/agent/release", {"verb": "pin", "version": "2"}, ("/admin/agents/agent/versions/2/pin", {})),
        ("/a/agent/release", {"verb": "canary", "version": "2"}, ("/admin/agents/agent/canary/start", {"version": 2})),
        ("/a/agent/learner", {"verb": "pause", "reason": "r"}, ("/admin/agents/agent/learner/pause", {"reason": "r"})),
        ("/people", {"verb": "opt-out", "user": "ann"}, ("/admin/privacy/opt-out", {"user": "ann"})),
        ("/keys", {"revoke": "sk-burnish-abcdef"}, ("/admin/keys/revoke", {"key_id": "sk-burnish-abcdef"})),
    ],
)
async def test_a_form_sends_what_it_says(path: str, fields: dict[str, str], sent: tuple[str, object]) -> None:
    api = FakeApi()
    async with visiting(api) as client:
        answer = await post(client, path, **fields)
        assert answer.status_code == 303
        shown = await client.get(answer.headers["location"])
    assert api.sent == [sent]
    assert 'class="flash"' in shown.text


async def test_an_unchanged_correction_is_no_feedback() -> None:
    api = FakeApi()
    async with visiting(api) as client:
        answer = await post(client, "/a/agent/say", target="t", correction="No.", was="No.")
    assert (answer.status_code, api.sent) == (400, [])


async def test_a_replys_tokens_are_shown_as_text_when_asked_for() -> None:
    api = FakeApi()
    async with visiting(api) as client:
        plain = (await client.get("/a/agent/turns/chatcmpl-1")).text
        assert not any("/tokens" in each for each in api.asked)  # the engine is asked only if somebody wants it
        text = (await client.get("/a/agent/turns/chatcmpl-1?tokens=1")).text
        del api.answers["/admin/turns/chatcmpl-1/tokens"]
        without = await client.get("/a/agent/turns/chatcmpl-1?tokens=1")
    assert "/a/agent/turns/chatcmpl-1?tokens=1" in plain
    assert '<span class="level4" title="-5.5"> its &lt;way&gt;</span>' in text and 'class="level0"' in text
    assert without.status_code == 200 and "there is no such thing" in without.text


async def test_a_vote_makes_a_pair_for_preference_training() -> None:
    api = FakeApi()
    async with visiting(api) as client:
        streamed = await post(client, "/a/agent/compare/reply", version="3", prompt="hello")
        await post(client, "/a/agent/compare/vote", better="b", worse="w", text="Good.")
        await post(client, "/a/agent/compare/vote", better="b", worse="w", text="Good.", both="tie")
        await post(client, "/a/agent/compare/vote", better="b", worse="w", both="neither")
        refused = await post(client, "/a/agent/compare/vote", better="b", worse="w", text="")
    assert streamed.text.splitlines() == ['{"text": "hel"}', '{"turn": "chatcmpl-9"}']
    assert api.sent[0][1]["model"] == "agent@v3"
    assert [body["feedback"] for _, body in api.sent[1:]] == [
        [{"target": "w", "correction": "Good."}],  # the better one may be the better of two bad ones
        [{"target": "b", "rating": 0.0}, {"target": "w", "rating": 0.0}],
        [{"target": "b", "rating": -1.0}, {"target": "w", "rating": -1.0}],
    ]
    assert refused.status_code == 400


async def test_an_empty_journal_has_pages_that_say_what_to_do() -> None:
    status = {
        **ANSWERS["/admin/agents/agent/status"],
        "scores": [],
        "aliases": {},
        "traffic": [],
        "latest": {"n": 0, "counts": {}, "dropped": {}},
    }
    empty = {
        "/admin/agents/agent/status": status,
        "/admin/agents/agent/turns": {"turns": [], "next": None, "looked_to": None},
        "/admin/agents/agent/versions": {"live": None, "previous": None, "versions": []},
        "/admin/agents/agent/canary": {"held": None, "observations": []},
        "/admin/agents/agent/learner/runs": {"steps": []},
        "/admin/agents/agent/feedback": {"feedback": [], "next": None},
        "/admin/agents/agent/judges/label": {"turns": [], "next": None},
    }
    async with visiting(FakeApi(**empty)) as client:
        for page in ("overview", "conversations", "versions", "learner", "feedback", "labels", "compare"):
            assert (await client.get(f"/a/agent/{page}")).status_code == 200, page


async def test_a_refusal_of_the_gateway_is_a_page_or_a_sentence_on_the_page_before() -> None:
    async with visiting(FakeApi()) as client:
        missing = await client.get("/a/agent/turns/none")
        assert (missing.status_code, "there is no such thing" in missing.text) == (404, True)
        assert (await client.get("/a/agent/conversations?version=x")).status_code == 400
        assert (await client.get("/nowhere")).status_code == 404
        headers = {
            "origin": "http://127.0.0.1:8703",
            "accept": "text/html",
            "referer": "http://x/a/agent/versions?to=9",
        }
        told = await client.post("/a/agent/release", data={"verb": "dance"}, headers=headers)
        assert (told.status_code, told.headers["location"]) == (303, "/a/agent/versions?to=9")
        assert "Not done: expected one of promote" in (await client.get("/a/agent/versions")).text
