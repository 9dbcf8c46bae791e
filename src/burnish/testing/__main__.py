"""`python -m burnish.testing`: the stub engine as a process. With `--script FILE` it plays a script."""

import argparse
import signal
import threading
from pathlib import Path

from burnish.testing.scenes import Script
from burnish.testing.scripted_engine import ScriptedEngine
from burnish.testing.stub_engine import StubEngine


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m burnish.testing", description=__doc__)
    parser.add_argument("--script", type=Path, help="a JSON file of scenes (src/burnish/testing/scenes.py)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--api-key", default="", help="what /v1 asks for as a bearer token")
    parser.add_argument("--base-name", default="base")
    parser.add_argument("--token-delay", type=float, default=0.0, help="seconds for each token")
    asked = parser.parse_args()
    settings = {
        "host": asked.host,
        "port": asked.port,
        "api_key": asked.api_key,
        "base_name": asked.base_name,
        "token_delay": asked.token_delay,
    }
    engine = ScriptedEngine(**settings, script=Script.load(asked.script)) if asked.script else StubEngine(**settings)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with engine:
        print(f"listening on {engine.url}", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
