# The inference engine: vLLM on a GPU. It listens in the private network of the compose file only.
# Build from the repository root, on an image by its digest (`docker buildx imagetools inspect python:3.12-slim`):
#   docker build -f deploy/docker/engine.Dockerfile -t burnish-engine --build-arg PYTHON_DIGEST=sha256:… .
ARG PYTHON_IMAGE=python:3.12-slim
ARG PYTHON_DIGEST
FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST}

RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc g++ \
    && rm -rf /var/lib/apt/lists/*
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
    && uv pip compile --quiet pyproject.toml --extra gpu --constraint locks/gpu.txt --no-annotate --output-file /tmp/wanted.txt \
    && uv pip install --system --no-cache --compile-bytecode --require-hashes --constraint locks/gpu.txt --requirement /tmp/wanted.txt \
    && uv pip install --system --no-cache --compile-bytecode --no-deps --no-build-isolation . \
    && useradd --create-home --uid 10001 burnish \
    && install -d -o burnish -g burnish /state

USER burnish
WORKDIR /state
ENV BURNISH_STATE_DIR=/state \
    BURNISH_ENGINE__HOST=0.0.0.0 \
    BURNISH_LOG_FORMAT=json \
    PYTHONUNBUFFERED=1
EXPOSE 8701
# The engine asks for its key on every path.
HEALTHCHECK --interval=10s --timeout=6s --start-period=600s \
    CMD ["python", "-c", "from urllib.request import Request, urlopen; from burnish import config, keys; urlopen(Request('http://127.0.0.1:8701/health', headers={'authorization': 'Bearer ' + keys.engine_key(config.load())}), timeout=2)"]
ENTRYPOINT ["burnish"]
CMD ["run", "engine"]
