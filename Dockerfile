# Every part of Horolog: docker-compose.yml says which one a container runs.
FROM python:3.11.14-slim-bookworm AS build

# Keep to the version that the Makefile names.
ARG UV_VERSION=0.13.9
RUN pip install --no-cache-dir "uv==${UV_VERSION}"

ENV UV_PROJECT_ENVIRONMENT=/app/.venv \
    UV_PYTHON=/usr/local/bin/python \
    UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1
WORKDIR /build

# What others wrote changes rarely: a layer of its own.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --no-install-project

COPY README.md LICENSE ./
COPY deploy/broker/pom.xml deploy/broker/
COPY schemas/ schemas/
COPY streams/ streams/
COPY processors/ processors/
COPY projections/ projections/
COPY workers/ workers/
COPY api/ api/
COPY horolog/ horolog/
RUN uv sync --frozen --no-dev --no-editable


FROM python:3.11.14-slim-bookworm

# A volume that is mounted at /data for the first time takes over who owns the folder.
RUN groupadd --gid 10001 horolog \
    && useradd --uid 10001 --gid horolog --no-create-home --home-dir /data horolog \
    && install --directory --owner=horolog --group=horolog /data

COPY --from=build /app/.venv /app/.venv
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOROLOG_DATA_DIR=/data

USER 10001:10001
WORKDIR /data
ENTRYPOINT ["horolog"]
CMD ["--help"]
