# Gateway and scheduler, without torch:
#   docker build --file deploy/docker/service.Dockerfile --target gateway --tag headrace-gateway .
#   docker build --file deploy/docker/service.Dockerfile --target scheduler --tag headrace-scheduler .
# For builds that are the same tomorrow, give both images by digest; packages are pinned by deploy/constraints.txt.
ARG BUILD_IMAGE=python:3.11-bookworm
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS source
# No compiler, no kernels: those are for workers alone, and take minutes.
ENV CXX=false
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=0
WORKDIR /src
COPY deploy/constraints.txt deploy/constraints.txt
# What builds the wheels is pinned as well: an isolated build would fetch the newest.
RUN python -m venv /opt/headrace && /opt/headrace/bin/pip install --constraint deploy/constraints.txt setuptools
COPY . .

FROM source AS build-gateway
RUN /opt/headrace/bin/pip install --no-build-isolation --constraint deploy/constraints.txt ./protos '.[gateway]'

FROM source AS build-scheduler
RUN /opt/headrace/bin/pip install --no-build-isolation --constraint deploy/constraints.txt ./protos '.[scheduler]'

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
