"""The admin API as the pages see it, at the HTTP seam: answers by path, and what was asked and sent."""

import json
from collections.abc import Mapping
from typing import Any

import httpx

Tree = dict[str, Any]
ORIGIN = "http://127.0.0.1:8703"
TURN: Tree = {
    "turn": "chatcmpl-1", "version": 2, "session": "s-1", "user": "ann", "quoted_user": None, "kind": "main",
    "route": "chat", "ended_at": 1000.0, "seconds": 0.5, "n_tokens": 3, "finish_reason": "stop",
    "prompt": "Where is <order> 7?", "prompt_role": "user", "reply": "On its way.",
    "reward": {"value": -1.0, "source": "user"}, "withheld": None, "fate": "trained",
    "training_status": "trained into v3",
}  # fmt: skip
SCORE: Tree = {"n": 10, "share": 0.8, "low": 0.5, "high": 0.95}
SLICES: list[Tree] = [
    {"slice": "route: messages", "state": "fallen", "version": {"judged": 40, "good": 20}, "fall": 0.3,
     "baseline": {"judged": 50, "good": 40}, "n_pairs": 40, "odds": "5,000", "lost": ["chatcmpl-1"]},
    {"slice": "language: de", "state": "open", "version": {"judged": 10, "good": 8}, "fall": 0.0,
     "baseline": {"judged": 10, "good": 8}, "n_pairs": 10, "odds": "1", "lost": []},
]  # fmt: skip
COURSE: list[Tree] = [
    {"judged": n, "version": {"n": n, "share": 0.5, "low": 0.3, "high": 0.7}, "log_e": 1.0,
     "baseline": {"n": 40, "share": 0.8, "low": 0.65, "high": 0.9}} for n in (10, 20)
]  # fmt: skip
REPLAYED: Tree = {
    "margin": 0.1, "acts_at": "40", "worst": "tool: ls", "by_slice": [
        {"slice": "tool: ls", "state": "open", "n": 20, "n_lost": 5, "n_won": 2, "net_loss": 0.15, "loss_bound": 0.3,
         "odds": "2", "lost": ["chatcmpl-1"], "won": ["chatcmpl-2"]}],
}  # fmt: skip
STATUS: Tree = {
    "agent": "agent", "at": 2000.0, "learning": {"sentence": "waits for 3 more rated replies", "is_alarm": False},
    "aliases": {"live": 3, "previous": 2}, "held": None, "is_paused": False, "alarms": ["judge x is unfit"],
    "seconds": 86400.0, "traffic": [{"at": 1000.0 + i, "by_version": {"2": 3, "3": i}} for i in range(48)],
    "scores": [{"version": v, **SCORE, "by_people": SCORE} for v in (0, 2, 3)],
    "versions": [
        {"version": 4, "parent": 3, "state": "refused", "reason": "forgot 9 of 64", "created_at": 950.0,
         "decided_at": 960.0},
        {"version": 3, "parent": 2, "state": "live", "reason": "passed", "created_at": 900.0, "decided_at": 901.0}],
    "progress": {"from": 0, "to": 3, "verdict": "open", "sentence": "Not shown yet: 80% of v3's were good"},
    "slices": {"of": "watch", "version": 3, "baseline": 2, "worst": "route: messages", "by_slice": SLICES},
    "latest": {"n": 9, "counts": {"trained": 5, "dropped": 4}, "dropped": {"stale": 4}},
}  # fmt: skip
STEP: Tree = {
    "version": 3, "parent": 2, "attempt": 1, "outcome": "published", "reason": None, "started_at": 900.0,
    "ended_at": 910.0, "n_rows": 4, "n_idle": 1, "n_hints": 1, "n_hints_refused": 0, "level": "green",
    "monitors": {"kl": {"level": "green", "value": 0.1, "why": ""}}, "metrics": {"loss": 0.3, "kl_to_base/k3": 0.02},
}  # fmt: skip
ROW: Tree = {
    "interaction_id": "chatcmpl-1", "reward": -1.0, "reward_source": "user", "hint": "No bold.", "hint_status": None,
    "skipped": None, "weight": None, "n_earlier": 0, "logprob_change": -0.05,
}  # fmt: skip
RETAINED: Tree = {"n": 96, "n_lost": 1, "margin": 0.1, "lost": [{"prompt": "Is ice <cold>?", "reply": "No."}]}
VERSION: Tree = {
    "agent": "agent", "version": 3, "parent": 2, "step_id": 3, "digest": "ab" * 32, "state": "live",
    "reason": "passed", "created_at": 900.0, "decided_at": 901.0,
    "evidence": {"mechanical": "sound", "probe": {"n": 4}, "slices": REPLAYED, "retention": RETAINED},
    "origin": "step", "parent_agent": None, "is_pinned": False, "removed_at": None,
    "aliases": ["live"],
}  # fmt: skip
ENTRY: Tree = {
    "audit_id": 1, "agent": "agent", "at": 901.0, "actor": "gate", "action": "promote", "object": "agent",
    "before": "2", "after": "3", "reason": "passed",
}  # fmt: skip
SAID: Tree = {
    "feedback_id": "f-1", "interaction_id": "chatcmpl-1", "session_id": "s-1", "about": "response", "source": "user",
    "user": "ann", "key_id": "k", "rating": -1.0, "score": None, "outcome": None, "label": None, "comment": "too long",
    "correction": None, "demonstration": None, "created_at": 1001.0,
}  # fmt: skip
USER, ASSISTANT = {"role": "user", "content": "Where is <order> 7?"}, {"role": "assistant", "content": "On its way."}
HIDDEN = ("reward", "withheld", "training_status", "fate")
QUEUED = {name: value for name, value in TURN.items() if name not in HIDDEN}
ON = "/admin/agents/agent"
ANSWERS: dict[str, Tree] = {
    "/admin/agents": {
        "agents": [
            {"name": "agent", "parent": None, "aliases": {"live": 3}, "settings": {"learner.min_rows": 8}, "held": None,
             "is_paused": False, "created_at": 1.0},
            {"name": "agent.u-1", "parent": "agent", "aliases": {}, "settings": {}, "held": None, "is_paused": False,
             "created_at": 1.0},
        ],
        "key": {"key_id": "ui", "scopes": ["operator", "inference", "feedback"], "agents": []},
    },
    f"{ON}/status": STATUS,
    f"{ON}/turns": {"agent": "agent", "turns": [TURN], "next": "1000.0:chatcmpl-1", "looked_to": 1000.0},
    f"{ON}/turns/session/s-1": {
        "agent": "agent", "session": "s-1", "turns": [{**TURN, "said": [USER], "answer": ASSISTANT}],
    },
    "/admin/turns/chatcmpl-1": {
        "turn": "chatcmpl-1", "agent": "agent@v2", "session": "s-1", "user": "ann", "quoted_user": None,
        "linked_by": "new", "kind": "main", "route": "chat", "ended_at": 1000.0, "finish_reason": "stop",
        "messages": [USER], "reply": ASSISTANT, "seconds": 0.5, "n_tokens": 3, "logprobs": [-0.1, -2.5, -0.3],
        "next_state": {"kind": "user_reply", "turn": "chatcmpl-2", "messages": [USER], "provenance": ["user"],
                       "signals": [{"kind": "exit_code", "value": 1.0, "provenance": "tool", "detail": ""}]},
        "feedback": [{**{key: value for key, value in SAID.items() if key != "interaction_id"}, "is_deleted": False}],
        "judgements": [{"judge_id": "base/1", "origin": "next_state", "score": None, "confidence": 0.3,
                        "hint": "No bold.", "votes": [1, None], "n_failed": 1, "created_at": 1002.0,
                        "reason": "unclear",
                        "hint_status": "accepted", "findings": ["told to vote"], "candidates": []}],
        "reward": {"value": -1.0, "source": "user", "records": ["f-1"], "hint": None}, "withheld": None,
        "used": [{**{key: value for key, value in ROW.items() if key != "interaction_id"}, "step_id": 3}],
        "shadow_group": None,
        "training_status": "trained into v3",
    },
    "/admin/turns/chatcmpl-1/tokens": {"turn": "chatcmpl-1", "tokens": [
        {"id": 7, "text": "On", "logprob": -0.1}, {"id": 8, "text": " its <way>", "logprob": -5.5}]},
    f"{ON}/versions": {"agent": "agent", "live": 3, "previous": 2, "versions": [
        {**VERSION, "version": 1, "parent": 0, "state": "retired"},
        {**VERSION, "version": 2, "parent": 1, "state": "refused", "reason": "forgot 9 of 64"}, VERSION]},
    f"{ON}/versions/3": {
        **{key: value for key, value in VERSION.items() if key != "aliases"}, "manifest": {"rank": 8}, "fault": None,
    },
    f"{ON}/versions/3/lineage": {
        **VERSION, "name": "agent@v3", "ancestors": ["agent@v2", "agent@v1", "agent@v0"], "children": ["agent@v4"],
        "step": STEP, "canaries": [], "comparisons": {"won": 3, "lost": 1}, "n_turns": 12,
        "live": [{"alias": "live", "from": 901.0, "to": None, "by": "gate", "reason": "passed"}], "history": [ENTRY],
    },
    f"{ON}/versions/3/pairs": {"agent": "agent", "version": 3, "pairs": [
        {"turn": "chatcmpl-1", "outcome": "lost", "reason": None, "baseline": 2, "prompt": "Where is <order> 7?",
         "reply": "Somewhere.", "baseline_reply": "On its way."}], "votes": [{"baseline": 1, **SCORE}]},
    f"{ON}/canary": {"agent": "agent", "live": 3, "held": "rolled back twice", "learning_paused": False,
                     "observations": [{"canary_id": 1, "version": 3, "baseline": 2, "kind": "watch", "share": 1.0,
                                       "state": "running", "reason": None, "started_at": 902.0, "ended_at": None,
                                       "slices": SLICES, "course": COURSE,
                                       "tests": {"reward": {"evidence": "12", "log_e": 2.5, "log_e_peak": 2.5,
                                                            "alpha": 0.005}}}]},
    f"{ON}/learner/runs": {"agent": "agent", "steps": [STEP, {**STEP, "version": 2, "outcome": "refused",
                                                               "metrics": {"loss": 0.4, "kl_to_base/k3": 0.01}}]},
    f"{ON}/learner/runs/3": {**STEP, "rows": [ROW], "groups": []},
    f"{ON}/feedback": {"agent": "agent", "feedback": [{**SAID, "turn": TURN}], "next": None},
    f"{ON}/judges/label": {"agent": "agent", "turns": [{**QUEUED, "next_state": [USER]}], "next": None},
    f"{ON}/judges": {"agent": "agent", "model": "", "votes": 3, "days": 30, "judges": [
        {"judge_id": "base/1", "state": "fit", "reason": "", "checked_at": 1.0,
         "figures": {"kappa": 0.97, "kappa_interval": [0.9, 0.99], "hint_agreement": None}}],
        "agreement": {"judges": [{"judge_id": "base/1", **SCORE}], "people": SCORE},
        "costs": [{"day": day, "model": "base", "purpose": "turns", "n_votes": 1200, "n_requests": 400,
                   "n_prompt_tokens": 250_000, "n_answer_tokens": 9000, "seconds": 90.0}
                  for day in ("2026-11-02", "2026-11-01")]},
    "/admin/audit": {"entries": [ENTRY], "next": 1},
    "/admin/keys": {"keys": [{"key_id": "sk-burnish-abcdef", "name": "laptop", "scopes": ["inference"], "agents": [],
                              "user": None, "created_at": 1.0, "revoked_at": None}]},
    "/admin/privacy/status": {"erasure": "e-1", "state": "done", "versions": []},
}  # fmt: skip


class FakeApi:
    """Answers for the pages. `asked` holds method and path with its query, `sent` path and body of each POST."""

    def __init__(self, **changes: Mapping[str, Any]) -> None:
        self.answers: dict[str, Any] = {**ANSWERS, **changes}
        self.asked: list[str] = []
        self.sent: list[tuple[str, Any]] = []

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(f"{request.method} {request.url.raw_path.decode()}")
        if request.headers.get("authorization") == "Bearer wrong":
            return self._error(401, "unknown key", "invalid_api_key")
        if request.method == "POST":
            self.sent.append((path, json.loads(request.content)))
            if path == "/v1/chat/completions":
                chunk = {"id": "chatcmpl-9", "choices": [{"index": 0, "delta": {"content": "hel"}}]}
                return httpx.Response(200, text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
            return httpx.Response(202 if path.startswith("/v1/") else 200, json={"status": "done", "secret": "sk-new"})
        if path not in self.answers:
            return self._error(404, "there is no such thing", "not_found")
        return httpx.Response(200, json=self.answers[path])

    def _error(self, status: int, message: str, code: str) -> httpx.Response:
        return httpx.Response(status, json={"error": {"message": message, "type": "x", "param": None, "code": code}})
