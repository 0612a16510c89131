FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Where the context has no .git: what "spawnmesh version" shows.
ARG VERSION
RUN make build BIN=/spawnmesh VERSION="$VERSION"

FROM debian:stable-slim
# Named volumes take owner and mode from these directories.
RUN groupadd --gid 10001 spawnmesh \
 && useradd --uid 10001 --gid spawnmesh --no-create-home --home-dir /var/lib/spawnmesh spawnmesh \
 && install -d -o spawnmesh -g spawnmesh -m 0700 /var/lib/spawnmesh /token /tokens /tokens/attic /tokens/cellar
COPY --from=build /spawnmesh /usr/local/bin/spawnmesh
COPY scripts/container/hub scripts/container/spoke scripts/container/database /usr/local/lib/spawnmesh/
ENV SPAWNMESH_DATA_DIR=/var/lib/spawnmesh PGPASSFILE=/run/spawnmesh/pgpass
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=10s --start-period=60s --retries=3 CMD ["spawnmesh", "health"]
CMD ["spawnmesh", "--help"]
