/**
 * One holder among all apis, as long as its connection lives: a session-level advisory lock on a connection of its own. When
 * the holder dies, PostgreSQL frees the lock with the connection, so nobody has to wait for a lease to run out.
 */
import pg from 'pg';

const DEADLINE_MS = 3_000;

export class AdvisoryLock {
  private client: pg.Client | undefined;

  constructor(
    private readonly databaseUrl: string,
    private readonly key: number,
  ) {}

  get isHeld(): boolean {
    return this.client !== undefined;
  }

  /** True when this process holds the lock now. Checks that the connection still answers. @throws Error when PostgreSQL is away */
  async hold(): Promise<boolean> {
    if (this.client) {
      try {
        await this.client.query('SELECT 1');
        return true;
      } catch (error) {
        await this.release();
        throw error;
      }
    }
    const client = new pg.Client({
      connectionString: this.databaseUrl,
      connectionTimeoutMillis: DEADLINE_MS,
      query_timeout: DEADLINE_MS,
      keepAlive: true,
      application_name: 'paceline-api lock',
    });
    client.on('error', () => void this.release());
    await client.connect();
    const { rows } = await client.query<{ held: boolean }>('SELECT pg_try_advisory_lock($1) AS held', [this.key]);
    if (rows[0]?.held) {
      this.client = client;
      return true;
    }
    await client.end();
    return false;
  }

  async release(): Promise<void> {
    const { client } = this;
    this.client = undefined;
    // A broken connection cannot be ended in order; PostgreSQL has freed the lock already.
    await client?.end().catch(() => undefined);
  }
}
