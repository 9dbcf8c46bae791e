"""A judge behind an OpenAI-compatible server of our own, through one pooled connection: m votes are one request with n = m."""

from collections.abc import Mapping, Sequence

import aiohttp

from judges.judge import JudgeUnavailable

LOW_PRIORITY = 10
"""Behind live traffic and behind the gate, where the engine schedules by priority."""


class LocalJudge:
    """The model `model` at `url` (vLLM: the frozen base on the serving engine by default)."""

    def __init__(
        self, url: str, model: str, *, api_key: str = "", temperature: float = 0.6, max_tokens: int = 64, timeout: float = 30.0
    ) -> None:
        self.model = model
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._options = {"temperature": temperature, "max_tokens": max_tokens, "priority": LOW_PRIORITY}
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=min(2.0, timeout))
        self._http: aiohttp.ClientSession | None = None

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        if self._http is None:
            self._http = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        body = {"model": self.model, "messages": list(messages), "n": n, **self._options}
        try:
            async with self._http.post(self._url, json=body) as response:
                if response.status != 200:
                    raise JudgeUnavailable(f"the judge answered {response.status}: {(await response.text())[:300]}")
                reply = await response.json()
                return [choice["message"].get("content") or "" for choice in reply["choices"]]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise JudgeUnavailable(f"the judge did not answer: {type(error).__name__} {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise JudgeUnavailable(f"the judge answered something else than a chat completion: {error!r}") from error

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
