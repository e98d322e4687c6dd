# Gateway and scheduler, without torch:
#   docker build --file deploy/docker/service.Dockerfile --target gateway --tag headrace-gateway .
#   docker build --file deploy/docker/service.Dockerfile --target scheduler --tag headrace-scheduler .
# What is installed is in deploy/docker/locks, with digests; for builds that are the same tomorrow, give both images by digest too.
ARG BUILD_IMAGE=python:3.11-bookworm
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS source
# No compiler, no kernels: those are for workers alone, and take minutes.
ENV CXX=false
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=0
WORKDIR /src
RUN python -m venv /opt/headrace

# In each stage: what the lock file names, and nothing else (it has what builds wheels, too), then what is ours, for which
# nothing may be fetched any more.
FROM source AS build-gateway
COPY deploy/docker/locks/gateway.txt lock.txt
RUN /opt/headrace/bin/pip install --require-hashes --only-binary :all: --requirement lock.txt
COPY . .
RUN /opt/headrace/bin/pip install --no-index --no-build-isolation ./protos '.[gateway]'

FROM source AS build-scheduler
COPY deploy/docker/locks/scheduler.txt lock.txt
RUN /opt/headrace/bin/pip install --require-hashes --only-binary :all: --requirement lock.txt
COPY . .
RUN /opt/headrace/bin/pip install --no-index --no-build-isolation ./protos '.[scheduler]'

FROM ${PYTHON_IMAGE} AS base
ENV PATH=/opt/headrace/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp

FROM base AS gateway
COPY --from=build-gateway /opt/headrace /opt/headrace
EXPOSE 50051 8080 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/livez', timeout=4)"]
ENTRYPOINT ["headrace-gateway"]

FROM base AS scheduler
COPY --from=build-scheduler /opt/headrace /opt/headrace
EXPOSE 50052 9465
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9465/livez', timeout=4)"]
ENTRYPOINT ["headrace-scheduler"]
