/**
 * What people ask of a run that exists: pause, resume, cancel, scale, extend. The table of libs/jobs says what follows in which status;
 * here it is done under the lock of the run's row, so that two requests, or a request and a report, cannot both win. Asking for what
 * is under way changes nothing. Another team's run is not there.
 */
import { Injectable } from '@nestjs/common';
import { answerRequest, serverProcesses, type RequestAnswer, type RunRequest } from '@paceline/jobs';
import { LIMITS, type RunSpec, type SpecIssue } from '@paceline/spec';
import { Database, type Transaction } from '../database/database.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { Prisma } from '../generated/prisma/client.js';
import { Conflict, InvalidInput, NotFound } from '../graphql/result.types.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid } from '../text-input.js';
import { Attempts } from './attempts.js';
import { specOf, toRun, WITHOUT_MODEL, type RunRow } from './run-row.js';
import { RunSignals } from './run-signals.js';
import type { Run } from './run.types.js';
import { StatusMoves, type LockedRun } from './status-moves.js';

type Outcome = Run | NotFound | Conflict | InvalidInput;
type Changes = Prisma.RunUncheckedUpdateManyInput;

interface Asked {
  readonly transaction: Transaction;
  readonly run: LockedRun;
  readonly row: RunRow;
  readonly answer: RequestAnswer;
}

@Injectable()
export class RunRequests {
  constructor(
    private readonly database: Database,
    private readonly moves: StatusMoves,
    private readonly attempts: Attempts,
    private readonly signals: RunSignals,
    private readonly dispatch: DispatchSignal,
  ) {}

  /** RUNNING: PAUSED within 10 s, at the next commit; before and between attempts at once. */
  pause(viewer: Viewer, id: string): Promise<Outcome> {
    return this.ask('pause', viewer, id, async ({ transaction, run, answer }) => {
      if (answer.does !== 'move' && answer.does !== 'ask') return undefined;
      const to = answer.to ?? 'PAUSING';
      const reason = to === 'PAUSED' ? 'paused; nothing was under way' : 'finishes its round and writes a checkpoint to pause';
      const set = to === 'PAUSED' ? { nextAttemptAt: null } : { pauseRequestedAt: new Date() };
      await this.moves.apply(transaction, run, { to, reason, cause: 'PAUSED', set });
      return undefined;
    });
  }

  /** @param servers another number of parameter servers from here on */
  resume(viewer: Viewer, id: string, servers?: number | null): Promise<Outcome> {
    return this.ask('resume', viewer, id, async ({ transaction, run, row, answer }) => {
      const spec = specOf(row);
      const isOther = servers !== undefined && servers !== null && servers !== spec.strategy.servers;
      const issue = isOther ? serversIssue(servers) : undefined;
      if (issue) return new InvalidInput([issue]);
      if (answer.does === 'nothing' && isOther) return new Conflict('Pause the run first: a live attempt keeps its number of servers.');
      if (answer.does !== 'begin') return undefined;
      await this.attempts.begin(transaction, run, 'resumed', isOther ? withServers(spec, servers) : {});
      return undefined;
    });
  }

  /** It ends within 10 s. */
  cancel(viewer: Viewer, id: string): Promise<Outcome> {
    return this.ask('cancel', viewer, id, async ({ transaction, run, answer }) => {
      if (answer.does === 'move') await this.moves.apply(transaction, run, { to: answer.to, reason: 'cancelled' });
      if (answer.does === 'ask')
        await transaction.run.updateMany({ where: { id }, data: { cancelRequestedAt: new Date(), statusReason: 'is being cancelled' } });
      return undefined;
    });
  }

  /** Workers that may hold a seat at the same time; it is kept over attempts. */
  scale(viewer: Viewer, id: string, workers: number): Promise<Outcome> {
    return this.ask('scale', viewer, id, async ({ transaction, run, row, answer }) => {
      if (answer.does !== 'ask') return undefined;
      const { replicas } = specOf(row);
      if (!Number.isInteger(workers) || workers < 1 || workers > replicas) {
        const message = `must be from 1 to ${replicas}, the replicas of the run; to let all workers go, pause it`;
        return new InvalidInput([{ path: 'workers', message }]);
      }
      if ((row.workersWanted ?? replicas) === workers) return undefined;
      await transaction.run.updateMany({ where: { id }, data: { workersWanted: workers } });
      const message = `at most ${workers} of ${replicas} workers from here on, ${row.workersWanted ?? replicas} before`;
      await this.moves.addEvents(transaction, run, [
        { attempt: run.attempt, type: 'scale.wanted', message, data: { workers }, at: new Date() },
      ]);
      return undefined;
    });
  }

  /** So many rounds or epochs more, in a new attempt from the last checkpoint. */
  extend(viewer: Viewer, id: string, more: { rounds?: number | null; epochs?: number | null }): Promise<Outcome> {
    return this.ask('extend', viewer, id, async ({ transaction, run, row, answer }) => {
      if (answer.does !== 'begin') return undefined;
      const longer = lengthen(row, more);
      if ('issue' in longer) return new InvalidInput([longer.issue]);
      if (run.status === 'SUCCEEDED' && (await this.attempts.nextRestore(transaction, run)).kind !== 'checkpoint')
        return new Conflict('The run has no checkpoint to go on from. Create it again with a longer length.');
      const spec = { ...specOf(row), length: longer.length } as unknown as Prisma.InputJsonObject;
      const set: Changes = { spec, totalRounds: longer.totalRounds, ...(run.status === 'SUCCEEDED' ? { result: Prisma.DbNull } : {}) };
      await this.attempts.begin(transaction, run, `extended to ${longer.totalRounds} rounds; begins`, set);
      return undefined;
    });
  }

  private async ask(
    request: RunRequest,
    viewer: Viewer,
    id: string,
    act: (asked: Asked) => Promise<Conflict | InvalidInput | undefined>,
  ): Promise<Outcome> {
    const outcome = await this.database.transact(async (transaction) => {
      const where = { id, teamId: viewer.teamId };
      if (!isUuid(id) || (await transaction.run.count({ where })) === 0) return new NotFound('run with this id');
      const run = (await this.moves.lock(transaction, id))!;
      const row = await transaction.run.findUniqueOrThrow({ where: { id }, omit: WITHOUT_MODEL });
      const answer = answerRequest(request, run.status, row.cancelRequestedAt !== null);
      if (answer.does === 'refuse') return new Conflict(answer.why);
      const refusal = await act({ transaction, run, row, answer });
      return refusal ?? toRun(await transaction.run.findUniqueOrThrow({ where: { id }, omit: WITHOUT_MODEL }));
    });
    this.signals.changed(id);
    this.dispatch.wake();
    return outcome;
  }
}

function serversIssue(servers: number): SpecIssue | undefined {
  if (Number.isInteger(servers) && servers >= 1 && servers <= LIMITS.servers) return undefined;
  return { path: 'servers', message: `must be a whole number from 1 to ${LIMITS.servers}` };
}

function withServers(former: RunSpec, servers: number): Changes {
  const spec = { ...former, strategy: { ...former.strategy, servers } };
  return { spec: spec as unknown as Prisma.InputJsonObject, serverCount: serverProcesses(spec) };
}

/** Epochs stay epochs where the run is measured in them; otherwise all is rounds. */
function lengthen(
  row: RunRow,
  { rounds, epochs }: { rounds?: number | null; epochs?: number | null },
): { length: RunSpec['length']; totalRounds: number } | { issue: SpecIssue } {
  const more = rounds ?? epochs;
  const path = rounds === undefined || rounds === null ? 'epochs' : 'rounds';
  if (more === undefined || more === null || ((rounds ?? null) !== null) === ((epochs ?? null) !== null))
    return { issue: { path: 'rounds', message: 'say how much more: either rounds or epochs' } };
  if (!Number.isInteger(more) || more < 1) return { issue: { path, message: 'must be a whole number from 1' } };
  const perEpoch = Number(row.roundsPerEpoch);
  const totalRounds = Number(row.totalRounds) + (path === 'rounds' ? more : more * perEpoch);
  if (totalRounds > LIMITS.rounds)
    return { issue: { path, message: `${totalRounds} rounds in all; at most ${LIMITS.rounds} are supported` } };
  const { length } = specOf(row);
  const inEpochs = 'epochs' in length && path === 'epochs' && length.epochs + more <= LIMITS.epochs;
  return { length: inEpochs ? { epochs: length.epochs + more } : { rounds: totalRounds }, totalRounds };
}
