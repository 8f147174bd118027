/** What is expected of whoever stores a run: its events, a beginning with the checkpoint of another run, and extensions that bring no result. */
import { expect } from 'vitest';
import {
  event,
  ledger,
  numbered,
  RESULT,
  written,
  type ContractRows,
  type ContractScenario,
  type ContractScript,
} from './stored-contract.fixture.js';

async function finish(script: ContractScript): Promise<void> {
  await script.train();
  const end = [written(1, RESULT.rounds, { reason: 'final' }), event('run.finished', RESULT)];
  await script.journal(1, numbered(1, end), { state: { phase: 'finished' } });
}

export const HISTORY_SCENARIOS: readonly ContractScenario[] = [
  {
    name: "a run that begins with another's checkpoint goes back to it until it has its own; when that cannot be loaded, it is marked in the other run, and there is nothing to go on from",
    async play(script, another) {
      await script.train(1, 10);
      await script.journal(1, numbered(1, [ledger(0, 9), written(1, 5), written(1, 10)]), { state: { phase: 'training', round: 12 } });
      const origin = await script.ask({ request: 'cancel' });
      const [run, attempt, round] = [script.run, 1, 10] as const;
      const parent = { run: run.id, attempt, round };

      const first = await another({ run, attempt, round });
      const begun = await first.run.rows();
      expect(begun.run).toMatchObject({ status: 'QUEUED', attempt: 1, coordinator: { attempt: 1, phase: 'waiting', round } });
      expect(begun.attempts).toMatchObject([{ number: 1, parent }]);
      expect(begun.events[0]).toMatchObject({ type: 'run.created', data: { from: { runId: run.id, attempt, round } } });
      await first.train(1, 12);
      await first.end('SERVER_LOST');
      expect((await first.begin()).attempts[1]).toMatchObject({ number: 2, parent });
      await first.train(2, 20);
      await first.journal(2, numbered(1, [written(2, 20)]), { state: { phase: 'training', round: 20 } });
      await first.end('SERVER_LOST');
      expect((await first.begin()).attempts[2]).toMatchObject({ number: 3, parent: { attempt: 2, round: 20 } });
      expect((await first.end('CHECKPOINT_INVALID')).checkpoints).toMatchObject([{ attempt: 2, round: 20, isInvalid: true }]);
      expect((await first.begin()).attempts[3]).toMatchObject({ number: 4, parent });
      expect((await script.run.rows()).checkpoints).toEqual(origin.checkpoints);

      const invalid = await first.end('CHECKPOINT_INVALID');
      expect(invalid.run).toMatchObject({ status: 'RECOVERING' });
      expect((await script.run.rows()).checkpoints).toMatchObject([
        { round: 5, isInvalid: false },
        { round: 10, isInvalid: true },
      ]);
      const over = await first.begin();
      expect(over.run).toMatchObject({ status: 'FAILED', attempt: 4, isFinished: true });
      expect(over.run.statusReason).toContain('the checkpoint of another run that it began with cannot be loaded any more');
    },
  },
  {
    name: 'what people read of a run: each step once, in its order, with its numbers',
    spec: { standby: 1 },
    async play(script) {
      const types = ({ events }: ContractRows) => events.map(({ attempt, sequence, type }) => [attempt, sequence, type]);
      await script.train();
      await script.ask({ request: 'scale', workers: 3 });
      await script.act({ kind: 'open-seat', seat: 0, heldSeats: 0 });
      await script.seatFailed(1, 0);
      await script.journal(1, numbered(1, [event('view.changed'), ledger(0)]));
      await script.journal(1, numbered(4, [event('worker.lost')]));
      const asked = {
        kind: 'lead.asked',
        runId: script.run.id,
        attempt: 1,
        index: 0,
        serverId: 's0-a1',
        want: 'promote',
        term: 1,
      } as const;
      await script.run.askLead(asked);
      await script.end('SERVER_LOST');
      const rows = await script.begin();
      expect(types(rows)).toEqual([
        [1, null, 'run.created'],
        [1, null, 'status.changed'],
        [1, null, 'status.changed'],
        [1, null, 'status.changed'],
        [1, null, 'scale.wanted'],
        [1, null, 'seat.failed'],
        [1, 1, 'view.changed'],
        [1, null, 'worker.lost'], // beyond a gap: its number is the successor's
        [1, null, 'lead.changed'],
        [1, null, 'status.changed'],
        [2, null, 'status.changed'],
      ]);
      expect(rows.events.at(-1)).toMatchObject({
        message: 'RECOVERING → QUEUED: the next attempt begins from round 0',
        data: { from: 'RECOVERING', to: 'QUEUED' },
      });
    },
  },
  {
    name: 'an extension that is cancelled, fails or is paused first ends as SUCCEEDED, and the run can be extended again',
    async play(script) {
      const rounds = RESULT.rounds;
      await finish(script);
      const back = {
        status: 'SUCCEEDED',
        totalRounds: rounds,
        length: { rounds },
        isCancelWanted: false,
        restartsUsed: 0,
        isFinished: true,
      };
      await script.ask({ request: 'extend', rounds: 50 });
      await script.train(2, 1);
      await script.ask({ request: 'cancel' });
      const cancelled = await script.end('SERVER_LOST');
      expect(cancelled.run).toMatchObject({ ...back, attempt: 2 });
      expect(cancelled.run.statusReason).toMatch(new RegExp(`^the extension was cancelled .*; the result of round ${rounds} stands$`));
      expect(cancelled.attempts[1]).toMatchObject({ hasEnded: true, endCause: 'SERVER_LOST' });

      const again = await script.ask({ request: 'extend', rounds: 10 });
      expect(again.run).toMatchObject({ status: 'QUEUED', attempt: 3, totalRounds: rounds + 10, isFinished: false });
      expect(again.attempts[2]!.parent).toEqual({ attempt: 1, round: 100 });
      await script.train(3, 1);
      expect((await script.end('POISON_ROUND')).run).toMatchObject(back);

      await script.ask({ request: 'extend', rounds: 10 });
      await script.ask({ request: 'pause' });
      expect((await script.ask({ request: 'cancel' })).run).toMatchObject({
        ...back,
        statusReason: `the extension was cancelled; the result of round ${rounds} stands`,
      });
    },
  },
  {
    name: 'checkpoints beyond the end of a shorter extension are no beginning for it',
    async play(script) {
      await finish(script);
      await script.ask({ request: 'extend', rounds: 50 });
      await script.train(2, 1);
      const beyond = [110, 120, 130].map((round) => written(2, round));
      const trained = await script.run.rows();
      await script.journal(2, numbered(trained.attempts[1]!.storedSequence + 1, beyond), { state: { phase: 'training', round: 130 } });
      await script.ask({ request: 'cancel' });
      await script.end('SERVER_LOST');
      const shorter = await script.ask({ request: 'extend', rounds: 25 });
      expect(shorter).toMatchObject({ answer: 'done', run: { totalRounds: RESULT.rounds + 25 } });
      expect(shorter.attempts.at(-1)!.parent).toEqual({ attempt: 2, round: 120 });
    },
  },
  {
    name: 'other workers, more or fewer, that hold the shards: the attempt ends with a checkpoint, and the next one has as many places',
    spec: { isOnWorkers: true },
    async play(script, another) {
      await script.train();
      const asked = await script.ask({ request: 'scale', workers: 3 });
      expect(asked.run).toMatchObject({ status: 'RUNNING', workersWanted: 3 });
      const paused = await script.journal(1, numbered(1, [written(1, 10, { reason: 'pause' }), event('run.paused', {})]), {
        state: { phase: 'paused' },
      });
      expect(paused.run).toMatchObject({ status: 'RECOVERING', hasNextAttempt: true, restartsUsed: 0 });
      expect(paused.run.statusReason).toContain('goes on with 3 workers');
      const begun = await script.act({ kind: 'begin-attempt', reason: 'attempt 2 begins' });
      expect(begun.run).toMatchObject({
        status: 'QUEUED',
        attempt: 2,
        workersWanted: null,
        statusReason: expect.stringContaining('round 10') as string,
      });
      expect(begun.places.filter(({ attempt }) => attempt === 2)).toHaveLength(3);

      const waiting = await another();
      await waiting.ask({ request: 'scale', workers: 1 });
      const ended = await waiting.act({
        kind: 'end-attempt',
        end: { kind: 'failed', cause: 'OTHER_WORKERS', message: 'goes on with 1 worker' },
      });
      expect(ended.run).toMatchObject({ status: 'RECOVERING', restartsUsed: 0 });
      const again = await waiting.act({ kind: 'begin-attempt', reason: 'attempt 2 begins' });
      expect(again.places.filter(({ attempt }) => attempt === 2)).toHaveLength(1);

      const pausing = await another();
      await pausing.train();
      await pausing.ask({ request: 'scale', workers: 3 });
      await pausing.ask({ request: 'pause' });
      const still = await pausing.journal(1, numbered(1, [written(1, 10, { reason: 'pause' }), event('run.paused', {})]), {
        state: { phase: 'paused' },
      });
      expect(still.run).toMatchObject({ status: 'PAUSED', workersWanted: 3 });
      expect((await pausing.ask({ request: 'resume' })).places.filter(({ attempt }) => attempt === 2)).toHaveLength(3);
    },
  },
];
