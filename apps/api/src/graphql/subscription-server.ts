/**
 * Subscriptions over WebSocket (graphql-transport-ws) at /graphql. Bounded in every direction: connections, subscriptions per
 * connection, message size, time until the key is shown. Backpressure comes from the socket: the next row is read from
 * PostgreSQL when the one before was written out.
 *
 * Close codes: 4401 no or wrong key (also when it is revoked later), 4429 too many wrong keys, 4503 PostgreSQL away (come again),
 * 1001 the api stops.
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
import { isDatabaseOutage } from '../database/outage.js';
import { Fault } from '../fault.js';
import { LOGGER } from '../logger.js';
import { Authentication, type Viewer } from '../teams/authentication.js';
import { createErrorFormatter, isFromGraphql } from './format-error.js';
import { parseAndValidate } from './limits.js';

const MAX_CONNECTIONS = 1_000;
const MAX_SUBSCRIPTIONS_PER_CONNECTION = 50;
const MAX_MESSAGE_BYTES = 64 * 1024;
const KEY_WITHIN_MS = 5_000;
const CHECK_KEYS_EVERY_MS = 30_000;
const KEEP_ALIVE_MS = 12_000;
const CLOSE_WITHIN_MS = 1_000;

interface Session {
  viewer: Viewer;
  credential: unknown;
}
interface Connection extends Partial<Session> {
  readonly socket: WebSocket;
  readonly request: IncomingMessage;
}
type ConnectionContext = Context<Record<string, unknown>, Connection>;

@Injectable()
export class SubscriptionServer {
  private readonly sockets = new WebSocketServer({ noServer: true, maxPayload: MAX_MESSAGE_BYTES, clientTracking: true });
  private readonly sessions = new Map<WebSocket, Session & { address: string }>();
  private readonly format: (formatted: GraphQLFormattedError, error: unknown) => GraphQLFormattedError;
  private readonly protocol: ProtocolServer<Connection>;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly schema: GraphQLSchemaHost,
    private readonly authentication: Authentication,
    @Inject(LOGGER) private readonly log: Logger,
  ) {
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
    for (const socket of this.sockets.clients) {
      socket.close(1001, 'the api stops');
      setTimeout(() => socket.terminate(), CLOSE_WITHIN_MS).unref();
    }
  }

  private upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => socket.destroy());
    const protocols = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((protocol) => protocol.trim());
    const refuse = (status: string): void => void socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    if ((request.url ?? '').split('?')[0] !== '/graphql') return refuse('404 Not Found');
    if (!protocols.includes(GRAPHQL_TRANSPORT_WS_PROTOCOL)) return refuse('400 Bad Request');
    if (this.sockets.clients.size >= MAX_CONNECTIONS) return refuse('503 Service Unavailable');
    this.sockets.handleUpgrade(request, socket, head, (webSocket) => this.open(webSocket, request));
  }

  /** Connects a socket with the protocol, and pings it: a peer that does not answer by the next ping is gone. */
  private open(socket: WebSocket, request: IncomingMessage): void {
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
            take(String(data)).catch((err: Error) => {
              this.log.debug({ err: err.message }, 'a WebSocket message failed');
              socket.close(CloseCode.InternalServerError, 'INTERNAL_SERVER_ERROR');
            });
          }),
      },
      { socket, request },
    );
    socket.once('close', (code, reason) => {
      clearInterval(ping);
      this.sessions.delete(socket);
      closed(code, reason.toString()).catch((err: Error) => this.log.debug({ err: err.message }, 'a WebSocket could not be put away'));
    });
  }

  private async connect(context: ConnectionContext): Promise<boolean> {
    const { socket, request } = context.extra;
    const given = context.connectionParams ?? {};
    const credential = given['authorization'] ?? given['Authorization'] ?? given['apiKey'] ?? request.headers.authorization;
    const address = request.socket.remoteAddress ?? '';
    try {
      const viewer = await this.authentication.viewerOf(credential, address);
      Object.assign(context.extra, { viewer, credential });
      this.sessions.set(socket, { viewer, credential, address });
      return true;
    } catch (error) {
      this.closeFor(socket, error);
      return false;
    }
  }

  private closeFor(socket: WebSocket, error: unknown): void {
    if (error instanceof Fault) return socket.close(error.code === 'TOO_MANY_ATTEMPTS' ? 4429 : 4401, error.code);
    if (isDatabaseOutage(error)) return socket.close(4503, 'SERVICE_UNAVAILABLE');
    this.log.error({ err: error as Error }, 'a WebSocket could not be authenticated');
    socket.close(4500, 'INTERNAL_SERVER_ERROR');
  }

  /** A revoked key ends what it opened. */
  private async checkKeys(): Promise<void> {
    for (const [socket, { credential, address }] of this.sessions) {
      try {
        await this.authentication.viewerOf(credential, address);
      } catch (error) {
        if (error instanceof Fault && error.code === 'UNAUTHENTICATED') this.closeFor(socket, error);
      }
    }
  }

  private subscribe(context: ConnectionContext, payload: SubscribePayload): ExecutionArgs | readonly GraphQLError[] {
    const refuse = (code: string, message: string) => [new GraphQLError(message, { extensions: { code } })];
    if (Object.keys(context.subscriptions).length > MAX_SUBSCRIPTIONS_PER_CONNECTION) {
      return refuse('TOO_BUSY', `A connection holds at most ${MAX_SUBSCRIPTIONS_PER_CONNECTION} subscriptions.`);
    }
    const { schema } = this.schema;
    const checked = parseAndValidate(schema, payload.query);
    if ('errors' in checked) return checked.errors;
    const operation = getOperationAST(checked.document, payload.operationName ?? undefined);
    if (operation?.operation !== 'subscription')
      return refuse('BAD_REQUEST', 'Only subscriptions go over WebSocket; send queries and mutations by HTTP.');
    const { viewer } = context.extra;
    return {
      schema,
      document: checked.document,
      operationName: payload.operationName ?? null,
      variableValues: payload.variables ?? null,
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
