/** The only door to PostgreSQL. Every statement has a deadline, so a database that hangs is an outage and not a pile of requests. */
import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { PrismaPg } from '@prisma/adapter-pg';
import type { Logger } from '@paceline/runtime';
import { Settings } from '../environment.js';
import { PrismaClient, type Prisma } from '../generated/prisma/client.js';
import { LOGGER } from '../logger.js';

const POOL_CONNECTIONS = 12;
const CONNECT_DEADLINE_MS = 2_000;
const STATEMENT_DEADLINE_MS = 8_000;
const TRANSACTION_DEADLINE_MS = 10_000;
/** An api that is stopped in the middle of a transaction holds the lock of a run's row: PostgreSQL ends it. */
const STANDSTILL_DEADLINE_MS = 8_000;

/** Inside `Database.transact`. */
export type Transaction = Prisma.TransactionClient;

@Injectable()
export class Database extends PrismaClient implements OnApplicationShutdown {
  private readonly life: { isClosing: boolean };

  constructor(settings: Settings, @Inject(LOGGER) log: Logger) {
    const life = { isClosing: false };
    // While it closes, a server that closes too may be quicker to say goodbye.
    const lost = (err: Error): void => void (life.isClosing || log.warn({ err: err.message }, 'a connection to PostgreSQL was lost'));
    const adapter = new PrismaPg(
      {
        connectionString: settings.databaseUrl,
        max: POOL_CONNECTIONS,
        connectionTimeoutMillis: CONNECT_DEADLINE_MS,
        statement_timeout: STATEMENT_DEADLINE_MS,
        query_timeout: STATEMENT_DEADLINE_MS + 1_000,
        idle_in_transaction_session_timeout: STANDSTILL_DEADLINE_MS,
        keepAlive: true,
        application_name: 'paceline-api',
      },
      { onPoolError: lost, onConnectionError: lost },
    );
    super({ adapter, errorFormat: 'minimal', transactionOptions: { maxWait: CONNECT_DEADLINE_MS, timeout: TRANSACTION_DEADLINE_MS } });
    this.life = life;
  }

  transact<T>(work: (transaction: Transaction) => Promise<T>): Promise<T> {
    return this.$transaction(work);
  }

  /** After the background work has ended (onModuleDestroy): a query after this would connect again. */
  async onApplicationShutdown(): Promise<void> {
    this.life.isClosing = true;
    await this.$disconnect();
  }
}
