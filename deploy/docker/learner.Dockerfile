# The learner: torch and PEFT on a GPU, no server of its own.
# Build from the repository root: docker build -f deploy/docker/learner.Dockerfile -t burnish-learner .
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
    && uv pip install --system --no-cache --constraint locks/gpu.txt --build-constraints locks/build.txt . torch==2.13.0 peft \
    && useradd --create-home --uid 10001 burnish \
    && install -d -o burnish -g burnish /state

USER burnish
WORKDIR /state
ENV BURNISH_STATE_DIR=/state \
    BURNISH_LOG_FORMAT=json \
    PYTHONUNBUFFERED=1
ENTRYPOINT ["burnish"]
CMD ["run", "learner"]
