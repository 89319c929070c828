# dgkit on a machine with a GPU: docker build -f .github/docker/host.Dockerfile -t dgkit .
# docker run --gpus all --network host dgkit (without --gpus: the software DPU alone); it prints the URL
FROM python:3.12-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libibverbs1 librdmacm1 ibverbs-providers \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
# hadolint ignore=DL3013
RUN WHEEL=$(echo /wheels/dgkit_dpu-*.whl) && pip install --no-cache-dir "${WHEEL}[lab,cuda13]"
RUN useradd --create-home dgkit
USER dgkit
WORKDIR /home/dgkit
COPY --chown=dgkit notebooks notebooks
CMD ["dgkit", "lab", "notebooks", "--no-browser", "--port", "8888"]
