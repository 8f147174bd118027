/** What is expected of whoever stores a run: its events, and a beginning with the checkpoint of another run. */
import { expect } from 'vitest';
import { event, ledger, numbered, written, type ContractRows, type ContractScenario } from './stored-contract.fixture.js';

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
      const types = ({ events }: ContractRows) => events.map(({ attempt, n, type }) => [attempt, n, type]);
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
];
