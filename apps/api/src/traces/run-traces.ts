/**
 * A trace of some rounds of a run: every process of the attempt is asked through the control hash, and what they report becomes one trace.
 *
 *     asked ── control hash ──> servers, workers: record ── report stream ──> kept in Redis ──> merged, answered
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { chromeTrace, MAX_TRACED_ROUNDS, type ChromeTrace, type TraceRequest } from '@paceline/control-plane';
import { ControlHashes } from '../dispatch/control-hashes.js';
import { Fault } from '../fault.js';
import { specOf } from '../runs/run-row.js';
import type { Run } from '../runs/run.types.js';
import { TraceKeeper } from './trace-keeper.js';

export const DEFAULT_TRACED_ROUNDS = 3;
/** By then every process has looked. */
const START_IN_MS = 1_500;
const LOOK_EVERY_MS = 200;
/** Everybody who records ends within the same seconds. */
const QUIET_MS = 2_500;
const DEADLINE_MS = 18_000;

@Injectable()
export class RunTraces {
  constructor(
    private readonly control: ControlHashes,
    private readonly traces: TraceKeeper,
  ) {}

  /**
   * Takes some seconds: until every process has recorded so many rounds.
   * @throws Fault INVALID_INPUT, CONFLICT when the run does not train
   */
  async record(run: Run, rounds: number): Promise<ChromeTrace> {
    if (!Number.isInteger(rounds) || rounds < 1 || rounds > MAX_TRACED_ROUNDS)
      throw new Fault('INVALID_INPUT', `rounds: must be 1 to ${MAX_TRACED_ROUNDS}`, undefined, [
        { path: 'rounds', message: `must be 1 to ${MAX_TRACED_ROUNDS}` },
      ]);
    const { mode } = specOf(run.row).strategy;
    if (mode !== 'sync')
      throw new Fault(
        'CONFLICT',
        `The run is in mode ${mode}, where workers go through rounds each by itself: only those of mode sync can be traced.`,
      );
    if (run.status !== 'RUNNING')
      throw new Fault('CONFLICT', `The run is ${run.status}: only the rounds of a run that is RUNNING can be traced.`);
    const request: TraceRequest = { attempt: run.attempt, id: randomUUID(), rounds, startAtMs: Date.now() + START_IN_MS };
    await this.traces.begin(run.id, request.id);
    await this.control.write(run.id, { trace: JSON.stringify(request) });
    await this.reported(request.id);
    const processes = await this.traces.read(request.id);
    const trace = processes.length > 0 ? chromeTrace(processes, rounds) : undefined;
    if (!trace)
      throw new Fault(
        'CONFLICT',
        `No round was seen whole by all processes of the run within ${DEADLINE_MS / 1000} s: it may have ended, wait for workers, or have longer rounds.`,
      );
    return trace;
  }

  /** Until nobody more has reported for a while, or the deadline. */
  private async reported(traceId: string): Promise<void> {
    const untilMs = Date.now() + DEADLINE_MS;
    let count = 0;
    let changedMs = Infinity;
    while (Date.now() < untilMs && Date.now() - changedMs < QUIET_MS) {
      await sleep(LOOK_EVERY_MS);
      const now = await this.traces.count(traceId);
      if (now > count) [count, changedMs] = [now, Date.now()];
      if (count === 0) changedMs = Infinity;
    }
  }
}
