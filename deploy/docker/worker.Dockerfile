# A worker. Which torch is installed decides what it computes on, and each has a lock file of its own:
#   CPU   docker build --file deploy/docker/worker.Dockerfile --build-arg LOCK=worker-cpu --build-arg PIP_FLAGS="--extra-index-url CPU-WHEELS" --tag headrace-worker .
#   CUDA  docker build --file deploy/docker/worker.Dockerfile --tag headrace-worker:cuda .
# On Linux torch's ordinary wheel brings CUDA's libraries with it: the base image needs none, the host only its driver. The CPU
# build lies in an index of torch's own; its digest is in the lock file, so whoever serves it cannot change it.
ARG BUILD_IMAGE=python:3.11-bookworm
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS build
ARG LOCK=worker-cuda
ARG PIP_FLAGS=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=0
WORKDIR /src
COPY deploy/docker/locks/${LOCK}.txt lock.txt
# What the lock file names, and nothing else: it has what builds wheels, too.
# hadolint ignore=SC2086
RUN python -m venv /opt/headrace && \
    /opt/headrace/bin/pip install --require-hashes --only-binary :all: ${PIP_FLAGS} --requirement lock.txt
COPY . .
# What is ours, for which nothing may be fetched any more.
RUN /opt/headrace/bin/pip install --no-index --no-build-isolation ./protos '.[worker]'

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
