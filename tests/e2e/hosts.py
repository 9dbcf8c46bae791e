"""Hosts of their own on one machine: each is a network namespace, and its programs have process ids of their own.

Every host has a cable to the first one, whose address all can reach. Making namespaces takes root.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ADDRESS = "10.77.0.1"
"""The first host's, reachable from all."""
_CLIENT = """
import json, sys, urllib.error, urllib.request
url, body, headers = json.loads(sys.argv[1])
data = json.dumps(body).encode() if body is not None else None
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60)
    print(json.dumps([answer.status, json.loads(answer.read() or b"null")]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, json.loads(error.read() or b"null")]))
except OSError as error:
    print(json.dumps([0, str(error)]))
"""


@dataclass
class Hosts:
    """The first of `names` is in the middle."""

    names: Sequence[str]
    mark: str
    folder: Path
    programs: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def space(self, host: str) -> str:
        return f"{host}-{self.mark}"

    def start(self, host: str, name: str, command: Sequence[str], settings: dict[str, Any] | None = None) -> None:
        """Run a program on a host. `name` is that of its log."""
        environment = {f"BURNISH_{key}": _text(value) for key, value in (settings or {}).items()}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.space(host), "unshare", "--pid", "--fork", "--kill-child", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
            )

    def ask(self, host: str, url: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """Status and parsed body of a request that a program on `host` makes. Status 0: there was no answer."""
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        given = json.dumps([url, body, headers])
        command = ["ip", "netns", "exec", self.space(host), sys.executable, "-c", _CLIENT, given]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        status, said = json.loads(done.stdout)
        return status, said

    def cable(self, host: str, *, is_in: bool) -> None:
        """Put a host's cable in, or pull it out. Packets are then lost without a word."""
        _ip("-n", self.space(self.names[0]), "link", "set", f"to-{host}", "up" if is_in else "down")


def hosts_lack() -> str | None:
    """Why this machine cannot make hosts. None if it can."""
    if lacking := [program for program in ("ip", "unshare", "setpriv") if shutil.which(program) is None]:
        return f"needs {', '.join(lacking)} (Debian: apt-get install iproute2 util-linux)"
    name = f"try-{secrets.token_hex(3)}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "exec", name, "unshare", "--pid", "--fork", "true")
    except subprocess.CalledProcessError as error:
        return f"needs root and namespaces: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


@contextmanager
def connected(folder: Path, *names: str) -> Iterator[Hosts]:
    """Hosts with cables. Their programs end with the block."""
    hosts = Hosts(names, secrets.token_hex(3), folder)
    first = hosts.space(names[0])
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", hosts.space(name))
            stack.callback(_ip, "netns", "del", hosts.space(name))
            _ip("-n", hosts.space(name), "link", "set", "lo", "up")
        _ip("-n", first, "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        for number, name in enumerate(names[1:], 1):
            other, inside = hosts.space(name), f"to-{name}"
            _ip("link", "add", inside, "netns", first, "type", "veth", "peer", "name", "up-link", "netns", other)
            _ip("-n", first, "addr", "add", f"10.77.{number}.1/24", "dev", inside)
            _ip("-n", other, "addr", "add", f"10.77.{number}.2/24", "dev", "up-link")
            _ip("-n", first, "link", "set", inside, "up")
            _ip("-n", other, "link", "set", "up-link", "up")
            _ip("-n", other, "route", "add", ADDRESS, "via", f"10.77.{number}.1")
        stack.callback(_end, hosts)
        yield hosts


def _end(hosts: Hosts) -> None:
    for program in hosts.programs.values():
        program.kill()
    for program in hosts.programs.values():
        program.wait(20)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
