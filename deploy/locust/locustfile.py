"""Load by Locust, for teams that use it: users who chat over the OpenAI API, in streams or at once.

    pip install locust
    locust --locustfile deploy/locust/locustfile.py --host http://HOST:8080 --users 50 --spawn-rate 5
    locust … --headless --run-time 2m --csv result          # without the page; exit status 1 if a request failed

HEADRACE_MODEL (default: the first that is served), HEADRACE_API_KEY and HEADRACE_MAX_TOKENS (64) say what is asked. Beside
Locust's own rows for the calls, a stream has a row "time to first token" and one "time per output token".
"""

import json
import os
import random
import time

from locust import HttpUser, between, task

TOPICS = ("rivers", "glass", "bread", "bridges", "the moon", "clocks", "salt", "maps")
MAX_TOKENS = int(os.environ.get("HEADRACE_MAX_TOKENS", "64"))
TIMEOUT_S = 300


class Chatter(HttpUser):
    """Asks, reads the answer, thinks a moment, asks again."""

    wait_time = between(0.1, 1.0)

    def on_start(self) -> None:
        """Who asks, and whom."""
        if key := os.environ.get("HEADRACE_API_KEY"):
            self.client.headers["Authorization"] = f"Bearer {key}"
        self.model = os.environ.get("HEADRACE_MODEL") or self._first_model()

    def _first_model(self) -> str:
        found = self.client.get("/v1/models").json()["data"]
        name: str = found[0]["id"]
        return name

    @task(3)
    def stream(self) -> None:
        """An answer as it comes."""
        began_s = time.perf_counter()
        first_s, num_chunks, ended = None, 0, False
        with self.client.post(
            "/v1/chat/completions",
            json=self._question(stream=True),
            stream=True,
            timeout=TIMEOUT_S,
            name="chat, streamed",
            catch_response=True,
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"{answer.status_code}: {answer.text[:200]}")
                return
            for line in answer.iter_lines():
                data = line.decode().removeprefix("data: ")
                if data == "[DONE]":
                    ended = True
                elif data.startswith("{"):
                    event = json.loads(data)
                    if "error" in event:
                        answer.failure(str(event["error"]))
                        return
                    if any(choice["delta"].get("content") for choice in event["choices"]):
                        num_chunks += 1
                        first_s = first_s or time.perf_counter()
            if not ended:
                answer.failure("the stream was cut off")
                return
        if first_s is None:
            return
        self._note("time to first token", first_s - began_s)
        if num_chunks > 1:
            self._note("time per output token", (time.perf_counter() - first_s) / (num_chunks - 1))

    @task(1)
    def at_once(self) -> None:
        """A whole answer."""
        self.client.post(
            "/v1/chat/completions",
            json=self._question(stream=False),
            timeout=TIMEOUT_S,
            name="chat, at once",
        )

    def _question(self, *, stream: bool) -> dict[str, object]:
        topic = random.choice(TOPICS)  # noqa: S311 - no secret
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": f"Tell me about {topic}."}],
            "max_tokens": MAX_TOKENS,
            "stream": stream,
        }

    def _note(self, name: str, took_s: float) -> None:
        self.environment.events.request.fire(
            request_type="TOKENS",
            name=name,
            response_time=took_s * 1000,
            response_length=0,
            exception=None,
            context={},
        )
