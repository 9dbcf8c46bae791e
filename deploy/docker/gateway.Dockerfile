# The slim image: gateway, ingester, swapper and judge, which may send traces. No torch, no vLLM.
# Build from the repository root: docker build -f deploy/docker/gateway.Dockerfile -t burnish-gateway .
# An image by its digest: --build-arg PYTHON_IMAGE=python:3.12-slim@sha256:…
ARG PYTHON_IMAGE=python:3.12-slim
FROM ${PYTHON_IMAGE}

WORKDIR /opt/burnish
COPY pyproject.toml README.md LICENSE ./
COPY locks ./locks
COPY src ./src
COPY server ./server
COPY judges ./judges
COPY learner ./learner
COPY adapters ./adapters
COPY sandbox ./sandbox
RUN pip install --no-cache-dir --requirement locks/build.txt \
    && uv pip install --system --no-cache --constraint locks/gpu.txt --build-constraints locks/build.txt ".[otel]" \
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
