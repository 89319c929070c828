# dgkit's agent for the Arm cores of a BlueField: built and run there, or built with
# docker buildx build --platform linux/arm64 -f .github/docker/dpu.Dockerfile -t dgkit-dpu .
# docker run --network host -v /opt/mellanox:/opt/mellanox:ro --device /dev/infiniband dgkit-dpu
FROM python:3.12-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libibverbs1 librdmacm1 ibverbs-providers \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/dgkit_dpu-*.whl
ENTRYPOINT ["dgkit", "serve"]
