# A worker. Which torch is installed decides what it computes on:
#   CPU   docker build --file deploy/docker/worker.Dockerfile --build-arg TORCH_FLAGS="--index-url CPU-WHEELS" --tag headrace-worker .
#   CUDA  docker build --file deploy/docker/worker.Dockerfile --tag headrace-worker:cuda .
# On Linux torch's ordinary wheel brings CUDA's libraries with it: the base image needs none, the host only its driver.
ARG BUILD_IMAGE=python:3.11-bookworm
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS build
ARG TORCH_SPEC=torch==2.13.0
ARG TORCH_FLAGS=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=0
WORKDIR /src
COPY deploy/constraints.txt deploy/constraints.txt
# torch first and alone: nothing that follows can choose another build of it, and what it needs is pinned like all else.
# So is what builds the wheels: an isolated build would fetch the newest.
# hadolint ignore=SC2086
RUN python -m venv /opt/headrace && \
    /opt/headrace/bin/pip install --no-deps ${TORCH_FLAGS} "${TORCH_SPEC}" && \
    /opt/headrace/bin/pip install --constraint deploy/constraints.txt setuptools
COPY . .
RUN /opt/headrace/bin/pip install --no-build-isolation --constraint deploy/constraints.txt ./protos '.[worker]'

FROM ${PYTHON_IMAGE} AS worker
ENV PATH=/opt/headrace/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HEADRACE_MODEL_CACHE=/var/cache/headrace \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build /opt/headrace /opt/headrace
RUN install --directory --owner=10001 --group=10001 /var/cache/headrace
VOLUME /var/cache/headrace
USER 10001:10001
WORKDIR /tmp
EXPOSE 9466
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9466/livez', timeout=4)"]
ENTRYPOINT ["headrace-worker"]
