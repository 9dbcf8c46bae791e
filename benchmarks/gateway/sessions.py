"""500 conversations of 100 KB that grow by two messages a turn, like those of agents with a long history."""

from functools import lru_cache

from benchmarks.gateway.upstream import TEXT

N_HISTORY = 96  # messages before the first turn
MESSAGE = 1000  # characters of each
_WORDS = "function returns the value of its argument unless it is negative, in which case \\n it raises an error; "


@lru_cache(maxsize=600)
def _history(session: int, n_messages: int) -> str:
    """The first messages of a conversation, as JSON text without the brackets."""
    parts = []
    for i in range(n_messages):
        role = "user" if i % 2 == 0 else "assistant"
        text = (f"session {session} message {i}: " + _WORDS * 12)[:MESSAGE].rstrip("\\")
        parts.append(f'{{"role": "{role}", "content": "{text}"}}')
    return ", ".join(parts)


@lru_cache(maxsize=600)
def _later(turn: int) -> str:
    """The two messages that turn number `turn` adds: the agent's last reply and the next request."""
    said = f'{{"role": "assistant", "content": "{TEXT}"}}, ' if turn else ""
    return f'{said}{{"role": "user", "content": "turn {turn}: {(_WORDS * 8)[:700]}"}}'


def body_of(session: int, turn: int, model: str, n_history: int = N_HISTORY) -> bytes:
    """The request of one turn. `n_history` is the number of messages before the first turn, an even one."""
    later = ", ".join(_later(i) for i in range(turn + 1))
    return f'{{"model": "{model}", "messages": [{_history(session, n_history)}, {later}]}}'.encode()
