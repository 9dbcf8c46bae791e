"""A journal that does not belong to the adapter store: `burnish up` says so in one line, and serving goes on."""

import time
from pathlib import Path

from burnish.testing import StubEngine
from tests.e2e.whole import Whole


def test_up_shows_why_the_learner_does_not_start_and_serves(tmp_path: Path) -> None:
    version = tmp_path / ".burnish" / "adapters" / "agent" / "v000003"
    version.mkdir(parents=True)
    (version / "adapter_model.safetensors").write_bytes(b"the only copy")
    with StubEngine(needs_loaded=False) as engine:
        up = Whole(tmp_path / ".burnish", {"engine.urls": [engine.url]})
        up.start()
        try:
            log = tmp_path / "up.log"
            deadline = time.monotonic() + 120
            while "is older than" not in (said := log.read_text()) or up.request("/healthz")[0] != 200:
                assert up.process is not None and up.process.poll() is None and time.monotonic() < deadline, said
                time.sleep(0.1)
            (line,) = [line for line in said.splitlines() if "is older than" in line][:1]
            assert (
                line.lstrip().startswith("learner │ burnish: ")
                and "holds agent@v3, the journal gave no number to it" in line
            )
            assert str(tmp_path / ".burnish" / "journal.db") in line and "restore the latest journal" in line
            assert "Traceback" not in said
            status, reply, _ = up.chat("hello")
            assert status == 200 and reply["choices"]
        finally:
            up.stop()
    assert (version / "adapter_model.safetensors").read_bytes() == b"the only copy"
