# Flows and controller, with the training stack. Build from the project's root; for a CUDA machine give
# --build-arg TORCH=torch==2.13.0
#   docker build -f infra/docker/worker.Dockerfile -t tuneloop-worker .
FROM python:3.11-slim
ARG TORCH=torch==2.13.0+cpu
WORKDIR /app
RUN apt-get update && apt-get install -y --no-install-recommends git libgomp1 && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE ./
COPY requirements/lock.txt requirements/
RUN pip install --no-cache-dir "$TORCH"
COPY pipeline pipeline
COPY evals evals
COPY flows flows
RUN pip install --no-cache-dir -c requirements/lock.txt ".[all]" && useradd --create-home tuneloop \
    && install -d -o tuneloop -m 0700 /state
USER tuneloop
VOLUME /state
ENTRYPOINT ["python", "-m"]
CMD ["flows.schedule", "--configs", "/configs"]
