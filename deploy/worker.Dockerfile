# syntax=docker/dockerfile:1
# A worker. It opens no port: it takes step tasks from Redis and connects to the servers of its run.
# Build from the repository root: docker build -f deploy/worker.Dockerfile .

# The manifests alone: the layers that install change with them and not with every source.
FROM node:22-bookworm-slim AS manifests
WORKDIR /manifests
COPY . /source
RUN cd /source && cp --parents package.json package-lock.json .npmrc libs/*/package.json apps/*/package.json /manifests

FROM node:22-bookworm-slim AS build
WORKDIR /app
COPY --from=manifests /manifests ./
RUN npm ci --ignore-scripts
COPY . .
RUN npm run build

# What runs: the packages that worker needs, without development and optional ones (an embedded PostgreSQL among them).
FROM node:22-bookworm-slim AS assembled
WORKDIR /app
COPY --from=manifests /manifests ./
RUN npm ci --ignore-scripts --omit=dev --omit=optional --workspace=apps/worker
COPY --from=build /app/libs/spec/dist libs/spec/dist
COPY --from=build /app/libs/protocol/dist libs/protocol/dist
COPY --from=build /app/libs/kernels/dist libs/kernels/dist
COPY --from=build /app/libs/learning/dist libs/learning/dist
COPY --from=build /app/libs/exchange/dist libs/exchange/dist
COPY --from=build /app/libs/engine/dist libs/engine/dist
COPY --from=build /app/libs/storage/dist libs/storage/dist
COPY --from=build /app/libs/data/dist libs/data/dist
COPY --from=build /app/libs/jobs/dist libs/jobs/dist
COPY --from=build /app/libs/hosting/dist libs/hosting/dist
COPY --from=build /app/libs/runtime/dist libs/runtime/dist
COPY --from=build /app/apps/worker/dist apps/worker/dist

FROM node:22-bookworm-slim AS runtime
WORKDIR /app
ENV NODE_ENV=production
COPY --from=assembled /app ./
COPY deploy/healthcheck.mjs ./
USER node
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["sh", "-c", "node healthcheck.mjs \"$REDIS_URL\""]
STOPSIGNAL SIGTERM
CMD ["node", "apps/worker/dist/main.js"]
