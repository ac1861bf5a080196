# syntax=docker/dockerfile:1
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/recrawl
COPY pyproject.toml README.md LICENSE ./
COPY service ./service
COPY recrawl_client ./recrawl_client
COPY migrations ./migrations
RUN /opt/recrawl/bin/pip install ./recrawl_client '.[arrow]'

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="recrawl" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/recrawl/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RECRAWL_DATABASE_URL=sqlite:////data/recrawl.db
RUN useradd --system --uid 10001 --home-dir /data --create-home recrawl
COPY --from=build /opt/recrawl /opt/recrawl
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
# It starts with RECRAWL_API_KEYS only, as it listens to other machines.
CMD ["recrawl", "serve", "--host", "0.0.0.0", "--port", "8000"]
