"""Random conversations: every turn with distinct words before it must be linked to its true parent."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnish.journal import Journal
from burnish.records import Interaction
from tests.factories import user
from tests.server.ingest.pen import Pen, follow, ingest, links, next_state

GATEWAYS = "abc"
DRESSES = ("plain", "spaces", "parts", "extra fields")


def dressed(message: dict[str, Any], dress: str) -> dict[str, Any]:
    """A reply as one of several clients sends it back."""
    text = message["content"]
    if dress == "spaces":
        return message | {"content": f" {text}\n"}
    if dress == "parts":
        return message | {"content": [{"type": "text", "text": text[:3]}, {"type": "text", "text": text[3:]}]}
    return message | {"refusal": None, "annotations": []} if dress == "extra fields" else message


turns = st.lists(
    st.fixed_dictionaries(
        {
            "parent": st.one_of(st.none(), st.integers(0, 30)),
            "gateway": st.sampled_from(GATEWAYS),
            "speaker": st.sampled_from(["ana", "ben", ""]),
            "dress": st.sampled_from(DRESSES),
            "is_tool": st.booleans(),
            "reply": st.sampled_from(["ok", "hello", "as you wish"]),
            "is_ingested": st.booleans(),
        }
    ),
    min_size=1,
    max_size=25,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(plan=turns)
def test_every_turn_finds_its_true_parent(migrated_file: Path, plan: list[dict[str, Any]]) -> None:
    """Replies repeat, users and branches mix, segments are read at any moment: no link is wrong, none is missing."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(migrated_file, Path(folder) / "journal.db")
        journal, pen = Journal.open(f"sqlite:///{folder}/journal.db"), Pen(Path(folder) / "segments")
        said: list[Interaction] = []
        true_parent: dict[str, Interaction | None] = {}
        for i, step in enumerate(plan):
            parent = said[step["parent"] % len(said)] if said and step["parent"] is not None else None
            came_back = user(f"message {i}")  # no two requests have the same text
            if step["is_tool"] and parent is not None:
                came_back = {"role": "tool", "tool_call_id": f"c{i}", "content": f"result {i}"}
            messages = [came_back]
            speaker = step["speaker"]
            if parent is not None:
                messages = follow(parent, came_back)
                messages[-2] = dressed(messages[-2], step["dress"])
                speaker = parent.user or ""
            turn = pen.say(messages, step["reply"], gateway=step["gateway"], user=speaker or None)
            said.append(turn)
            true_parent[turn.interaction_id] = parent
            if step["is_ingested"]:
                ingest(journal, pen)
        ingest(journal, pen)
        found = links(journal)
        roots: dict[str, str] = {}
        for name, parent in true_parent.items():
            roots[name] = roots[parent.interaction_id] if parent else name
            assert found[name].parent == (parent.interaction_id if parent else None)
            assert found[name].rule == ("prefix" if parent else "new")
        pairs = {(roots[name], link.session) for name, link in found.items()}
        assert len(pairs) == len(set(roots.values())) == len({session for _, session in pairs})
        first_child: dict[str, str] = {}
        for name, parent in true_parent.items():
            if parent is not None:
                first_child.setdefault(parent.interaction_id, name)
        for turn in said:
            state = next_state(journal, turn)
            assert (state and state[2]) == first_child.get(turn.interaction_id)
        journal.close()
