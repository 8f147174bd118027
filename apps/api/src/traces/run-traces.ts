/**
 * A trace of some rounds of a run: every process of the attempt is asked through the control hash, and what they report becomes one trace.
 *
 *     asked ── control hash ──> servers, workers: record ── report stream ──> kept in Redis ──> merged, answered
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { chromeTrace, MAX_TRACED_ROUNDS, type ChromeTrace, type TraceRequest } from '@paceline/control-plane';
import { ControlHashes } from '../dispatch/control-hashes.js';
import { Fault, RETRY_AFTER_SECONDS } from '../fault.js';
import { shortSpecOf } from '../runs/run-row.js';
import type { Run } from '../runs/run.types.js';
import { Turns } from '../turns.js';
import { TraceKeeper } from './trace-keeper.js';

export const DEFAULT_TRACED_ROUNDS = 3;
/** By then every process has looked. */
const START_IN_MS = 1_500;
const LOOK_EVERY_MS = 200;
/** Everybody who records ends within the same seconds. */
const QUIET_MS = 2_500;
const DEADLINE_MS = 18_000;
/** Of this api at a time, one of them of a team: each is held in memory when it is merged. */
export const MAX_TRACES = 4;

@Injectable()
export class RunTraces implements OnModuleDestroy {
  private readonly turns = new Turns(
    { atOnce: MAX_TRACES, atOnceOfTeam: 1 },
    (isOwn) =>
      new Fault(
        'CONFLICT',
        isOwn
          ? 'A run of your team is being traced already: try again when that trace is over, in some seconds.'
          : `${MAX_TRACES} traces are being recorded already: try again when one of them is over, in some seconds.`,
      ),
  );
  private readonly stopping = new AbortController();

  constructor(
    private readonly control: ControlHashes,
    private readonly traces: TraceKeeper,
  ) {}

  onModuleDestroy(): void {
    this.stopping.abort();
  }

  /**
   * Takes some seconds: until every process has recorded so many rounds.
   * @throws Fault INVALID_INPUT; CONFLICT when the run does not train or is traced already, or too many are; SERVICE_UNAVAILABLE when the api stops
   */
  async record(run: Run, rounds: number): Promise<ChromeTrace> {
    checkTraceable(run, rounds);
    return this.turns.run(run.row.teamId, () => this.recordOne(run, rounds));
  }

  private async recordOne(run: Run, rounds: number): Promise<ChromeTrace> {
    const request: TraceRequest = { attempt: run.attempt, id: randomUUID(), rounds, startAtMs: Date.now() + START_IN_MS };
    if (!(await this.traces.begin(run.id, request.id)))
      throw new Fault('CONFLICT', 'The run is being traced already: try again when that trace is over, in some seconds.');
    try {
      await this.control.write(run.id, { trace: JSON.stringify(request) });
      await this.reported(request.id);
      const { processes, leftOut } = await this.traces.read(request.id);
      const trace = processes.length > 0 ? chromeTrace(processes, rounds, leftOut) : undefined;
      if (trace) return trace;
    } finally {
      // Redis is away: then the trace ends by its expiry.
      await this.traces.end(run.id, request.id).catch(() => undefined);
    }
    throw new Fault(
      'CONFLICT',
      `No round was seen whole by all processes of the run within ${DEADLINE_MS / 1000} s: it may have ended, wait for workers, or have longer rounds.`,
    );
  }

  /** Until nobody more has reported for a while, or the deadline. @throws Fault SERVICE_UNAVAILABLE when the api stops */
  private async reported(traceId: string): Promise<void> {
    const { signal } = this.stopping;
    const untilMs = Date.now() + DEADLINE_MS;
    let bytes = 0;
    let changedMs = Infinity;
    while (Date.now() < untilMs && Date.now() - changedMs < QUIET_MS) {
      await sleep(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined); // told below
      if (signal.aborted)
        throw new Fault('SERVICE_UNAVAILABLE', 'The api stops, and the trace with it. Ask again when it is back.', RETRY_AFTER_SECONDS);
      const now = await this.traces.reportedBytes(traceId);
      if (now > bytes) [bytes, changedMs] = [now, Date.now()];
    }
  }
}

function checkTraceable({ row, status }: Run, rounds: number): void {
  if (!Number.isInteger(rounds) || rounds < 1 || rounds > MAX_TRACED_ROUNDS)
    throw new Fault('INVALID_INPUT', `rounds: must be 1 to ${MAX_TRACED_ROUNDS}`, undefined, [
      { path: 'rounds', message: `must be 1 to ${MAX_TRACED_ROUNDS}` },
    ]);
  const { mode } = shortSpecOf(row).strategy;
  if (mode !== 'sync')
    throw new Fault(
      'CONFLICT',
      `The run is in mode ${mode}, where workers go through rounds each by itself: only those of mode sync can be traced.`,
    );
  if (status !== 'RUNNING') throw new Fault('CONFLICT', `The run is ${status}: only the rounds of a run that is RUNNING can be traced.`);
}
