/** What is expected of whoever stores a run: its journal, its attempts, who leads its shards, and what people ask of it. */
import { expect } from 'vitest';
import { REQUEST_TABLE, RUN_REQUESTS, RUN_STATUSES, type AskedOfRun, type RunRequest, type RunStatus } from '@paceline/control-plane';
import {
  event,
  ledger,
  numbered,
  placeOf,
  RESULT,
  written,
  type ContractRows,
  type ContractScenario,
  type ContractScript,
} from './stored-contract.fixture.js';

const kept = ({ checkpoints }: ContractRows) =>
  checkpoints.filter(({ isInvalid, isRemoved }) => !isInvalid && !isRemoved).map(({ attempt, round }) => `${attempt}/${round}`);

/** A run that stands in this status. */
const ARRANGED: Readonly<Record<RunStatus, ((script: ContractScript) => Promise<unknown>) | undefined>> = {
  PENDING: undefined, // never seen outside of the transaction that creates it
  QUEUED: () => Promise.resolve(),
  PROVISIONING: (script) => script.act({ kind: 'move', to: 'PROVISIONING', reason: 'set up' }),
  RUNNING: (script) => script.train(),
  PAUSING: async (script) => {
    await script.train();
    await script.ask({ request: 'pause' });
  },
  PAUSED: (script) => script.ask({ request: 'pause' }),
  RECOVERING: async (script) => {
    await script.train();
    await script.end('SERVER_LOST');
  },
  SUCCEEDED: async (script) => {
    await script.train();
    await script.journal(1, numbered(1, [written(1, 100, { reason: 'final' }), event('run.finished', RESULT)]), {
      state: { phase: 'finished' },
    });
  },
  FAILED: async (script) => {
    await script.train();
    await script.end('POISON_ROUND');
  },
  CANCELLED: async (script) => {
    await script.ask({ request: 'pause' });
    await script.ask({ request: 'cancel' });
  },
};
const ASKED: Readonly<Record<RunRequest, AskedOfRun>> = {
  pause: { request: 'pause' },
  resume: { request: 'resume' },
  cancel: { request: 'cancel' },
  scale: { request: 'scale', workers: 2 },
  extend: { request: 'extend', rounds: 50 },
};

export const ATTEMPT_SCENARIOS: readonly ContractScenario[] = [
  {
    name: 'a journal is stored once, up to where nothing is missing, in whatever order it comes',
    async play(script) {
      await script.train();
      const all = numbered(
        1,
        Array.from({ length: 6 }, (_, k) => ledger(k)),
      );
      const first = await script.journal(1, all.slice(0, 2));
      expect([first.ack, first.attempts[0]!.storedSequence, first.entries.length]).toEqual([{ attempt: 1, sequence: 2 }, 2, 2]);
      const gap = await script.journal(1, all.slice(4));
      expect([gap.ack, gap.attempts[0]!.storedSequence, gap.entries.length]).toEqual([{ attempt: 1, sequence: 2 }, 2, 4]);
      const again = await script.journal(1, [...all.slice(0, 2), ...all.slice(4)]);
      expect([again.ack, again.entries.length]).toEqual([{ attempt: 1, sequence: 6 }, 4]); // they say themselves that nothing is between them
      const rest = await script.journal(1, all);
      expect([rest.ack, rest.attempts[0]!.storedSequence, rest.entries.length]).toEqual([{ attempt: 1, sequence: 6 }, 6, 4]);
      const thinned = await script.journal(1, numbered(10, [ledger(9), ledger(10)]), { after: 6 });
      expect([thinned.ack, thinned.entries.length]).toEqual([{ attempt: 1, sequence: 11 }, 6]);
      const twice = numbered(12, [ledger(11)]);
      expect((await script.journal(1, [...twice, ...twice])).entries).toHaveLength(7);
    },
  },
  {
    name: 'what a gap holds back counts when it is filled: checkpoints and ends in their order',
    async play(script) {
      await script.train();
      const entries = numbered(1, [ledger(0, 9), written(1, 10), ledger(10, 19), written(1, 20), event('run.paused', {}, 'it is paused')]);
      const gap = await script.journal(1, entries.slice(1));
      expect([gap.run.status, gap.checkpoints, gap.ack]).toEqual(['RUNNING', [], { attempt: 1, sequence: 0 }]);
      const filled = await script.journal(1, entries.slice(0, 1), { state: { phase: 'training', round: 20 } });
      expect(filled).toMatchObject({ ack: { attempt: 1, sequence: 1 }, checkpoints: [] });
      const whole = await script.journal(1, entries, { state: { phase: 'paused', round: 20 } });
      expect([whole.run.status, kept(whole), whole.ack]).toEqual(['PAUSED', ['1/10', '1/20'], { attempt: 1, sequence: 5 }]);
      expect(whole.attempts[0]).toMatchObject({ hasEnded: true, endCause: 'PAUSED', endReason: 'it is paused' });
    },
  },
  {
    name: 'a journal of another attempt, and of a coordinator that was replaced, changes nothing',
    spec: { standby: 1 },
    async play(script) {
      await script.train();
      const old = await script.journal(2, numbered(1, [ledger(0)]), { state: { phase: 'training' } });
      expect([old.ack, old.mustStop, old.entries]).toEqual([{ attempt: 2, sequence: 1, areDropped: true }, true, []]);
      await script.run.askLead({
        kind: 'lead.asked',
        runId: script.run.id,
        attempt: 1,
        index: 0,
        serverId: 's0-a1',
        want: 'promote',
        term: 1,
      });
      const fenced = await script.journal(1, numbered(1, [ledger(0)]), { state: { phase: 'training', round: 9 } });
      expect([fenced.ack, fenced.mustStop, fenced.entries, fenced.run.coordinator?.round]).toEqual([undefined, false, [], 1]);
      const successor = await script.journal(1, numbered(1, [ledger(0)]), { state: { phase: 'training', round: 3 }, term: 2 });
      expect([successor.ack, successor.entries, successor.run.coordinator?.round]).toEqual([{ attempt: 1, sequence: 1 }, ['1/0001'], 3]);
    },
  },
  {
    name: 'the newest state counts, by its place in the stream',
    async play(script) {
      await script.train();
      await script.journal(1, [], { state: { phase: 'training', round: 7 }, streamId: '500-2' });
      const late = await script.journal(1, [], { state: { phase: 'training', round: 4 }, streamId: '500-1' });
      expect(late.run.coordinator).toMatchObject({ round: 7 });
      const seats = [{ seat: 0, incarnation: 0, workerId: 'w', replicas: [0] }];
      const next = await script.journal(1, [], { state: { phase: 'evaluating', round: 8, seats }, streamId: '1000-0' });
      expect(next.run.coordinator).toMatchObject({ attempt: 1, phase: 'evaluating', round: 8, seats: 1 });
    },
  },
  {
    name: 'training shows in the status, once',
    async play(script) {
      expect((await script.journal(1, [])).run.status).toBe('QUEUED');
      const started = await script.journal(1, numbered(1, [event('training.started')]));
      expect(started.run).toMatchObject({ status: 'RUNNING', statusReason: 'training began', isWaiting: false });
      await script.act({ kind: 'explain', reason: 'waits for nobody', isWaiting: true });
      expect((await script.journal(1, [], { state: { phase: 'training' } })).run.statusReason).toBe('waits for nobody');
    },
  },
  {
    name: 'an attempt ends once: by its cause it is followed by another, waits for nobody, or ends the run',
    async play(script, another) {
      await script.train(1, 5);
      const ended = await script.end('SERVER_LOST');
      expect(ended.run).toMatchObject({ status: 'RECOVERING', hasNextAttempt: true, restartsUsed: 1, restartsTotal: 1, bestRound: 5 });
      expect(ended.run.statusReason).toBe('ended with SERVER_LOST; 1 of 2 restarts are left');
      expect(ended.attempts[0]).toMatchObject({ hasEnded: true, endCause: 'SERVER_LOST', endRound: 5 });
      expect(await script.end('POISON_ROUND', 1)).toEqual(ended);

      const fatal = await another();
      await fatal.train();
      for (const cause of ['POISON_ROUND', 'CONFIG_CHANGED'] as const) {
        const over = await fatal.end(cause);
        expect(over.run).toMatchObject({
          status: 'FAILED',
          statusReason: 'ended with POISON_ROUND',
          isFinished: true,
          hasNextAttempt: false,
        });
      }
    },
  },
  {
    name: 'the budget of restarts: spent without progress, refilled by it',
    async play(script) {
      await script.train(1, 5);
      await script.end('SERVER_LOST');
      await script.begin();
      await script.train(2, 9);
      expect((await script.end('SERVER_LOST')).run).toMatchObject({
        status: 'RECOVERING',
        restartsUsed: 1,
        restartsTotal: 2,
        bestRound: 9,
      });
      await script.begin();
      await script.train(3, 9);
      expect((await script.end('COORDINATOR_SILENT')).run).toMatchObject({ status: 'RECOVERING', restartsUsed: 2 });
      await script.begin();
      await script.train(4, 2);
      const spent = await script.end('SERVER_LOST');
      expect(spent.run).toMatchObject({ status: 'FAILED', restartsTotal: 3, isFinished: true });
      expect(spent.run.statusReason).toContain('the restart budget (restarts: 2) is used up');
    },
  },
  {
    name: 'an attempt takes up from the newest checkpoint of its lineage; one that cannot be loaded is marked, and not charged',
    spec: { keepLast: 5 },
    async play(script) {
      await script.train(1, 10);
      await script.journal(1, numbered(1, [ledger(0, 9), written(1, 5), written(1, 10)]), { state: { phase: 'training', round: 12 } });
      await script.end('SERVER_LOST');
      const second = await script.begin();
      expect(second.run).toMatchObject({
        status: 'QUEUED',
        attempt: 2,
        hasNextAttempt: false,
        coordinator: { attempt: 2, phase: 'waiting', round: 10 },
      });
      expect(second.run.statusReason).toBe('the next attempt begins from the checkpoint of round 10');
      expect(second.attempts[1]).toMatchObject({
        number: 2,
        parent: { attempt: 1, round: 10 },
        storedSequence: 0,
        coordinatorTerm: 1,
        hasStarted: false,
      });
      expect(second.places.filter(({ attempt }) => attempt === 2)).toHaveLength(2);
      expect(second.jobs).toEqual(['place-a2-i0-m0', 'place-a2-i1-m0']);
      expect(await script.begin()).toEqual(second);

      const invalid = await script.end('CHECKPOINT_INVALID');
      expect(invalid.run).toMatchObject({ status: 'RECOVERING', restartsUsed: 1, hasNextAttempt: true });
      expect(invalid.checkpoints).toMatchObject([
        { round: 5, isInvalid: false },
        { round: 10, isInvalid: true },
      ]);
      expect((await script.begin()).attempts[2]).toMatchObject({ parent: { attempt: 1, round: 5 } });

      await script.train(3, 7);
      await script.journal(3, numbered(1, [written(3, 7)]), { state: { phase: 'training', round: 7 } });
      await script.end('SERVER_LOST');
      expect((await script.begin()).attempts[3]).toMatchObject({ parent: { attempt: 3, round: 7 } });
    },
  },
  {
    name: 'without a checkpoint the next attempt begins at round 0',
    async play(script) {
      await script.train(1, 10);
      await script.end('SERVER_LOST');
      const second = await script.begin();
      expect(second.run.statusReason).toBe('the next attempt begins from round 0');
      expect(second.attempts[1]).toMatchObject({ parent: null });
      expect(second.run.coordinator).toMatchObject({ attempt: 2, round: 0 });
    },
  },
  {
    name: 'a new checkpoint lets older ones of the lineage go; one of another attempt, or told twice, is none',
    async play(script) {
      await script.train();
      const told = await script.journal(1, numbered(1, [written(1, 10), written(1, 20), written(1, 20, { bytes: 99 }), written(7, 25)]));
      expect(kept(told)).toEqual(['1/10', '1/20']);
      expect(kept(await script.journal(1, numbered(5, [written(1, 30)])))).toEqual(['1/20', '1/30']);
      await script.end('SERVER_LOST');
      await script.begin();
      await script.train(2, 30);
      const next = await script.journal(2, numbered(1, [written(2, 40)]), { state: { phase: 'training', round: 40 } });
      expect(kept(next)).toEqual(['1/30', '2/40']);
      expect(next.checkpoints.filter(({ isRemoved }) => isRemoved).map(({ round }) => round)).toEqual([10, 20]);
    },
  },
  {
    name: 'a standby is dropped or promoted, whichever asks first; a successor of the coordinator has a term, and what was beyond a gap is gone',
    spec: { standby: 1 },
    async play(script) {
      const ask = (index: number, serverId: string, want: 'drop' | 'promote', attempt = 1) =>
        script.run.askLead({ kind: 'lead.asked', runId: script.run.id, attempt, index, serverId, want, term: 1 });
      await script.train(1, 4);
      const before = await script.run.rows();
      await ask(0, 'stranger', 'promote');
      await ask(0, 's0-a1', 'promote', 2);
      expect(await script.run.rows()).toEqual(before);

      await ask(1, 'p1-a1', 'drop');
      await ask(1, 's1-a1', 'promote');
      const dropped = await script.run.rows();
      expect(placeOf(dropped, 1, 'standby')).toMatchObject({ isDropped: true, term: 1 });
      expect(placeOf(dropped, 1)).toMatchObject({ isDropped: false });
      expect(await script.run.lead(1, 1)).toEqual({ attempt: 1, index: 1, term: 1, primary: 'p1-a1', standby: null });

      await script.journal(1, numbered(1, [ledger(0), ledger(1), written(1, 2)]), { state: { phase: 'training', round: 4 } });
      await script.journal(1, numbered(5, [ledger(3)]), { state: { phase: 'training', round: 4 } });
      await ask(0, 's0-a1', 'promote');
      await ask(0, 'p0-a1', 'drop');
      const promoted = await script.run.rows();
      expect(placeOf(promoted, 0)).toMatchObject({ isDropped: true });
      expect(placeOf(promoted, 0, 'standby')).toMatchObject({ isDropped: false, term: 2 });
      expect(promoted.attempts[0]).toMatchObject({ coordinatorTerm: 2, storedSequence: 3 });
      expect(promoted.entries).toEqual(['1/0001', '1/0002', '1/0003']);
      const lead = { attempt: 1, index: 0, term: 2, primary: 's0-a1', standby: null };
      const answer = { ...lead, storedSequence: 3, ledgerFrom: 2, ledger: { examples: 20, dropped: 0 }, newest: 2, terms: [2, 1] };
      expect(await script.run.lead(1, 0)).toEqual(answer);
      expect(await script.run.lead(2, 0)).toBeUndefined();
    },
  },
  {
    name: 'reasons and moves are for the status that was seen',
    async play(script) {
      const queued = await script.run.rows();
      expect(await script.act({ kind: 'explain', reason: 'late', isWaiting: true }, { attempt: 1, status: 'RUNNING' })).toEqual(queued);
      expect((await script.act({ kind: 'explain', reason: 'waits', isWaiting: true })).run).toMatchObject({
        statusReason: 'waits',
        isWaiting: true,
      });
      expect((await script.act({ kind: 'move', to: 'RUNNING', reason: 'too far' })).run.status).toBe('QUEUED');
      expect((await script.act({ kind: 'begin-attempt', reason: 'no' })).run.attempt).toBe(1);
      await script.act({ kind: 'mark-started' });
      expect((await script.act({ kind: 'mark-started' })).attempts[0]).toMatchObject({ hasStarted: true });
      const long = await script.act({ kind: 'move', to: 'FAILED', reason: 'x'.repeat(3000) });
      expect(long.run.statusReason).toHaveLength(2000);
    },
  },
  {
    name: 'requests in every status: what the table says, and its rows',
    async play(_, another) {
      for (const status of RUN_STATUSES) {
        const arrange = ARRANGED[status];
        if (!arrange) continue;
        for (const request of RUN_REQUESTS) {
          const script = await another();
          await arrange(script);
          const before = await script.run.rows();
          expect(before.run.status).toBe(status);
          const { answer, ...after } = await script.ask(ASKED[request]);
          const expected = REQUEST_TABLE[request][status];
          expect(answer, `${request} while ${status}`).toBe(expected.does === 'refuse' ? 'refused' : 'done');
          if (expected.does === 'refuse' || expected.does === 'nothing') expect(after, `${request} while ${status}`).toEqual(before);
          if (expected.does === 'move') expect(after.run).toMatchObject({ status: expected.to, hasNextAttempt: false });
          if (expected.does === 'begin') expect(after.run).toMatchObject({ status: 'QUEUED', attempt: 2, isFinished: false });
        }
      }
    },
  },
  {
    name: 'requests with numbers: scale, servers and length are stored; what is impossible is refused; a cancel refuses all others',
    async play(script, another) {
      expect((await script.ask({ request: 'scale', workers: 2 })).run.workersWanted).toBe(2);
      for (const workers of [0, 5, 1.5]) expect((await script.ask({ request: 'scale', workers })).answer).toBe('refused');
      expect((await script.ask({ request: 'resume', servers: 3 })).answer).toBe('refused');
      await script.ask({ request: 'pause' });
      expect((await script.ask({ request: 'resume', servers: 65 })).answer).toBe('refused');
      const resumed = await script.ask({ request: 'resume', servers: 3 });
      expect(resumed.run).toMatchObject({ attempt: 2, serverCount: 3, workersWanted: 2, statusReason: 'resumed from round 0' });
      expect(resumed.places.filter(({ attempt }) => attempt === 2)).toHaveLength(3);
      await script.ask({ request: 'pause' });
      expect((await script.ask({ request: 'extend', rounds: 5, epochs: 1 })).answer).toBe('refused');
      expect((await script.ask({ request: 'extend', rounds: 0 })).answer).toBe('refused');
      const longer = await script.ask({ request: 'extend', rounds: 50 });
      expect(longer.run).toMatchObject({ attempt: 3, totalRounds: 150, length: { rounds: 150 } });
      const cancelled = await script.ask({ request: 'cancel' });
      expect(cancelled.run).toMatchObject({ status: 'QUEUED', isCancelWanted: true, statusReason: 'is being cancelled' });
      expect(await script.ask({ request: 'cancel' })).toEqual({ ...cancelled, answer: 'done' });
      for (const request of ['pause', 'resume', 'scale'] as const) expect((await script.ask(ASKED[request])).answer).toBe('refused');
      expect((await script.end('SERVER_LOST')).run).toMatchObject({ status: 'CANCELLED', restartsUsed: 0 });

      const finished = await another();
      await finished.train();
      await finished.journal(1, numbered(1, [event('run.finished', RESULT)]), { state: { phase: 'finished' } });
      expect((await finished.ask({ request: 'extend', rounds: 5 })).answer).toBe('refused'); // it has no checkpoint
    },
  },
  {
    name: 'what was decided for a status that the run has left ends no attempt, moves nothing and costs no restart',
    async play(script) {
      const end = { kind: 'end-attempt', end: { kind: 'failed', cause: 'SERVER_LOST', message: 'it was silent' } } as const;
      const training = await script.train(1, 3);
      expect(await script.act(end, { attempt: 1, status: 'QUEUED' })).toEqual(training);
      const cancelled = { kind: 'move', to: 'CANCELLED', reason: 'cancelled before it began' } as const;
      expect(await script.act(cancelled, { attempt: 1, status: 'PROVISIONING' })).toEqual(training);
      const ended = await script.act(end, { attempt: 1, status: 'RUNNING' });
      expect(ended.run).toMatchObject({ status: 'RECOVERING', restartsUsed: 1 });
    },
  },
  {
    name: 'a run that is paused while it trains: its end says how; a result that cannot be read fails it',
    async play(script, another) {
      await script.train(1, 3);
      expect((await script.ask({ request: 'pause' })).run).toMatchObject({ status: 'PAUSING', isPauseWanted: true });
      const paused = await script.end('COORDINATOR_SILENT');
      expect(paused.run).toMatchObject({ status: 'PAUSED', isPauseWanted: false, restartsUsed: 0 });
      expect(paused.run.statusReason).toContain('it is paused at its last checkpoint');

      const other = await another();
      await other.train();
      const unreadable = await other.journal(1, numbered(1, [event('run.finished', { rounds: 'many' })]), { state: { phase: 'finished' } });
      expect(unreadable.attempts[0]).toMatchObject({ endCause: 'RESULT_UNREADABLE' });
    },
  },
];
