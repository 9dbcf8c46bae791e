"""`python -m tests.halves [PYTEST ARGUMENT …]`: all tests in two processes side by side, for most of the time one of two cores would wait.

The second half's output follows the first's. Each has a PostgreSQL, a vLLM and temporary directories of its own.
"""

import subprocess
import sys
import tempfile

FIRST = ("adapters", "burnish", "ingest", "journal", "judges", "learner", "sandbox", "swap")


def main() -> int:
    """The worse of both exit codes."""
    pytest = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    folders = [f"tests/{name}" for name in FIRST]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        options = ["-p", "no:cacheprovider", *(f"--ignore={folder}" for folder in folders)]
        second = subprocess.Popen([*pytest, *options], stdout=output, stderr=subprocess.STDOUT)
        try:
            codes = [subprocess.run([*pytest, *folders], check=False).returncode, second.wait()]
        finally:
            if second.poll() is None:
                second.terminate()
                second.wait()
        output.seek(0)
        sys.stdout.write(output.read())
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
