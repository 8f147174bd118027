/** Named checks behind `/healthz` and `/readyz`, each with its own deadline, run together. */
export interface HealthReport {
  readonly status: 'ok' | 'failing';
  readonly checks: Readonly<Record<string, { readonly status: 'ok' | 'failing'; readonly ms: number; readonly message?: string }>>;
}

export interface HealthRegistry {
  /** @throws Error when the name is taken */
  register(name: string, check: () => Promise<void> | void, options?: { readonly timeoutMs?: number }): void;
  check(): Promise<HealthReport>;
}

export function createHealthRegistry(): HealthRegistry {
  const registered = new Map<string, { check: () => Promise<void> | void; timeoutMs: number }>();
  return {
    register(name, check, { timeoutMs = 2000 } = {}) {
      if (registered.has(name)) throw new Error(`health check ${JSON.stringify(name)} is registered twice`);
      registered.set(name, { check, timeoutMs });
    },
    async check() {
      const results = await Promise.all(
        [...registered].map(async ([name, { check, timeoutMs }]) => {
          const startedAt = performance.now();
          const message = await outcome(check, timeoutMs);
          const ms = Math.round(performance.now() - startedAt);
          return [name, message === undefined ? { status: 'ok' as const, ms } : { status: 'failing' as const, ms, message }] as const;
        }),
      );
      return { status: results.every(([, result]) => result.status === 'ok') ? 'ok' : 'failing', checks: Object.fromEntries(results) };
    },
  };
}

async function outcome(check: () => Promise<void> | void, timeoutMs: number): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`no answer after ${timeoutMs} ms`), timeoutMs);
  });
  try {
    return await Promise.race([Promise.resolve(check()).then(() => undefined), timeout]);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  } finally {
    clearTimeout(timer);
  }
}
