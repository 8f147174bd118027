/**
 * A request that makes something may carry a key of the client's; the same request under the same key is then carried out once, however
 * often it is sent. What was made first is looked up before anything else is done with the request, and "the same" is what the client
 * sent, not what became of it: a checkpoint that is newer by now, or a default that changed, makes no difference. The row is written in
 * the transaction that makes the thing, so there are both or none.
 *
 * When equal requests come to this process at once, one is carried out. The others wait for it and get the same answer, so that they take nobody's
 * turn. Between processes the key in the table decides.
 *
 * Keys of a team are one list over all operations. They are kept for 30 days.
 */
import { createHash } from 'node:crypto';
import { Inject, Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { Database, type Transaction } from '../database/database.js';
import { Conflict, InvalidInput } from '../graphql/result.types.js';
import { LOGGER } from '../logger.js';
import type { Viewer } from '../teams/authentication.js';
import { keyIssues } from '../text-input.js';

export const KEPT_DAYS = 30;
const SWEEP_EVERY_MS = 3_600_000;
const SWEPT_AT_ONCE = 5_000;
const MAX_DEPTH = 64;
/** Keys whose first request is under way; beyond that the table alone decides. */
const MAX_UNDER_WAY = 10_000;

export interface KeyedRequest {
  readonly operation: string;
  readonly key?: string | null | undefined;
  /** As the client sent it: plain JSON. */
  readonly input: unknown;
  /** Told when the answer is that of an earlier request. */
  readonly onReplay?: (() => void) | undefined;
}

/** Writes the key down beside what was made; does nothing for a request without a key. */
export type Remember = (transaction: Transaction, resultId: string) => Promise<void>;

/** The first request under a key, while it is carried out. */
interface UnderWay {
  /** Equal for requests that ask the same with the same API key. */
  readonly identity: string;
  /** Never rejects: gives the answer, or throws what was thrown. */
  readonly ended: Promise<() => unknown>;
}

@Injectable()
export class IdempotencyKeys implements OnModuleInit, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;
  private readonly underWay = new Map<string, UnderWay>();

  constructor(
    private readonly database: Database,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  onModuleInit(): void {
    this.timer = setInterval(() => {
      this.sweep().catch((err: Error) => this.log.warn({ err: err.message }, 'old idempotency keys could not be removed'));
    }, SWEEP_EVERY_MS);
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  /**
   * Does `act` once per key, and answers with `replay` of what it made afterwards.
   * @param act must call `remember` in the transaction that makes the thing
   */
  async once<R>(
    viewer: Viewer,
    { operation, key, input, onReplay }: KeyedRequest,
    act: (remember: Remember) => Promise<R>,
    replay: (resultId: string) => Promise<R>,
  ): Promise<R | Conflict | InvalidInput> {
    if (key === null || key === undefined) return act(async () => undefined);
    const issues = keyIssues('idempotencyKey', key);
    if (isTooDeep(input)) issues.push({ path: '(input)', message: `is nested deeper than ${MAX_DEPTH} levels` });
    if (issues.length > 0) return new InvalidInput(issues);
    const inputHash = hashOf(input);
    const { teamId } = viewer;
    const earlier = async (): Promise<{ answer: R | Conflict } | undefined> => {
      const row = await this.database.idempotencyKey.findUnique({ where: { teamId_key: { teamId, key } } });
      if (!row) return undefined;
      if (row.operation !== operation || row.inputHash !== inputHash)
        return { answer: new Conflict('This idempotency key was used for another request; take a new key for each new request.') };
      onReplay?.();
      return { answer: await replay(row.resultId) };
    };
    const identity = `${viewer.apiKeyId} ${operation} ${inputHash}`;
    const name = `${teamId}/${key}`;
    const first = this.underWay.get(name);
    if (first) {
      const end = await first.ended;
      const found = await earlier();
      if (found) return found.answer;
      // It made nothing: whoever asked the same at the same time is refused alike; another request is carried out for itself.
      if (first.identity === identity) return end() as R;
    }
    const carriedOut = this.carryOut(act, earlier, { teamId, key, operation, inputHash });
    if (this.underWay.has(name) || this.underWay.size >= MAX_UNDER_WAY) return carriedOut;
    const ended = carriedOut.then(
      (answer) => () => answer,
      (error: unknown) => () => {
        throw error;
      },
    );
    this.underWay.set(name, { identity, ended });
    return carriedOut.finally(() => this.underWay.delete(name));
  }

  private async carryOut<R>(
    act: (remember: Remember) => Promise<R>,
    earlier: () => Promise<{ answer: R | Conflict } | undefined>,
    row: { readonly teamId: string; readonly key: string; readonly operation: string; readonly inputHash: string },
  ): Promise<R | Conflict> {
    const found = await earlier();
    if (found) return found.answer;
    let isRemembered = false;
    let winner: { answer: R | Conflict } | undefined;
    try {
      const answer = await act(async (transaction, resultId) => {
        await transaction.idempotencyKey.create({ data: { ...row, resultId } });
        isRemembered = true;
      });
      if (isRemembered) return answer;
      // It was refused; what refuses it may be what the same request has made meanwhile, in another process.
      winner = await earlier();
      return winner ? winner.answer : answer;
    } catch (error) {
      // Two requests with one key at the same moment: one makes the thing, the other finds it.
      winner = (error as { code?: unknown }).code === 'P2002' ? await earlier() : undefined;
      if (winner) return winner.answer;
      throw error;
    }
  }

  /** Removes keys that are older than they are kept. @returns how many */
  async sweep(now = new Date()): Promise<number> {
    const before = new Date(now.getTime() - KEPT_DAYS * 86_400_000);
    let total = 0;
    for (;;) {
      const removed = await this.database.$executeRaw`
        DELETE FROM "IdempotencyKey" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "IdempotencyKey" WHERE "createdAt" < ${before} LIMIT ${SWEPT_AT_ONCE}))`;
      total += removed;
      if (removed < SWEPT_AT_ONCE) return total;
    }
  }
}

/** The order in which a client writes the names of an object means nothing. */
function hashOf(input: unknown): string {
  const sorted = (_: string, value: unknown): unknown =>
    value !== null && typeof value === 'object' && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  return createHash('sha256')
    .update(JSON.stringify(input ?? null, sorted))
    .digest('hex');
}

/** With a list of its own instead of the stack, which nesting could overflow. */
function isTooDeep(input: unknown): boolean {
  let level: unknown[] = [input];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) return true;
    level = level.flatMap((value) => (value !== null && typeof value === 'object' ? Object.values(value) : []));
  }
  return false;
}
