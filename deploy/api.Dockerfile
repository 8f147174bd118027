# syntax=docker/dockerfile:1
# The control plane: GraphQL, REST, dashboard. Opens PostgreSQL and Redis.
# Build from the repository root: docker build -f deploy/api.Dockerfile .

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

# What runs: the packages that api needs, without development and optional ones (an embedded PostgreSQL among them).
FROM node:22-bookworm-slim AS assembled
WORKDIR /app
COPY --from=manifests /manifests ./
RUN npm ci --ignore-scripts --omit=dev --omit=optional --workspace=apps/api
COPY --from=build /app/libs/spec/dist libs/spec/dist
COPY --from=build /app/libs/protocol/dist libs/protocol/dist
COPY --from=build /app/libs/kernels/dist libs/kernels/dist
COPY --from=build /app/libs/learning/dist libs/learning/dist
COPY --from=build /app/libs/engine/dist libs/engine/dist
COPY --from=build /app/libs/data/dist libs/data/dist
COPY --from=build /app/libs/jobs/dist libs/jobs/dist
COPY --from=build /app/libs/runtime/dist libs/runtime/dist
COPY --from=build /app/apps/api/dist apps/api/dist
COPY --from=build /app/apps/dashboard/dist apps/dashboard/dist
COPY prisma/schema.prisma prisma/
COPY prisma/migrations prisma/migrations

FROM node:22-bookworm-slim AS runtime
WORKDIR /app
ENV NODE_ENV=production \
    PACELINE_HOST=0.0.0.0 \
    PACELINE_PORT=4100 \
    PACELINE_DASHBOARD_DIR=/app/apps/dashboard/dist
RUN install -d -o node -g node /data
COPY --from=assembled /app ./
COPY deploy/healthcheck.mjs ./
USER node
EXPOSE 4100
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "healthcheck.mjs", "http://127.0.0.1:4100/readyz"]
STOPSIGNAL SIGTERM
CMD ["node", "apps/api/dist/main.js"]
