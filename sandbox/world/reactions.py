"""Users' reactions to a reply, in words, for the simulated users and for the rows that teach the judge.

Guarantees: no wording is in two groups, and none names a style attribute (those are in `hints`).
"""

import random

THANKS = (
    "Thanks!", "Thank you.", "Great, thanks.", "Perfect.", "That is right.", "Just what I wanted.", "Very good.",
    "Well done.", "Good, thank you!", "Exactly.",
)  # fmt: skip
WRONG = (
    "That is wrong.", "Wrong answer.", "That is not right.", "No, that is incorrect.", "The numbers are wrong.",
    "You made a mistake.",
)  # fmt: skip
UNHAPPY = (
    "I do not like this.", "Not good.", "That is not what I asked for.", "Please try again.",
    "I am not happy with this.", "This is bad.", "Hmm, no.", "Not like this.",
)  # fmt: skip
_LINKS = ("", "", "Now ", "Next, ", "And ")

SMALL_TALK: dict[str, str] = {
    "Hello.": "Hello! How can I help?",
    "Hi!": "Hello! How can I help?",
    "Good morning.": "Good morning! How can I help?",
    "How are you?": "I am fine. How can I help?",
    "Who are you?": "I am a small assistant.",
    "What can you do?": "I can copy, reverse, swap, count and look things up.",
    "Thank you.": "You are welcome.",
    "Thanks!": "You are welcome.",
    "Goodbye.": "Goodbye!",
    "Nice weather today.": "Indeed.",
    "I will be back soon.": "Good. I will be here.",
}
"""Small talk: a message that asks for nothing, and the assistant's answer. Style instructions do not affect it."""

PLAIN_SYSTEM = ("You are a helpful assistant.", "You are a helpful assistant. Answer the user.", "Be brief.")
"""System messages that ask for no style."""

NEUTRAL = tuple(text for text in SMALL_TALK if text not in THANKS)
"""Small talk that says nothing about the reply before it."""


def then(reaction: str, request: str, rng: random.Random) -> str:
    """The reaction and the next request as one message: "No bold please. Now reverse 3 9."."""
    link = rng.choice(_LINKS)
    return f"{reaction} {link}{request[0].lower() + request[1:] if link else request}"
