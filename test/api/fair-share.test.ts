/** Which run gets the next place on the servers, over real queues. The rules are held by fair-share.test.ts of libs/jobs. */
import { describe, expect, it } from 'vitest';
import { Queues } from '../../apps/api/src/dispatch/queues.js';
import { onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { createRun, until, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
onAFreshPlane((given) => ({ plane, fleet } = given));

const waiting = (kind: 'placement' | 'step-task') => plane.api.app.get(Queues).waitingIds(kind);

describe('places of servers', () => {
  it('go to the team that holds fewest: one with sixty runs does not keep another’s waiting, and the reason says who holds them', async () => {
    fleet.beat('server');
    const [greedy, small] = [await plane.team('greedy'), await plane.team('small')];
    const many: string[] = [];
    for (let i = 0; i < 14; i++) many.push(await createRun(greedy, { length: { rounds: 1_000_000 } }));
    const isSent = async (id: string) => (await waiting('placement')).some((jobId) => jobId.includes(id));
    await until('twelve placements', async () => (await waiting('placement')).length === 12);
    const reasonOf = async (caller: typeof greedy, id: string): Promise<string> =>
      (await caller.gql('query($id: ID!) { run(id: $id) { statusReason } }', { id })).data.run.statusReason;
    await until('the reason', async () => /the team holds 12 of 16 places/.test(await reasonOf(greedy, many[13]!)));
    const first = await createRun(small, { length: { rounds: 20 } });
    await until('its placement', () => isSent(first));
    const others = [await createRun(small), await createRun(small), await createRun(small)];
    await until('two more', async () => (await isSent(others[0]!)) && (await isSent(others[1]!)));
    await until('the reason', async () => /the team holds 3 of 16 places, and one team may hold 3/.test(await reasonOf(small, others[2]!)));
    expect(await isSent(many[12]!)).toBe(false);
    expect(await reasonOf(small, others[2]!)).not.toContain('greedy');
  });
});
