/**
 * The ports of `DispatchLock` (libs/control-plane) on PostgreSQL: a session-level advisory lock on a connection of its own. When the holder dies, the
 * lock is free with the connection. PostgreSQL itself knows when it was heard last (`state_change` of its session), so nothing has to be
 * written for that, and ends the session of one that stands still: by its own clock, and by its own list of who holds the lock.
 */
import pg from 'pg';

const DEADLINE_MS = 3_000;

/** A session without `state_change` (track_activities is off) is never ended. */
const END_STALE_HOLDER = `
  SELECT pg_terminate_backend(holder.pid) AS ended
    FROM pg_locks JOIN pg_stat_activity AS holder USING (pid)
   WHERE locktype = 'advisory' AND database = holder.datid AND datname = current_database()
     AND classid = 0 AND objid = $1::bigint::oid AND objsubid = 1 AND granted
     AND state_change < clock_timestamp() - $2::int * interval '1 ms'`;

export class AdvisoryLock {
  private client: pg.Client | undefined;
  /** It asks again and again while another api holds the lock. */
  private asking: pg.Client | undefined;

  /** @param key below 2^32 @param gone told as soon as the connection that holds the lock has ended by itself */
  constructor(
    private readonly databaseUrl: string,
    private readonly key: number,
    private readonly gone: () => void,
  ) {}

  /** @throws when PostgreSQL is away */
  async take(staleMs: number): Promise<'held' | 'another holds it' | 'ended its holder'> {
    const client = this.asking ?? this.newClient();
    let isLeft = true;
    try {
      if (client !== this.asking) await client.connect();
      const { rows } = await client.query<{ held: boolean }>('SELECT pg_try_advisory_lock($1) AS held', [this.key]);
      if (rows[0]?.held) {
        this.client = client;
        this.asking = undefined;
        isLeft = false;
        return 'held';
      }
      const { rows: ended } = await client.query<{ ended: boolean }>(END_STALE_HOLDER, [this.key, staleMs]);
      this.asking = client;
      isLeft = false;
      return ended.some((row) => row.ended) ? 'ended its holder' : 'another holds it';
    } finally {
      if (isLeft) await this.release(client);
    }
  }

  private newClient(): pg.Client {
    const client = new pg.Client({
      connectionString: this.databaseUrl,
      connectionTimeoutMillis: DEADLINE_MS,
      query_timeout: DEADLINE_MS,
      keepAlive: true,
      application_name: 'paceline-api lock',
    });
    const ended = (): void => {
      if (client === this.client) this.gone();
      void this.release(client);
    };
    client.on('error', ended);
    client.on('end', ended);
    return client;
  }

  /** @returns false when the connection that held the lock is gone @throws when PostgreSQL does not answer */
  async beat(): Promise<boolean> {
    await this.client?.query('SELECT 1');
    return this.client !== undefined;
  }

  async letGo(): Promise<void> {
    await Promise.all([this.release(this.client), this.release(this.asking)]);
  }

  private async release(client: pg.Client | undefined): Promise<void> {
    if (client === this.client) this.client = undefined;
    if (client === this.asking) this.asking = undefined;
    // A broken connection cannot be ended in order; PostgreSQL has freed the lock already.
    await client?.end().catch(() => undefined);
  }
}
