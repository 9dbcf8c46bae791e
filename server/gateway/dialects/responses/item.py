"""One item of a response's `output`. It opens, grows and closes; each of these gives a list of events.

An event is a name and its fields. The renderer adds the sequence numbers. A whole reply uses the same items and ignores
their events.
"""

from typing import Any, ClassVar

from burnish.server.gateway.dialects.responses import encrypted_reasoning, local_shell
from burnish.server.gateway.dialects.responses.custom_tools import Freeform
from burnish.server.gateway.dialects.responses.tools import Kind

Tree = dict[str, Any]
Event = tuple[str, Tree]
IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"


class Item:
    """The parts that all kinds of items share."""

    prefix: ClassVar[str]
    delta_name: ClassVar[str]
    done_name: ClassVar[str]

    def __init__(self, stem: str, index: int) -> None:
        self.index = index
        self.id = f"{self.prefix}_{stem}_{index}"
        self.status = IN_PROGRESS
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def tree(self) -> Tree:
        """The item in its present state."""
        raise NotImplementedError

    def open(self) -> list[Event]:
        return [self._whole("response.output_item.added")]

    def add(self, text: str) -> list[Event]:
        """The events for a piece of the item's text."""
        self._texts.append(text)
        return [self._at(self.delta_name, delta=text)] if text else []

    def close(self, status: str) -> list[Event]:
        self.status = status
        return [*self._ending(), self._whole("response.output_item.done")]

    def _ending(self) -> list[Event]:
        raise NotImplementedError

    def _whole(self, name: str) -> Event:
        return name, {"output_index": self.index, "item": self.tree()}

    def _at(self, event: str, /, **fields: Any) -> Event:
        return event, {"item_id": self.id, "output_index": self.index, **fields}


class Texts(Item):
    """An item with one content part: the message, or the reasoning."""

    def part(self) -> Tree:
        raise NotImplementedError

    def open(self) -> list[Event]:
        return [*super().open(), self._at("response.content_part.added", content_index=0, part=self.part())]

    def add(self, text: str) -> list[Event]:
        self._texts.append(text)
        return [self._at(self.delta_name, content_index=0, delta=text)] if text else []

    def _ending(self) -> list[Event]:
        return [
            self._at(self.done_name, content_index=0, text=self.text),
            self._at("response.content_part.done", content_index=0, part=self.part()),
        ]

    def _content(self) -> list[Tree]:
        return [] if self.status == IN_PROGRESS else [self.part()]


class Message(Texts):
    """The text of the reply. `logprobs` are those of its tokens, kept if the client wants them."""

    prefix = "msg"
    delta_name = "response.output_text.delta"
    done_name = "response.output_text.done"

    def __init__(self, stem: str, index: int) -> None:
        super().__init__(stem, index)
        self.logprobs: list[Tree] = []

    def say(self, text: str, logprobs: list[Tree]) -> list[Event]:
        """Like `add`, with the log-probs of the tokens of `text`."""
        self.logprobs += logprobs
        events = self.add(text)
        for _, fields in events:
            fields["logprobs"] = logprobs
        return events

    def part(self) -> Tree:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": self.logprobs}

    def tree(self) -> Tree:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": self.status,
            "content": self._content(),
        }

    def _ending(self) -> list[Event]:
        done, *rest = super()._ending()
        done[1]["logprobs"] = self.logprobs
        return [done, *rest]


class Reasoning(Texts):
    """The reasoning of the reply. It is given as `encrypted_content` as well if the client wants that."""

    prefix = "rs"
    delta_name = "response.reasoning_text.delta"
    done_name = "response.reasoning_text.done"

    def __init__(self, stem: str, index: int, *, is_sealed: bool = False) -> None:
        super().__init__(stem, index)
        self._is_sealed = is_sealed

    def part(self) -> Tree:
        return {"type": "reasoning_text", "text": self.text}

    def tree(self) -> Tree:
        tree: Tree = {
            "id": self.id,
            "type": "reasoning",
            "status": self.status,
            "summary": [],
            "content": self._content(),
        }
        if self._is_sealed and self.status != IN_PROGRESS:
            tree["encrypted_content"] = encrypted_reasoning.closed(self.text)
        return tree


class Call(Item):
    """A function's call."""

    prefix = "fc"
    delta_name = "response.function_call_arguments.delta"
    done_name = "response.function_call_arguments.done"

    def __init__(self, stem: str, index: int, call_id: str | None, name: str) -> None:
        super().__init__(stem, index)
        self.call_id = call_id or f"call_{stem}_{index}"
        self.name = name

    def tree(self) -> Tree:
        names = {"call_id": self.call_id, "name": self.name, "arguments": self.text}
        return {"id": self.id, "type": "function_call", "status": self.status, **names}

    def _ending(self) -> list[Event]:
        return [self._at(self.done_name, name=self.name, arguments=self.text)]


class CustomCall(Call):
    """A custom tool's call. Its text is extracted from the arguments as they come."""

    prefix = "ctc"
    delta_name = "response.custom_tool_call_input.delta"
    done_name = "response.custom_tool_call_input.done"

    def __init__(self, stem: str, index: int, call_id: str | None, name: str) -> None:
        super().__init__(stem, index, call_id, name)
        self._freeform = Freeform()

    def add(self, text: str) -> list[Event]:
        return super().add(self._freeform.feed(text))

    def tree(self) -> Tree:
        names = {"call_id": self.call_id, "name": self.name, "input": self.text}
        return {"id": self.id, "type": "custom_tool_call", "status": self.status, **names}

    def _ending(self) -> list[Event]:
        return [*super().add(self._freeform.end()), self._at(self.done_name, input=self.text)]


class ShellCall(Call):
    """A `local_shell` call. It has no events between its opening and its end."""

    prefix = "lsh"

    def add(self, text: str) -> list[Event]:
        self._texts.append(text)
        return []

    def tree(self) -> Tree:
        action = local_shell.action_of(self.text)
        return {
            "id": self.id,
            "type": "local_shell_call",
            "status": self.status,
            "call_id": self.call_id,
            "action": action,
        }

    def _ending(self) -> list[Event]:
        return []


CALLS: dict[Kind, type[Call]] = {Kind.FUNCTION: Call, Kind.CUSTOM: CustomCall, Kind.SHELL: ShellCall}
