# The gateway alone: no torch, no flows. Build from the project's root:
#   docker build -f infra/docker/gateway.Dockerfile -t tuneloop-gateway .
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY requirements/lock.txt requirements/
COPY pipeline pipeline
COPY evals evals
COPY flows flows
RUN pip install --no-cache-dir -c requirements/lock.txt ".[gateway]" && useradd --create-home tuneloop \
    && install -d -o tuneloop -m 0700 /state
USER tuneloop
VOLUME /state
EXPOSE 8700 8701
ENTRYPOINT ["python", "-m", "pipeline.gateway", "--configs", "/configs", "--state-dir", "/state"]
