import { describe, expect, it } from 'vitest';
import type { ObservedFleet, ObservedJob, ObservedRun, ServerHealth } from './observed-run.js';
import { claimantOf } from './control-fields.js';
import { LOADING_AT_MOST_MS, MAX_REPLACED } from './placing.js';
import { complaintCounts, type Place } from './shards.js';
import { SEATED_WITHIN_MS } from './seats.js';
import {
  address,
  beforeStart,
  decide,
  fleet,
  JOB,
  lostEnd,
  NOW,
  run,
  RUN_ID,
  server,
  START,
  task,
  unclaimed,
} from './reconcile.fixture.js';
import { CANCEL_DEADLINE_MS, jobsInQuestion, PAUSE_DEADLINE_MS } from './reconcile.js';

it('a run that is as it should be is left alone', () => {
  expect(decide(run())).toEqual([]);
  for (const status of ['SUCCEEDED', 'PENDING'] as const) expect(decide(run({ status }))).toEqual([]);
});

it('whoever still holds a part of a run that has ended, or waits to begin, is told so once', () => {
  for (const status of ['FAILED', 'CANCELLED'] as const) {
    expect(decide(run({ status }))).toEqual([{ kind: 'write-control', fields: { action: '3:cancel' } }]);
    expect(decide(run({ status, control: { action: '3:cancel' } }))).toEqual([]);
  }
});

describe('a part that finds no server, where a job came twice', () => {
  const missing = { ...server, index: 1, claim: null, madeAtMs: NOW - 3_000 };
  const observed = (control: ObservedRun['control'] = {}) => run({ ...beforeStart, serversNeeded: 2, servers: [server, missing], control });
  const claims = JSON.stringify({ attempt: 3, claims: [{ index: 0, role: 'primary', incarnation: 0, serverId: 'ps-a' }] });

  it('has the control hash say whose claims count, once', () => {
    expect(decide(observed())).toContainEqual({ kind: 'write-control', fields: { claims } });
    expect(decide(observed({ claims })).filter(({ kind }) => kind === 'write-control')).toEqual([]);
    const early = run({ ...beforeStart, serversNeeded: 2, servers: [server, { ...missing, madeAtMs: NOW - 500 }] });
    expect(decide(early).filter(({ kind }) => kind === 'write-control')).toEqual([]);
  });

  it.each([
    ['another has the part by the same placement', { attempt: 3, index: 0, incarnation: 0 }, 'ps-a'],
    ['another has it by a later one', { attempt: 3, index: 0, incarnation: -1 }, 'ps-a'],
    ['what is told is of a placement before', { attempt: 3, index: 0, incarnation: 1 }, undefined],
    ['what is told is of another attempt', { attempt: 4, index: 0, incarnation: 0 }, undefined],
    ['nobody has the part', { attempt: 3, index: 1, incarnation: 0 }, undefined],
  ])('%s', (_, part, claimant) => {
    expect(claimantOf(claims, { role: 'primary', ...part })).toBe(claimant);
    expect(claimantOf('{', { role: 'primary', ...part })).toBeUndefined();
  });
});

describe('a server that loads what it begins with', () => {
  const loading = (forMs: number) => ({ ...server, claim: { ...server.claim, atMs: NOW - forMs, isLoading: true } });
  const placed = (forMs: number) => run({ ...beforeStart, servers: [loading(forMs)] });
  const kinds = (observed: ObservedRun, seen = fleet()) => decide(observed, seen).map(({ kind }) => kind);

  it('has its part: nobody else is offered it, nothing is started, and the reason says so', () => {
    expect(decide(placed(60_000))).toEqual([
      {
        kind: 'explain',
        reason: 'waits for parameter server 0 to load the parameters to begin with (attempt 3, from round 40)',
        isWaiting: true,
      },
    ]);
    expect(jobsInQuestion(placed(60_000), NOW).placements).toEqual([]);
  });

  it('is replaced when it is lost, or does not come to an end', () => {
    expect(kinds(placed(60_000), fleet({ hasLeft: true }))).toContain('make-placement-again');
    expect(decide(placed(LOADING_AT_MOST_MS + 1))).toContainEqual(
      expect.objectContaining({
        kind: 'make-placement-again',
        why: 'server ps-a had not loaded its part within 10 minutes before the start',
      }),
    );
  });
});

describe('a server that is lost', () => {
  const gone = { hasLeft: false, silentMs: 60_000 };
  const endOf = (observed: ObservedRun, changes: Partial<ObservedFleet>) =>
    decide(observed, fleet(gone, changes)).find((action) => action.kind === 'end-attempt')?.end;

  it('with parts of several runs is charged to none of those that trained on it', () => {
    expect(endOf(run(), { runsOn: new Map([['ps-a', 2]]) })).toMatchObject({ cause: 'SERVER_LOST', isShared: true });
    expect(endOf(run(), { runsOn: new Map([['ps-a', 1]]) })).not.toHaveProperty('isShared');
    expect(endOf(run(), {})).not.toHaveProperty('isShared');
  });

  it('before the start is replaced, but a run that takes its servers down again and again is charged', () => {
    const placed = (incarnation: number) => run({ ...beforeStart, servers: [{ ...server, incarnation }] });
    expect(decide(placed(MAX_REPLACED - 1), fleet(gone)).map(({ kind }) => kind)).toContain('make-placement-again');
    const end = endOf(placed(MAX_REPLACED), { runsOn: new Map([['ps-a', 5]]) });
    expect(end).toMatchObject({ cause: 'SERVER_LOST', message: 'parameter server 0 (ps-a) was lost before the start, as 5 before it' });
    expect(end).not.toHaveProperty('isShared');
  });
});

describe('the team of a run', () => {
  const seatKinds = (room: number) =>
    decide(
      run({ heldTasks: [], coordinator: null, status: 'PROVISIONING', attemptStartedAtMs: NOW - 1_000 }),
      fleet({}, { seatRoom: new Map([[RUN_ID, room]]) }),
    );
  it('may have no more workers: no seat is offered, and the reason says so', () => {
    expect(seatKinds(1).map(({ kind }) => kind)).toContain('open-seat');
    expect(seatKinds(0)).toEqual([
      { kind: 'explain', reason: 'waits for a worker: other runs of the team hold all that its limit allows (workers)', isWaiting: true },
    ]);
  });
});

describe('the complaint of a server', () => {
  const place = (serverId: string | null, changes: Partial<Place> = {}) => ({
    ...({ index: 0, role: 'primary', term: 1, isDropped: false } as const),
    serverId,
    ...changes,
  });
  it.each([
    ['of whoever has the part, before the start', [place('ps-a')], false, 'ps-a', true],
    ['of a copy, before the start', [place('ps-b')], false, 'ps-a', false],
    ['of a part that nobody has yet', [place(null)], false, 'ps-a', true],
    ['of its primary, after the start', [place('ps-a')], true, 'ps-a', true],
    ['of a copy, after the start', [place('ps-b')], true, 'ps-a', false],
    ['of a standby, after the start', [place('ps-b'), place('ps-a', { role: 'standby' })], true, 'ps-a', false],
    ['without a name', [place('ps-b')], true, undefined, true],
  ])('%s', (_, places, hasStarted, serverId, counts) => {
    expect(complaintCounts(places, hasStarted, { index: 0, serverId })).toBe(counts);
  });
});

describe('a server', () => {
  it.each<[string, Partial<ServerHealth> | null, Partial<ObservedFleet>, boolean]>([
    ['silent for 5 s', { silentMs: 5_001 }, {}, true],
    ['silent for 5 s while nobody could hear', { silentMs: 60_000 }, { isReliable: false, reliableForMs: 100 }, false],
    ['silent for a while', { silentMs: 4_900 }, {}, false],
    ['suspected and silent', { silentMs: 2_600, isSuspected: true }, {}, true],
    ['suspected, and it beats', { silentMs: 900, isSuspected: true }, {}, false],
    [
      'refusing and silent, heard for a short time only',
      { silentMs: 1_600, isRefused: true },
      { isReliable: false, reliableForMs: 2_600 },
      true,
    ],
    ['refusing, and it beats', { silentMs: 900, isRefused: true }, {}, false],
    ['of whom nothing is known', null, {}, true],
  ])('that is %s', (_, sighting, changes, isLost) => {
    expect(decide(run(), fleet(sighting, changes))).toEqual(isLost ? lostEnd() : []);
  });

  it('that said goodbye ends the attempt as stopped, before the start it is replaced', () => {
    expect(decide(run(), fleet({ hasLeft: true }))).toEqual(lostEnd('STOPPED'));
    expect(decide(run(beforeStart), fleet({ hasLeft: true }))).toContainEqual(
      expect.objectContaining({ kind: 'make-placement-again', index: 0, incarnation: 0, serverId: 'ps-a' }),
    );
  });

  it('whose coordinator says nothing for 20 s ends the attempt, though its process lives', () => {
    const silent = { ...run().coordinator!, atMs: NOW - 20_001 };
    expect(decide(run({ coordinator: silent }))).toEqual(
      lostEnd('COORDINATOR_SILENT', expect.stringContaining('has not reported for 20 s')),
    );
    expect(decide(run({ coordinator: null, heldTasks: [], attemptStartedAtMs: NOW - 19_000 }))).not.toContainEqual(
      expect.objectContaining({ kind: 'end-attempt' }),
    );
    expect(decide(run({ coordinator: silent }), fleet({}, { reliableForMs: 10_000 }))).toEqual([]);
  });

  it('that is claimed with the others begins; different places for checkpoints end it before', () => {
    const second = { ...server, index: 1, claim: { address: { ...address, index: 1, serverId: 'ps-b' }, atMs: NOW - 1_000, storage: 'b' } };
    const both = { ...beforeStart, serversNeeded: 2, servers: [{ ...server, claim: { ...server.claim, storage: 'a' } }, second] };
    const seen = fleet(
      {},
      {
        servers: new Map([
          ['ps-a', fleet().servers.get('ps-a')!],
          ['ps-b', fleet().servers.get('ps-a')!],
        ]),
      },
    );
    expect(decide(run(both), seen)).toEqual(lostEnd('STORAGE_NOT_SHARED', expect.stringContaining('(a, b)')));
    const shared = { ...both, servers: [server, { ...second, claim: { ...second.claim, storage: null } }] };
    expect(decide(run(shared), seen).map(({ kind }) => kind)).toEqual(['mark-started', 'write-control', 'open-seat', 'move']);
  });

  it.each<[ObservedJob['state'], boolean]>([
    ['missing', true],
    ['over', true],
    ['waiting', false],
    ['active', false],
    ['unsent', false],
  ])('whose job is %s is asked for again: %s', (state, isMade) => {
    const observed = run({ ...beforeStart, servers: [unclaimed] });
    const [jobId] = jobsInQuestion(observed, NOW).placements;
    const actions = decide(observed, fleet(), new Map([[jobId!, { state, notWaitingSinceMs: NOW }]]));
    expect(actions.some(({ kind }) => kind === 'make-placement-again')).toBe(isMade);
    expect(jobsInQuestion({ ...observed, servers: [{ ...unclaimed, madeAtMs: NOW - 1_000 }] }, NOW).placements).toEqual([]);
  });
});

describe('wishes', () => {
  it('to cancel are written once, and not waited for for ever', () => {
    const asked = run({ cancelRequestedAtMs: NOW - 1_000 });
    expect(decide(asked)).toEqual([{ kind: 'write-control', fields: { action: '3:cancel' } }]);
    expect(decide({ ...asked, control: { action: '3:cancel' } })).toEqual([]);
    const late = { ...asked, control: { action: '3:cancel' }, cancelRequestedAtMs: NOW - CANCEL_DEADLINE_MS };
    expect(decide(late)).toEqual([{ kind: 'move', to: 'CANCELLED', reason: expect.stringContaining('did not confirm') }]);
    expect(decide({ ...asked, ...beforeStart })).toContainEqual({ kind: 'move', to: 'CANCELLED', reason: 'cancelled before it began' });
  });

  it('to pause are written, close the open seat, and end the attempt at the deadline', () => {
    const asked = run({ status: 'PAUSING', pauseRequestedAtMs: NOW - 100, openTasks: [{ ...task, seat: 2 }] });
    expect(decide(asked)).toEqual([
      { kind: 'write-control', fields: { action: '3:pause' } },
      { kind: 'close-seat', task: { ...task, seat: 2 }, why: 'the run is about to pause' },
    ]);
    expect(decide({ ...asked, pauseRequestedAtMs: NOW - PAUSE_DEADLINE_MS })).toContainEqual(
      expect.objectContaining({ kind: 'end-attempt', end: expect.objectContaining({ cause: 'COORDINATOR_SILENT' }) }),
    );
  });

  it('for fewer workers go to the coordinator, and no seat beyond them is offered', () => {
    expect(decide(run({ workersWanted: 1 }))).toEqual([{ kind: 'write-control', fields: { workers: '3:1' } }]);
    const one = { ...run().coordinator!, seats: run().coordinator!.seats.slice(0, 1) };
    const held = run({
      workersWanted: 1,
      coordinator: one,
      heldTasks: run().heldTasks.slice(0, 1),
      control: { start: START, workers: '3:1' },
    });
    expect(decide(held)).toEqual([]);
    expect(decide({ ...held, workersWanted: 2 })).toContainEqual({ kind: 'open-seat', seat: 1, heldSeats: 1 });
    expect(decide({ ...held, openTasks: [{ ...task, seat: 1 }] })).toContainEqual(expect.objectContaining({ kind: 'close-seat' }));
    // More than replicas is as many as replicas.
    expect(decide(run({ workersWanted: 9 }))).toEqual([{ kind: 'write-control', fields: { workers: '3:2' } }]);
  });
});

describe('a run without a live attempt', () => {
  it('tells whoever holds a part to let go, and begins again when its pause is over', () => {
    const waiting = run({ status: 'RECOVERING', nextAttemptAtMs: NOW + 1, control: {} });
    expect(decide(waiting)).toEqual([{ kind: 'write-control', fields: { action: '3:cancel' } }]);
    expect(decide({ ...waiting, control: { action: '3:cancel' }, nextAttemptAtMs: NOW })).toEqual([
      { kind: 'begin-attempt', reason: 'attempt 4 begins' },
    ]);
    expect(decide(run({ status: 'PAUSED', control: { action: '3:cancel' } }))).toEqual([]);
    expect(jobsInQuestion(waiting, NOW)).toEqual({ placements: [], seats: [] });
  });
});

describe('what Redis lost', () => {
  it('is written again', () => {
    expect(decide(run({ control: {}, storedSequence: 7, coordinatorTerm: 2 }))).toEqual([
      { kind: 'write-control', fields: { start: START } },
      { kind: 'write-control', fields: { ack3: '7@2' } },
    ]);
  });

  it.each<[ObservedJob['state'], number, string[]]>([
    ['missing', 3_000, ['close-seat', 'open-seat']],
    ['missing', 1_000, []],
    ['over', 3_000, ['close-seat', 'open-seat']],
    ['active', SEATED_WITHIN_MS - 1_000, []],
    ['active', SEATED_WITHIN_MS + 1_000, ['close-seat', 'open-seat']],
    ['waiting', 0, []],
    ['unsent', 0, []],
  ])('a seat whose job is %s for %i ms', (state, forMs, kinds) => {
    const one = { ...run().coordinator!, seats: [] };
    const observed = run({ coordinator: one, heldTasks: [], openTasks: [task] });
    expect(jobsInQuestion(observed, NOW).seats).toEqual([JOB]);
    const actions = decide(observed, fleet(), new Map([[JOB, { state, notWaitingSinceMs: NOW - forMs }]]));
    expect(actions.map(({ kind }) => kind)).toEqual(kinds);
  });
});

describe('seats', () => {
  it('follow the coordinator', () => {
    const [first] = run().heldTasks;
    const coordinator = { ...run().coordinator!, seats: [{ seat: 1, incarnation: 4, workerId: 'w9', replicas: [0, 1] }] };
    const actions = decide(run({ coordinator, heldTasks: [first!], seatFailures: 1, lastSeatFailureAtMs: NOW - 100 }));
    expect(actions).toEqual([
      { kind: 'hold-seat', seat: 1, incarnation: 4, workerId: 'w9', replicas: [0, 1], isNew: true },
      { kind: 'forget-seat-failures' },
      { kind: 'close-seat', task: first, why: 'its worker left the seat' },
    ]);
  });

  describe('that workers have taken, whose engines take 45 s to start', () => {
    const [one] = run().coordinator!.seats;
    const taken = { ...task, id: 't1', seat: 1 };
    const observed = (held: boolean, openTasks: ObservedRun['openTasks'] = [taken], changes: Partial<ObservedRun> = {}) => {
      const coordinator = { ...run().coordinator!, seats: held ? [one!] : [] };
      return run({ replicas: 4, coordinator, heldTasks: held ? run().heldTasks.slice(0, 1) : [], openTasks, ...changes });
    };
    const sighting = (state: ObservedJob['state'], forMs = 45_000) => ({ state, notWaitingSinceMs: NOW - forMs });
    const jobOf = (seat: number) => `step-${RUN_ID}-a3-s${seat}-n0`;
    const starting = new Map([[jobOf(1), sighting('active')]]);

    it('stay theirs, and the next one waits meanwhile', () => {
      expect(decide(observed(true), fleet(), starting)).toEqual([{ kind: 'open-seat', seat: 2, heldSeats: 2 }]);
      const next = { ...task, id: 't2', seat: 2, heldSeats: 1 };
      const both = new Map([...starting, [jobOf(2), sighting('waiting')]]);
      expect(decide(observed(true, [taken, next]), fleet(), both)).toEqual([{ kind: 'reprioritise-seat', task: next, heldSeats: 2 }]);
    });

    it('are as many as the run may have, at most', () => {
      expect(decide(observed(true, [taken], { replicas: 2 }), fleet(), starting)).toEqual([]);
    });

    it('are one until a worker has shown that the run can be held', () => {
      expect(decide(observed(false), fleet(), starting)).toEqual([]);
    });

    it('and that another worker holds by now, are closed', () => {
      const again = { ...task, id: 't9', incarnation: 1 };
      const jobs = new Map([[`step-${RUN_ID}-a3-s0-n1`, sighting('active', 1_000)]]);
      expect(decide(observed(true, [again]), fleet(), jobs)).toEqual([
        { kind: 'close-seat', task: again, why: 'another worker holds its seat' },
        { kind: 'open-seat', seat: 1, heldSeats: 1 },
      ]);
    });
  });

  it('are offered again after a pause that doubles, and at last given up', () => {
    const none = { ...run().coordinator!, seats: [] };
    const observed = (seatFailures: number, agoMs: number, lastSeatFailure = { code: 'ENGINE_UNKNOWN', message: 'no wasm' }) =>
      decide(run({ coordinator: none, heldTasks: [], seatFailures, lastSeatFailureAtMs: NOW - agoMs, lastSeatFailure }));
    expect(observed(2, 999)).toEqual([]);
    expect(observed(2, 1_000)).toEqual([{ kind: 'open-seat', seat: 0, heldSeats: 0 }]);
    expect(observed(8, 60_000)).toEqual(lostEnd('NO_WORKER_FITS', expect.stringContaining('8 failed in a row; the last one: no wasm')));
    for (const code of ['RUN_UNKNOWN', 'SERVER_UNREACHABLE'])
      expect(observed(8, 60_000, { code, message: 'gone' })).toEqual(lostEnd('SERVER_LOST', expect.stringContaining('the last one: gone')));
  });

  it('are offered for as long as the data store is away, and the run says what it waits for', () => {
    const none = { ...run().coordinator!, seats: [] };
    const away = { coordinator: none, heldTasks: [], seatFailures: 30, lastSeatFailure: { code: 'DATASET_AWAY', message: 'no answer' } };
    expect(decide(run({ ...away, lastSeatFailureAtMs: NOW - 15_000 }))).toEqual([
      { kind: 'open-seat', seat: 0, heldSeats: 0 },
      { kind: 'explain', reason: 'waits for the data store: no answer', isWaiting: true },
    ]);
  });
});

describe('the reason', () => {
  const noSeat: Partial<ObservedRun> = { coordinator: { ...run().coordinator!, phase: 'waiting', seats: [] }, heldTasks: [] };
  const reasonOf = (observed: ObservedRun, changes: Partial<ObservedFleet['counts']> = {}) =>
    decide(observed, fleet({}, { counts: { ...fleet().counts, ...changes } })).flatMap((action) =>
      'reason' in action ? [action.reason] : [],
    );

  it.each<[string, ObservedRun, Partial<ObservedFleet['counts']>, RegExp]>([
    [
      'QUEUED',
      run({ ...beforeStart, servers: [unclaimed] }),
      { liveServers: 0 },
      /^waits for 1 parameter server: none .* \(attempt 3, from round 40\)$/,
    ],
    ['PROVISIONING, busy', run({ ...noSeat, status: 'PROVISIONING' }), {}, /all are busy/],
    [
      'PROVISIONING, nobody takes the seat',
      run({ ...noSeat, status: 'PROVISIONING', lastSeatFailure: { code: 'ENGINE_UNKNOWN', message: 'no wasm' } }),
      { idleWorkers: 2 },
      /2 idle, but none has taken the first seat; the last failure: no wasm/,
    ],
    [
      'RUNNING without workers',
      run({ coordinator: { ...run().coordinator!, waitingFor: 'a worker' } }),
      { liveWorkers: 0 },
      /none is connected/,
    ],
    ['RUNNING, waiting', run({ coordinator: { ...run().coordinator!, waitingFor: 'server 1' } }), {}, /^waits for server 1$/],
    ['RUNNING again', run({ statusReason: 'is held up by server 1', isWaiting: true }), {}, /^training goes on$/],
  ])('of %s', (_, observed, counts, reason) => {
    expect(reasonOf(observed, counts)).toEqual([expect.stringMatching(reason)]);
  });

  it('is told by what is stored beside it, not by its words', () => {
    expect(reasonOf(run({ statusReason: 'waits for nobody: training began', isWaiting: false }), {})).toEqual([]);
    const waiting = run({ coordinator: { ...run().coordinator!, waitingFor: 'server 1' } });
    expect(decide(waiting)).toEqual([{ kind: 'explain', reason: 'waits for server 1', isWaiting: true }]);
    expect(decide(run({ isWaiting: true }))).toEqual([{ kind: 'explain', reason: 'training goes on', isWaiting: false }]);
  });
});
