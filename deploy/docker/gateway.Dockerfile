# The slim image: gateway, ingester, swapper and judge, which may send traces. No torch, no vLLM.
# Build from the repository root, on an image by its digest (`docker buildx imagetools inspect python:3.12-slim`):
#   docker build -f deploy/docker/gateway.Dockerfile -t burnish-gateway --build-arg PYTHON_DIGEST=sha256:… .
ARG PYTHON_IMAGE=python:3.12-slim
ARG PYTHON_DIGEST
FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST}

WORKDIR /opt/burnish
COPY pyproject.toml README.md LICENSE ./
COPY locks ./locks
COPY src ./src
COPY server ./server
COPY judges ./judges
COPY learner ./learner
COPY adapters ./adapters
COPY sandbox ./sandbox
# What is in no lock has no hash and is refused. setuptools is one of the build's own packages.
RUN pip install --no-cache-dir --require-hashes --requirement locks/build.txt \
    && uv pip compile --quiet pyproject.toml --extra otel --constraint locks/gpu.txt --no-annotate --output-file /tmp/wanted.txt \
    && uv pip install --system --no-cache --compile-bytecode --require-hashes --constraint locks/gpu.txt --requirement /tmp/wanted.txt \
    && uv pip install --system --no-cache --compile-bytecode --no-deps --no-build-isolation . \
    && useradd --create-home --uid 10001 burnish \
    && install -d -o burnish -g burnish /state

USER burnish
WORKDIR /state
ENV BURNISH_STATE_DIR=/state \
    BURNISH_LOG_FORMAT=json \
    PYTHONUNBUFFERED=1
EXPOSE 8700
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/healthz', timeout=2)"]
ENTRYPOINT ["burnish"]
CMD ["run", "gateway"]
