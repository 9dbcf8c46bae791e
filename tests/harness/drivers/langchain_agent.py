"""Drives LangChain's ChatOpenAI. The first argument says what to do; the last line printed is JSON."""

import json
import os
import sys
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def look(at: str) -> str:
    """Look at a place."""
    return f"saw {at}"


def converse(opening: str, is_streamed: bool, **more: Any) -> dict[str, Any]:
    """Call tools until there is an answer, then say one thing more."""
    model = ChatOpenAI(model="agent", base_url=os.environ["OPENAI_BASE_URL"], **more).bind_tools([look])
    messages: list[Any] = [SystemMessage("You look at places."), HumanMessage(opening)]
    rounds, waiting = [], ["bye"]
    while True:
        if is_streamed:
            pieces = list(model.stream(messages))
            reply = pieces[0]
            for piece in pieces[1:]:
                reply += piece
        else:
            reply = model.invoke(messages)
        messages.append(reply)
        rounds.append(len(reply.tool_calls))
        for call in reply.tool_calls:
            messages.append(ToolMessage(look.invoke(call["args"]), tool_call_id=call["id"]))
        if not reply.tool_calls:
            if not waiting:
                return {"text": reply.text if isinstance(reply.text, str) else reply.text(), "rounds": rounds}
            messages.append(HumanMessage(waiting.pop()))


MODES = {
    "whole": lambda: converse("scene:walk.whole please", False),
    "streamed": lambda: converse("scene:walk.streamed please", True),
    "responses": lambda: converse("scene:walk.responses please", True, use_responses_api=True),
}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]]()))
