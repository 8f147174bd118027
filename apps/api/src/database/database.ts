/**
 * The only door to PostgreSQL. Every statement has a deadline, so a database that hangs is an outage and not a pile of requests. What people ask
 * and what the api does by itself (reports, dispatch) have connections apart, so that no request stops a run.
 */
import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { PrismaPg } from '@prisma/adapter-pg';
import type { Logger } from '@paceline/runtime';
import pg from 'pg';
import { Settings } from '../environment.js';
import { PrismaClient, type Prisma } from '../generated/prisma/client.js';
import { LOGGER } from '../logger.js';
import { PoolFullError } from './outage.js';

const REQUEST_CONNECTIONS = 10;
const BACKGROUND_CONNECTIONS = 6;
const WAITING_FOR_A_CONNECTION = 500;
const CONNECT_DEADLINE_MS = 2_000;
/** More than a connection may take, so that what went wrong with it is what is said. */
const TRANSACTION_BEGINS_WITHIN_MS = CONNECT_DEADLINE_MS + 1_000;
const STATEMENT_DEADLINE_MS = 8_000;
const TRANSACTION_DEADLINE_MS = 10_000;
/** An api that is stopped in the middle of a transaction holds the lock of a run's row: PostgreSQL ends it. */
const STANDSTILL_DEADLINE_MS = 8_000;

/** A bigint as Prisma has it; everything else as `pg` reads it, which is the same. */
const TYPES: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    oid === Number(pg.types.builtins.INT8) ? BigInt : pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
};

/** Inside `Database.transact`. */
export type Transaction = Prisma.TransactionClient;

/**
 * A pool that says why there is no connection. pg answers alike whether PostgreSQL is away or all connections are in use; for the caller one is an
 * outage and the other means too much is being asked.
 */
class Pool extends pg.Pool {
  private connected = 0;

  constructor(private readonly most: pg.PoolConfig & { max: number }) {
    super(most);
    this.on('connect', (client) => {
      this.connected++;
      // What was asked fails with it, and an idle one is told by the pool; one that is being ended is listened to by nobody else.
      client.on('error', () => undefined);
    });
    this.on('remove', (client) => void (client && this.connected > 0 && this.connected--));
  }

  private get isFull(): boolean {
    return this.connected >= this.most.max && this.idleCount === 0;
  }

  override connect(): Promise<pg.PoolClient>;
  override connect(callback: Parameters<pg.Pool['connect']>[0]): void;
  override connect(callback?: Parameters<pg.Pool['connect']>[0]): Promise<pg.PoolClient> | void {
    if (!callback)
      return new Promise((resolve, reject) => this.connect((error, client) => (client ? resolve(client) : reject(error as Error))));
    if (this.waitingCount >= WAITING_FOR_A_CONNECTION) return callback(new PoolFullError(), undefined, () => undefined);
    super.connect((error, client, done) => callback(error && this.isFull ? new PoolFullError({ cause: error }) : error, client, done));
  }
}

class PostgresClient extends PrismaClient implements OnApplicationShutdown {
  private readonly life: { isClosing: boolean };
  private readonly pool: pg.Pool;

  constructor(settings: Settings, log: Logger, name: string, connections: number) {
    const life = { isClosing: false };
    // While it closes, a server that closes too may be quicker to say goodbye.
    const lost = (err: Error): void => void (life.isClosing || log.warn({ err: err.message }, 'a connection to PostgreSQL was lost'));
    const pool = new Pool({
      connectionString: settings.databaseUrl,
      max: connections,
      connectionTimeoutMillis: CONNECT_DEADLINE_MS,
      statement_timeout: STATEMENT_DEADLINE_MS,
      query_timeout: STATEMENT_DEADLINE_MS + 1_000,
      idle_in_transaction_session_timeout: STANDSTILL_DEADLINE_MS,
      keepAlive: true,
      application_name: name,
    });
    // The adapter listens from its first statement on, and `statement` does not go through it.
    pool.on('error', lost);
    // The adapter brings newer types of the same package.
    const adapter = new PrismaPg(pool as unknown as ConstructorParameters<typeof PrismaPg>[0], {
      onConnectionError: lost,
      disposeExternalPool: true,
    });
    super({
      adapter,
      errorFormat: 'minimal',
      transactionOptions: { maxWait: TRANSACTION_BEGINS_WITHIN_MS, timeout: TRANSACTION_DEADLINE_MS },
    });
    this.life = life;
    this.pool = pool;
  }

  /**
   * A statement that is asked many times a second: PostgreSQL plans it once per connection, and nothing of Prisma is in between, which costs ten
   * times the statement. Columns come as `pg` reads them: a bigint is a text.
   * @param name of this text, and of no other
   * @throws as every other statement here
   */
  async statement<Row extends pg.QueryResultRow>(name: string, text: string, values: readonly unknown[] = []): Promise<Row[]> {
    const { rows } = await this.pool.query<Row>({ name, text, values: [...values] });
    return rows;
  }

  /**
   * A statement whose rows are as Prisma has them, without Prisma in between: for what is asked every second while somebody looks at a run.
   * @param name of this text, and of no other
   * @throws as every other statement here
   */
  async rows<Row extends object>(name: string, text: string, values: readonly unknown[]): Promise<Row[]> {
    const { rows } = await this.pool.query<Row & pg.QueryResultRow>({ name, text, values: [...values], types: TYPES });
    return rows;
  }

  transact<T>(work: (transaction: Transaction) => Promise<T>): Promise<T> {
    return this.$transaction(work);
  }

  /** After the background work has ended (onModuleDestroy): a query after this would connect again. */
  async onApplicationShutdown(): Promise<void> {
    this.life.isClosing = true;
    await this.$disconnect();
    if (!this.pool.ending) await this.pool.end(); // where no statement has gone through the adapter
  }
}

/** What the requests of people use. */
@Injectable()
export class Database extends PostgresClient {
  constructor(settings: Settings, @Inject(LOGGER) log: Logger) {
    super(settings, log, 'paceline-api', REQUEST_CONNECTIONS);
  }
}

/** What reports and dispatch use. */
@Injectable()
export class BackgroundDatabase extends PostgresClient {
  constructor(settings: Settings, @Inject(LOGGER) log: Logger) {
    super(settings, log, 'paceline-api background', BACKGROUND_CONNECTIONS);
  }
}
