"""What a machine gives a model: every core and some memory, and little of both for a tiny model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.config import SANDBOX_MODEL, machine


def model(folder: Path, n_bytes: int) -> str:
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(n_bytes)
    return str(folder)


def test_a_tiny_model_gets_one_thread_and_little_memory() -> None:
    assert (machine.n_threads(str(SANDBOX_MODEL)), machine.kv_cache_gib(str(SANDBOX_MODEL))) == (1, 1)


def test_any_other_model_gets_every_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    found = model(tmp_path, 200 * 2**20)
    assert machine.n_threads(found) == 12
    assert machine.n_threads("HuggingFaceTB/SmolLM2-135M-Instruct") == 12
    assert 1 <= machine.kv_cache_gib(found) <= machine.MAX_KV_GIB


def test_an_allocator_is_preloaded_where_one_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "\tlibtcmalloc_minimal.so.4 (libc6,x86-64) => /usr/lib/libtcmalloc_minimal.so.4\n"

    class Listed:
        stdout = listing

    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: Listed)
    assert machine.preload() == "/usr/lib/libtcmalloc_minimal.so.4"
    Listed.stdout = "\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6\n"
    assert machine.preload() is None


@pytest.mark.parametrize(
    ("flags", "n_bytes", "chosen", "wanted"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16\n", 200 * 2**20, "auto", "bfloat16"),
        ("processor: 0\nFeatures\t: fp asimd bf16\n", 200 * 2**20, "auto", "bfloat16"),
        ("flags\t\t: fpu avx2 avx512f\n", 200 * 2**20, "auto", "float32"),
        ("flags\t\t: fpu avx512_bf16\n", 2**20, "auto", "float32"),
        ("flags\t\t: fpu avx512_bf16\n", 200 * 2**20, "float32", "float32"),
        ("", 200 * 2**20, "auto", "float32"),
    ],
)
def test_weights_are_bfloat16_where_the_processor_multiplies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, n_bytes: int, chosen: str, wanted: str
) -> None:
    info = tmp_path / "cpuinfo"
    if flags:
        info.write_text(flags)
    monkeypatch.setattr(machine, "CPU_INFO", info)
    monkeypatch.setattr(machine.shutil, "which", lambda _: None)
    assert machine.dtype(chosen, model(tmp_path, n_bytes)) == wanted
    monkeypatch.setattr(machine.shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    assert machine.dtype(chosen, model(tmp_path, n_bytes)) == chosen


def test_freed_memory_goes_back_to_the_system() -> None:
    """In a process of its own, because the heap of this one has other holes."""
    program = f"""
from burnish.config import machine
from pathlib import Path
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * {os.sysconf("SC_PAGE_SIZE")} / 2**20
blocks = [b"x" * (100_000 + i) for i in range(2000)]
last = b"x" * 100_000  # above the others, so that the heap cannot simply shrink
full = resident()
del blocks
freed = resident()
machine.return_free_memory()
print(full - freed, freed - resident())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    by_itself, returned = map(float, done.stdout.split())
    assert by_itself < 20 < 150 < returned  # MiB
