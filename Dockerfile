# syntax=docker/dockerfile:1
# Each image checks tokens of identity providers.
# Build arguments: EXTRA=arrow adds Parquet files and Arrow IPC (150 MB), EXTRA=s3 these and the archive in S3, EXTRA=cluster the former,
# several databases and epochs on several machines, EXTRA=otel traces; BASE is another image with Python 3.11; PIP_NO_INDEX=1 and
# PIP_FIND_LINKS=DIR take wheels from a folder.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
ARG EXTRA
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/build && python -m venv --without-pip /opt/recrawl
COPY deploy/requirements*.txt deploy/
RUN /opt/build/bin/pip install --require-hashes -r deploy/requirements-build.txt \
    && /opt/build/bin/pip --python /opt/recrawl/bin/python install --no-compile --require-hashes \
        --only-binary :all: -r "deploy/requirements${EXTRA:+-$EXTRA}.txt" \
    && find /opt/recrawl -type d -name tests -prune -exec rm -r {} +
COPY pyproject.toml README.md LICENSE ./
COPY service ./service
COPY recrawl_client ./recrawl_client
COPY recrawl_cluster ./recrawl_cluster
COPY migrations ./migrations
# Hashes of sources, not their times, validate the bytecode: two builds then have the same bytes.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist \
        ./recrawl_client . $(test "$EXTRA" != cluster || echo ./recrawl_cluster) \
    && /opt/build/bin/pip --python /opt/recrawl/bin/python install --no-compile --no-deps \
        --no-index dist/*.whl \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/recrawl/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="recrawl" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/recrawl/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
RUN useradd --no-log-init --uid 10001 --home-dir /data --no-create-home recrawl \
    && install --directory --owner recrawl --group recrawl /data
COPY --from=build /opt/recrawl /opt/recrawl
USER 10001
# Without settings the database is ./recrawl.db.
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
# It starts with RECRAWL_API_KEYS only, as it listens to other machines.
CMD ["recrawl", "serve", "--host", "0.0.0.0", "--port", "8000"]
