"""A journal as it is after a long time of traffic: turns, verdicts and jobs, made by SQL in a minute."""

import time

from sqlalchemy import text

from burnish.journal import Journal

_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :n)"
_TURNS = f"""
INSERT INTO interaction (interaction_id, request_id, agent, version, tenant, key_id, session_id, parent_id, link_rule,
    kind, kind_reason, route, retry, started_at, ended_at, finish_reason, sampling, message_digests, reply_digest,
    n_behind, request_hash, tail_hash, suffix_hash, words_hash, prompt_ids, token_ids, logprobs, choice, n_choices,
    may_train, is_aborted, is_ready, skip_reason, spent_step)
{_NUMBERS}
SELECT 'chatcmpl-' || i, 'r' || i, 'agent', 1, 'default', 'k', 's' || (i / 8), NULL, 'new', 'main', '', 'chat', 0,
    :now - (:n - i) - 1.0, :now - (:n - i), 'stop', '{{}}', '[]', 'd' || i, 0, 'h' || i, 't' || i, 'x' || i, 'w' || i,
    zeroblob(400), zeroblob(256), zeroblob(256), 0, 1, 1, 0, i % 3 = 0, CASE WHEN i % 3 = 1 THEN 'neutral' END,
    CASE WHEN i % 3 = 0 AND i < :n - 3000 THEN i / 3000 END
FROM n"""
_VERDICTS = f"""
INSERT INTO judgement (judgement_id, interaction_id, judge_id, origin, score, confidence, votes, n_failed, created_at,
    hint_status, findings, candidates)
{_NUMBERS}
SELECT 'j' || i, 'chatcmpl-' || i, 'judge', 'next_state', i % 3 - 1, 1.0, '[]', 0, :now - (:n - i),
    CASE i % 4 WHEN 0 THEN 'accepted' WHEN 1 THEN 'length' END, '[]', '[]'
FROM n"""
_JOBS = f"""
INSERT INTO judge_job (subject, payload, state, attempts, run_after, created_at)
{_NUMBERS} SELECT 'chatcmpl-' || i, '{{}}', CASE WHEN i > :n - 50000 THEN 'queued' ELSE 'done' END, 0, 0.0,
    :now - (:n - i) FROM n"""


def fill(journal: Journal, n_turns: int) -> None:
    """Add `n_turns` turns of a second each, the last one now. A third is ready, and all but the newest are spent."""
    values = {"n": n_turns, "now": time.time()}
    for statement in (_TURNS, _VERDICTS, _JOBS):
        with journal.write() as session:
            session.connection().execute(text(statement), values)
