#!/usr/bin/env python3
"""`make audit`: what the locks install, as SBOMs (CycloneDX), and its known vulnerabilities (pip-audit).

Standard library only: uv runs the tools, at these versions. The SBOMs go into `.work/sbom`. Exits with 1 if something
installed has a known vulnerability. Where the database of vulnerabilities cannot be reached, it says so and exits with
0: a machine without the internet must be able to build.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
OUT = HOME / ".work" / "sbom"
_LOST = re.compile(
    "ConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|NewConnectionError|ProxyError|"
    "Max retries exceeded|Network is unreachable|Connection (refused|reset|timed out)|name resolution|"
    "dns error|tcp connect error|operation timed out|network was disabled"
)
"""What requests (for pip-audit) and uv say where the network ends."""
_UNTRUSTED = re.compile("certificate|SSLError", re.IGNORECASE)
PIP_AUDIT, CYCLONEDX = "pip-audit==2.10.1", "cyclonedx-bom==7.5.0"


def main() -> int:
    """Audit every lock. Returns the exit status."""
    OUT.mkdir(parents=True, exist_ok=True)
    status = 0
    for lock in sorted((HOME / "locks").glob("*.txt")):
        sbom = OUT / f"{lock.stem}.cdx.json"
        sbom.unlink(missing_ok=True)
        form = ("--of", "JSON", "--output-reproducible", "-o", str(sbom))
        made = _run(CYCLONEDX, "cyclonedx-py", "requirements", str(lock), *form)
        told, is_lost = written(sbom, made.stderr)
        asked = ("--requirement", str(lock), "--disable-pip", "--no-deps", "--format", "json")
        done = _run(PIP_AUDIT, "pip-audit", *asked, "--progress-spinner", "off")
        words, is_bad = verdict(done.stdout, done.stderr)
        print(f"{lock.name}: {words}; {told}")
        status |= is_bad | is_lost
    return status


def written(sbom: Path, errors: str) -> tuple[str, bool]:
    """Where the SBOM is, or why there is none, and whether that is a fault."""
    if sbom.exists():
        return f"SBOM in {sbom.relative_to(HOME) if sbom.is_relative_to(HOME) else sbom}", False
    if _is_unreachable(errors):
        return "no SBOM, because its tool cannot be fetched", False
    return f"no SBOM: {_last_line(errors)}", True


def verdict(output: str, errors: str = "") -> tuple[str, bool]:
    """pip-audit's JSON in words, or its errors, and whether something is vulnerable or wrong."""
    unreachable = "not audited, because the database of vulnerabilities cannot be reached"
    try:
        found: Sequence[Mapping[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError):
        return (unreachable, False) if _is_unreachable(errors) else (f"not audited: {_last_line(errors)}", True)
    bad = {f"{each['name']} {each['version']}": each["vulns"] for each in found if each.get("vulns")}
    skipped = [str(each["name"]) for each in found if "skip_reason" in each]
    if bad:
        told = (f"{name}: {', '.join(each['id'] for each in vulns)}" for name, vulns in bad.items())
        return f"vulnerable: {'; '.join(told)}", True
    if len(skipped) == len(found):
        return unreachable, False
    words = f"{len(found) - len(skipped)} packages without a known vulnerability"
    return (f"{words}, {len(skipped)} not audited: {', '.join(skipped)}" if skipped else words), False


def _is_unreachable(errors: str) -> bool:
    """True if the network is at fault, and not, for example, versions that do not fit or a false certificate."""
    return _LOST.search(errors) is not None and _UNTRUSTED.search(errors) is None


def _last_line(errors: str) -> str:
    return (errors.strip().splitlines() or ["no answer"])[-1]


def _run(package: str, *command: str) -> "subprocess.CompletedProcess[str]":
    uv = Path(sys.executable).with_name("uv")
    tool = [str(uv if uv.exists() else "uv"), "tool", "run", "--quiet", "--from", package, *command]
    return subprocess.run(tool, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
