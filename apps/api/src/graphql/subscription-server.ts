/**
 * Subscriptions over WebSocket (graphql-transport-ws) at /graphql. Bounded in every direction: sockets without a key by address, those with one by
 * key and team, subscriptions per socket, message size and rate, time until the key is shown. Backpressure comes from the socket: the next row is
 * read from PostgreSQL when the one before was written out.
 *
 * Close codes: 4401 no or wrong key (also when it is revoked later), 4408 another socket took the place of one without a key, 4429 too much: wrong
 * keys, sockets of the key or team, messages, refused subscriptions; 4503 PostgreSQL away or all places taken (come again), 1001 the api stops.
 */
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { Inject, Injectable } from '@nestjs/common';
import { GraphQLSchemaHost } from '@nestjs/graphql';
import type { Logger } from '@paceline/runtime';
import { GraphQLError, getOperationAST, type ExecutionArgs, type GraphQLFormattedError } from 'graphql';
import {
  CloseCode,
  GRAPHQL_TRANSPORT_WS_PROTOCOL,
  makeServer,
  type Context,
  type Server as ProtocolServer,
  type SubscribePayload,
} from 'graphql-ws';
import { WebSocketServer, type WebSocket } from 'ws';
import { isDatabaseOutage, isPoolFull } from '../database/outage.js';
import { Settings } from '../environment.js';
import { Fault, FAULTS } from '../fault.js';
import { sourceOf, TrustedProxies } from '../http/client-address.js';
import { RateLimits } from '../http/rate-limits.js';
import { LOGGER } from '../logger.js';
import { Authentication, type Viewer } from '../teams/authentication.js';
import { Revocations } from '../teams/revocations.js';
import { costOf, tooCostly } from './cost.js';
import { Documents } from './documents.js';
import { createErrorFormatter, isFromGraphql } from './format-error.js';
import { GRAPHQL_LIMITS, parseAndValidate } from './limits.js';
import { PendingSockets } from './pending-sockets.js';

/** With a key, in all. */
const MAX_SOCKETS = 2_000;
/** Without one yet. */
const PENDING = { inAll: 200, perSource: 50 };
const MAX_SUBSCRIPTIONS_PER_CONNECTION = 50;
const MAX_REFUSED_PER_CONNECTION = 10;
const MAX_MESSAGE_BYTES = 64 * 1024;
const KEY_WITHIN_MS = 5_000;
const CHECK_KEYS_EVERY_MS = 30_000;
const KEEP_ALIVE_MS = 12_000;
const CLOSE_WITHIN_MS = 1_000;

interface Connection {
  readonly socket: WebSocket;
  readonly request: IncomingMessage;
  viewer?: Viewer;
  refused: number;
}
type ConnectionContext = Context<Record<string, unknown>, Connection>;

@Injectable()
export class SubscriptionServer {
  private readonly sockets = new WebSocketServer({ noServer: true, maxPayload: MAX_MESSAGE_BYTES, clientTracking: true });
  private readonly pending = new PendingSockets<WebSocket>(PENDING);
  private readonly sessions = new Map<WebSocket, Viewer>();
  private readonly proxies: TrustedProxies;
  private readonly format: (formatted: GraphQLFormattedError, error: unknown) => GraphQLFormattedError;
  private readonly protocol: ProtocolServer<Connection>;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly schema: GraphQLSchemaHost,
    private readonly authentication: Authentication,
    private readonly documents: Documents,
    private readonly rates: RateLimits,
    private readonly settings: Settings,
    revocations: Revocations,
    @Inject(LOGGER) private readonly log: Logger,
  ) {
    this.proxies = new TrustedProxies(settings.trustedProxies ?? []);
    revocations.listen((apiKeyId) => this.closeWhere((viewer) => viewer.apiKeyId === apiKeyId));
    this.format = createErrorFormatter(log);
    this.protocol = makeServer<Record<string, unknown>, Connection>({
      connectionInitWaitTimeout: KEY_WITHIN_MS,
      onConnect: (context) => this.connect(context),
      onSubscribe: (context, _id, payload) => this.subscribe(context, payload),
      onError: (_context, _id, _payload, errors) => this.formatAll(errors),
      onNext: (_context, _id, _payload, _args, result) =>
        result.errors ? { data: result.data ?? null, errors: this.formatAll(result.errors) } : undefined,
    });
  }

  get connectionCount(): number {
    return this.sockets.clients.size;
  }

  attach(server: Server): void {
    server.on('upgrade', (request, socket, head) => this.upgrade(request, socket, head));
    this.timer = setInterval(() => void this.checkKeys(), CHECK_KEYS_EVERY_MS);
  }

  close(): void {
    clearInterval(this.timer);
    for (const socket of this.sockets.clients) this.end(socket, 1001, 'the api stops');
  }

  private upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => socket.destroy());
    const protocols = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((protocol) => protocol.trim());
    const refuse = (status: string): void => void socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    if ((request.url ?? '').split('?')[0] !== '/graphql') return refuse('404 Not Found');
    if (!protocols.includes(GRAPHQL_TRANSPORT_WS_PROTOCOL)) return refuse('400 Bad Request');
    this.sockets.handleUpgrade(request, socket, head, (webSocket) => this.open(webSocket, request));
  }

  /** Connects a socket with the protocol, and pings it: a peer that does not answer by the next ping is gone. */
  private open(socket: WebSocket, request: IncomingMessage): void {
    const connection: Connection = { socket, request, refused: 0 };
    const victim = this.pending.add(socket, sourceOf(this.proxies.addressOf(request)));
    if (victim) this.end(victim, 4408, 'another connection without a key took its place');
    let isAlive = true;
    const ping = setInterval(() => {
      if (!isAlive) return socket.terminate();
      isAlive = false;
      socket.ping();
    }, KEEP_ALIVE_MS);
    socket.on('pong', () => (isAlive = true));
    socket.on('error', (err) => this.log.debug({ err: err.message }, 'a WebSocket failed')); // ws closes it with the right code
    const closed = this.protocol.opened(
      {
        protocol: socket.protocol,
        // Settles when the row was written out: that is the backpressure.
        send: (text) =>
          new Promise((resolve, reject) => {
            if (socket.readyState === socket.OPEN) socket.send(text, (error) => (error ? reject(error) : resolve()));
            else resolve();
          }),
        close: (code, reason) => socket.close(code, reason),
        onMessage: (take) =>
          socket.on('message', (data) => {
            if (!this.mayGoOn(connection)) return;
            take(String(data)).catch((err: Error) => {
              this.log.debug({ err: err.message }, 'a WebSocket message failed');
              socket.close(CloseCode.InternalServerError, 'INTERNAL_SERVER_ERROR');
            });
          }),
      },
      connection,
    );
    socket.once('close', (code, reason) => {
      clearInterval(ping);
      this.pending.delete(socket);
      this.sessions.delete(socket);
      closed(code, reason.toString()).catch((err: Error) => this.log.debug({ err: err.message }, 'a WebSocket could not be closed'));
    });
  }

  private async connect(context: ConnectionContext): Promise<boolean> {
    const { socket, request } = context.extra;
    const given = context.connectionParams ?? {};
    const credential = given['authorization'] ?? given['Authorization'] ?? given['apiKey'] ?? request.headers.authorization;
    try {
      const viewer = await this.authentication.viewerOf(credential, this.proxies.addressOf(request));
      if (socket.readyState !== socket.OPEN) return false;
      this.requirePlace(viewer);
      context.extra.viewer = viewer;
      this.pending.delete(socket);
      this.sessions.set(socket, viewer);
      return true;
    } catch (error) {
      this.closeFor(socket, error);
      return false;
    }
  }

  /** @throws Fault RATE_LIMITED, TOO_BUSY */
  private requirePlace({ apiKeyId, teamId }: Viewer): void {
    const { socketsPerKey, socketsPerTeam } = this.settings;
    const open = [...this.sessions.values()];
    if (socketsPerKey && open.filter((viewer) => viewer.apiKeyId === apiKeyId).length >= socketsPerKey)
      throw new Fault('RATE_LIMITED', `${socketsPerKey} connections of this key are open`);
    if (socketsPerTeam && open.filter((viewer) => viewer.teamId === teamId).length >= socketsPerTeam)
      throw new Fault('RATE_LIMITED', `${socketsPerTeam} connections of this team are open`);
    if (open.length >= MAX_SOCKETS) throw new Fault('TOO_BUSY', 'all connections are taken');
  }

  /** Whoever sends more than a key may is closed. */
  private mayGoOn({ socket, viewer }: Connection): boolean {
    if (socket.readyState !== socket.OPEN) return false;
    if (!viewer) return true;
    try {
      this.rates.request(viewer);
      return true;
    } catch (error) {
      this.closeFor(socket, error);
      return false;
    }
  }

  private closeFor(socket: WebSocket, error: unknown): void {
    if (error instanceof Fault) {
      const { code, message } = error;
      const text = code === 'RATE_LIMITED' || code === 'TOO_BUSY' ? `${code}: ${message}` : code;
      return this.end(socket, code === 'TOO_BUSY' ? 4503 : FAULTS[code].status === 429 ? 4429 : 4401, text);
    }
    if (isDatabaseOutage(error)) return this.end(socket, 4503, isPoolFull(error) ? 'TOO_BUSY' : 'SERVICE_UNAVAILABLE');
    this.log.error({ err: error as Error }, 'a WebSocket could not be authenticated');
    this.end(socket, 4500, 'INTERNAL_SERVER_ERROR');
  }

  /** A peer that does not answer the close keeps its place no longer than this. */
  private end(socket: WebSocket, code: number, reason: string): void {
    socket.close(code, reason.slice(0, 120));
    setTimeout(() => socket.terminate(), CLOSE_WITHIN_MS).unref();
  }

  private closeWhere(isOver: (viewer: Viewer) => boolean): void {
    for (const [socket, viewer] of this.sessions) if (isOver(viewer)) this.end(socket, 4401, 'UNAUTHENTICATED');
  }

  /** A key that was revoked or has expired ends what it opened, also when nobody has told this api. */
  private async checkKeys(): Promise<void> {
    const ids = [...new Set([...this.sessions.values()].map(({ apiKeyId }) => apiKeyId))];
    if (ids.length === 0) return;
    try {
      const valid = await this.authentication.valid(ids);
      this.closeWhere(({ apiKeyId }) => ids.includes(apiKeyId) && !valid.has(apiKeyId));
    } catch (error) {
      if (!isDatabaseOutage(error)) this.log.error({ err: error as Error }, 'the keys of WebSockets could not be checked');
    }
  }

  private subscribe(context: ConnectionContext, payload: SubscribePayload): ExecutionArgs | readonly GraphQLError[] {
    const { extra } = context;
    const answer = this.admit(context, payload);
    if ('schema' in answer) return answer;
    if (++extra.refused >= MAX_REFUSED_PER_CONNECTION) this.end(extra.socket, 4429, 'RATE_LIMITED: too many refused subscriptions');
    return answer;
  }

  private admit(context: ConnectionContext, payload: SubscribePayload): ExecutionArgs | readonly GraphQLError[] {
    const refuse = (code: string, message: string) => [new GraphQLError(message, { extensions: { code } })];
    if (Object.keys(context.subscriptions).length > MAX_SUBSCRIPTIONS_PER_CONNECTION) {
      return refuse('TOO_BUSY', `A connection holds at most ${MAX_SUBSCRIPTIONS_PER_CONNECTION} subscriptions.`);
    }
    const { schema } = this.schema;
    const viewer = context.extra.viewer!;
    const { query, operationName, variables } = payload;
    let document = this.documents.find(query);
    if (!document) {
      try {
        this.rates.text(viewer, query, GRAPHQL_LIMITS.subscriptionTokens);
      } catch (error) {
        if (error instanceof Fault) return refuse(error.code, error.message);
        throw error;
      }
      const checked = parseAndValidate(schema, query);
      if ('errors' in checked) return checked.errors;
      document = checked.document;
      this.documents.keep(query, document);
    }
    const operation = getOperationAST(document, operationName ?? undefined);
    if (operation?.operation !== 'subscription')
      return refuse('BAD_REQUEST', 'Only subscriptions go over WebSocket; send queries and mutations by HTTP.');
    const refusal = tooCostly(costOf(schema, document, operation, variables ?? {}));
    if (refusal) return [refusal];
    return {
      schema,
      document,
      operationName: operationName ?? null,
      variableValues: variables ?? null,
      contextValue: { viewer, req: context.extra.request },
    };
  }

  private formatAll(errors: readonly (GraphQLError | GraphQLFormattedError)[]): GraphQLFormattedError[] {
    return errors.map((error) => {
      const plain = error instanceof GraphQLError ? error.toJSON() : error;
      // Apollo does this for HTTP: an error of GraphQL itself has no code and no cause.
      const own = error instanceof GraphQLError && isFromGraphql(error) && !plain.extensions?.['code'];
      return this.format(own ? { ...plain, extensions: { ...plain.extensions, code: 'GRAPHQL_VALIDATION_FAILED' } } : plain, error);
    });
  }
}
