/** Seeds that failed once, with what they found. Each stays a test: it must not fail again. */
import { STREAMING } from './gradient-shape.js';
import type { SeedOptions } from './simulate.js';
import { RESTARTS } from './tiny-run.js';

export interface Regression extends SeedOptions {
  readonly found: string;
}

export const REGRESSIONS: readonly Regression[] = [
  {
    ...{ seed: 2, check: 'liveness', kinds: ['flip a bit'] },
    found: 'control messages had no checksum: a flipped bit arrived as another message, or as no JSON',
  },
  {
    ...{ seed: 20, check: 'liveness', kinds: ['break a connection'] },
    found: 'a connection that broke before it had a receiver told nobody: its member waited for ever',
  },
  {
    ...{ seed: 9, check: 'liveness', kinds: ['clock jumps'] },
    found: 'after a stall the coordinator forgave silence for one tick instead of a whole period',
  },
  {
    ...{ seed: 1575, check: 'liveness' },
    found: 'a server that was away made a poison round: the run failed for good where another attempt was due',
  },
  {
    ...{
      seed: 3,
      check: 'liveness',
      kinds: [],
      shape: { replicas: 5, examples: 11, globalBatch: 10, gradient: { nonFinite: 'fail', backupReplicas: 2 } },
    },
    found: 'with backup replicas a round of fewer examples than replicas took the empty ones, which are done first: weights became NaN',
  },
  {
    ...{
      seed: 1,
      check: 'liveness',
      kinds: [],
      workers: 1,
      stepMs: [2_600, 2_700],
      shape: { replicas: 4, rounds: 3, gradient: STREAMING },
    },
    found: 'the simulated compute thread counted progress by node: a worker that was slow, and alone, was taken for stuck five times',
  },
  {
    ...{ seed: 6, check: 'liveness', kinds: ['flip a bit on the disk', 'kill a server'] },
    shape: { cutEveryRounds: 2, rounds: 9, standby: 0, gradient: STREAMING },
    found: 'a bit flipped in the only manifest was taken for a server that looks into another store: the run failed for good',
  },
  {
    ...{ seed: 2, check: 'liveness', kinds: ['servers lose each other', 'break a connection', 'kill a server'] },
    shape: { standby: 1, servers: 2, rounds: 9, gradient: STREAMING },
    found: 'a server that came again before its coordinator knew that it was gone broke the coordinator',
  },
  {
    ...{ seed: 5, check: 'liveness', kinds: ['flip a bit'], shape: { standby: 1, gradient: STREAMING } },
    found: 'a coordinator that took over waited five minutes for servers that the one before had told of the end',
  },
  {
    ...{ seed: 3, check: 'liveness', mode: 'ssp' },
    found: 'a server without chunks could not take part in a cut: it had no tokens, and ended with an error',
  },
  {
    ...{ seed: 8, check: 'liveness', mode: 'ssp', kinds: ['break a connection'], shape: { standby: 0 } },
    found: 'a dropped token was counted when a server without chunks had answered in place of one that owns chunks',
  },
  {
    ...{ seed: 11, check: 'liveness', mode: 'async' },
    found: 'a cut with replicas without rows at the start of its round was taken for one that holds tokens of that round',
  },
  {
    ...{ seed: 108, check: 'liveness', mode: 'ssp', shape: { standby: 0 } },
    found: 'a token issued after a cut reached a shard before the COMMIT of the cut',
  },
  {
    ...{ seed: 1, check: 'liveness', kinds: ['step task delivered twice'], shape: { servers: 3, gradient: STREAMING } },
    found: 'a placement that came twice left two servers with one part, and nobody for another, until they gave up after two minutes',
  },
  {
    ...{ seed: 1, check: 'liveness', kinds: ['kill a server'], shape: { servers: 3, gradient: STREAMING } },
    found: 'servers that hold a part used up the placements of other parts, which were made again up to 15 s later each time',
  },
  {
    seed: 624,
    found: 'a successor waited for servers that had gone, and the workers that found none of them failed the run for good: NO_WORKER_FITS',
  },
  {
    seed: 530,
    found: 'as seed 624, where the former coordinator had told the others of an end that was not one',
  },
  {
    seed: 877,
    found: 'a successor committed a round again whose ledger row its predecessor had stored: the row was there twice',
  },
  {
    seed: 244,
    found:
      'a successor counted its views from below those that workers knew: what they sent was kept as ahead of it until the stall watch asked',
  },
  {
    seed: 470,
    mode: 'ssp',
    found: 'a worker came again for another seat before its former connection was gone: its tokens were neither taken back nor told to it',
  },
  { seed: 4450, mode: 'async', found: 'as seed 470, in mode async' },
  {
    seed: 3924,
    found:
      'a server that connected while the only worker was away was told of nobody, in the view of all others: it dropped what that worker sent',
  },
  {
    seed: 6784,
    found: 'a standby that had not heard the DECISION of a round applied its gradients unscaled, and nobody noticed',
  },
  {
    seed: 6919,
    found: 'the watch: a server without chunks counted as not reduced, because it had not heard a DECISION about nothing',
  },
  {
    seed: 627,
    found: 'the watch: arenas were looked at before the connection of a worker that was gone had been closed, with what was queued for it',
  },
  {
    ...{ seed: 4082, shape: { restarts: RESTARTS } },
    found: 'the watch: with backup replicas a checkpoint was compared with the choices of another attempt, which had begun meanwhile',
  },
  {
    seed: 523,
    found: 'the watch: a shard was held back by a link that a flipped bit had broken, while no api was there to drop its standby',
  },
  { seed: 930, found: 'the watch: as seed 4082, of a server that was stopped, and went on with its attempt when the next had begun' },
  {
    ...{ seed: 124, check: 'liveness', kinds: ['break a connection'], shape: { standby: 1, rounds: 9, gradient: STREAMING } },
    found:
      'nothing held the standby of a shard without chunks within a round of its primary; and who was replaced came back in the place of its successor',
  },
  {
    ...{ seed: 183, check: 'liveness', kinds: ['break a connection'], shape: { standby: 1, rounds: 9, gradient: STREAMING } },
    found: 'a former primary took the term of a new coordinator: it led its shard in the term of its successor',
  },
  {
    ...{ seed: 22, check: 'liveness', kinds: ['break a connection'], shape: { standby: 1, rounds: 9, gradient: STREAMING } },
    found: 'a former primary stood for its shard when a worker alone had heard COMMIT: the successor of the coordinator broke',
  },
  {
    ...{ seed: 60_263, mode: 'async', check: 'liveness', kinds: ['break a connection'], shape: { standby: 1, rounds: 9 } },
    found: 'the watch: a shard was told to leave a token out by a coordinator that had not heard that it was replaced, and did',
  },
  {
    ...{ seed: 6125, mode: 'ssp', shape: { standby: 1 } },
    found:
      'the mark of the store was read before its name was synced: a loss of power took it, and the run failed for good: STORAGE_NOT_SHARED',
  },
  {
    ...{ seed: 1199, mode: 'ssp' },
    found:
      'a checkpoint that the control plane had stored, and whose acknowledgement had not come, was removed: the next attempt was to begin with it',
  },
  {
    ...{ seed: 6019, mode: 'async' },
    found: 'a standstill of the coordinator while it collected the weights counted against their deadline: the attempt ended',
  },
  {
    ...{ seed: 582, mode: 'ssp', check: 'liveness', kinds: ['break a connection'], shape: { standby: 1, rounds: 9 } },
    found:
      'the watch: of two coordinators in one term it followed the one that was replaced; the term of a coordinator rises with takeovers of other shards',
  },
  {
    seed: 3576,
    found:
      'the stall watch counted time in which the coordinator stood still, and took who had just been given the work of another for one at rest: all were asked again',
  },
  { seed: 4245, found: 'as seed 3576, in the middle of a round' },
  {
    seed: 21_007,
    found: 'a deadline whose last moments were too short for the clock to move was looked at for ever, while the weights were collected',
  },
  {
    ...{ seed: 28_690, mode: 'ssp' },
    found:
      'a connection that closed gave up waiting data and sent the messages behind it: the standby refused what did not follow, and did not hear END',
  },
];
