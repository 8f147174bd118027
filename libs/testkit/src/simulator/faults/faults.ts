/**
 * Which faults a seed suffers, and when. Each seed draws a subset of the kinds (swarm testing: a seed that has everything all the
 * time finds less than seeds that have one thing often), then one after the other at random times, until faults stop.
 */
import { FrameType, HEADER_BYTES, decodeHeader } from '@paceline/protocol';
import type { Cluster } from '../cluster.js';
import { CONTROL_PLANE_FAULTS } from './control-plane-faults.js';
import { later, type Fault } from './fault.js';
import { SERVER_FAULTS } from './server-faults.js';
import type { SimStream } from '../world/stream.js';
import type { SimWorker } from '../actors/worker.js';

export type FaultKind = keyof typeof FAULTS;

const pickWorker = (cluster: Cluster, seated = true): SimWorker | undefined => {
  const candidates = cluster.liveWorkers().filter((worker) => !seated || worker.session);
  return candidates.length > 0 ? cluster.world.random.pick(candidates) : undefined;
};

/** Whether whole frames hold a gradient or parameters. */
export function holdsData(frames: Uint8Array): boolean {
  for (let at = 0; at < frames.length;) {
    const { type, length } = decodeHeader(frames, at);
    if (type !== FrameType.control) return true;
    at += HEADER_BYTES + length;
  }
  return false;
}

const sockets = (cluster: Cluster) => [...cluster.network.streams].filter((stream) => stream.remote !== 'memory' && stream.isOpen);

export const FAULTS = {
  'kill a worker': {
    inject(cluster) {
      const worker = pickWorker(cluster);
      if (!worker) return false;
      worker.process.kill();
      later(cluster, 100, 3_000, 'worker restarts', () => cluster.startWorker());
      return true;
    },
  },
  'lose a worker host': {
    inject(cluster) {
      const worker = pickWorker(cluster);
      if (!worker) return false;
      cluster.network.block(worker.process.host, '*');
      cluster.network.block('*', worker.process.host);
      worker.process.kill();
      later(cluster, 100, 3_000, 'worker restarts elsewhere', () => cluster.startWorker());
      return true;
    },
  },
  'stop a worker': {
    inject(cluster) {
      const worker = pickWorker(cluster);
      if (!worker || worker.process.isFrozen) return false;
      worker.process.freeze();
      later(cluster, 50, cluster.world.random.pick([500, 5_000, 60_000]), 'worker goes on', () => worker.process.thaw());
      return true;
    },
  },
  'hang a compute thread': {
    inject(cluster) {
      const worker = pickWorker(cluster);
      if (!worker || worker.hangs) return false;
      worker.hangs = true;
      later(cluster, 100, 90_000, 'compute thread goes on', () => (worker.hangs = false));
      return true;
    },
  },
  'slow a worker': {
    inject(cluster) {
      const worker = pickWorker(cluster, false);
      if (!worker) return false;
      worker.stepMs = [cluster.stepMs[0] * 10, cluster.stepMs[1] * 10];
      return true;
    },
  },
  'add a worker': {
    inject(cluster) {
      if (cluster.liveWorkers().length >= 6) return false;
      cluster.startWorker();
      return true;
    },
  },
  'a worker leaves': {
    inject(cluster) {
      const worker = pickWorker(cluster);
      if (!worker || cluster.liveWorkers().length < 2) return false;
      worker.leave();
      return true;
    },
  },
  'an engine fails': {
    inject(cluster) {
      const worker = pickWorker(cluster);
      if (!worker || worker.process.isFrozen) return false;
      worker.process.run(() => worker.session?.compute.fail('ENGINE_CRASHED'));
      return true;
    },
  },
  'break a connection': {
    inject(cluster) {
      const open = sockets(cluster);
      if (open.length === 0) return false;
      const stream = cluster.world.random.pick(open);
      stream.break();
      return true;
    },
  },
  'flip a bit': {
    inject(cluster) {
      const open = sockets(cluster);
      if (open.length === 0) return false;
      const stream = cluster.world.random.pick(open);
      stream.flipNext = true;
      return true;
    },
  },
  'replay a connection': {
    inject: ({ network }) => network.recordings.replay(network),
  },
  'one-way partition': {
    inject(cluster) {
      const worker = pickWorker(cluster);
      const { random } = cluster.world;
      if (!worker) return false;
      const server = random.pick(cluster.servers).process.host;
      const [from, to] = random.chance(0.5) ? [worker.process.host, server] : [server, worker.process.host];
      cluster.network.block(from, to);
      later(cluster, 50, random.pick([1_000, 5_000, 30_000]), 'partition heals', () => cluster.network.unblock(from, to));
      return true;
    },
  },
  partition: {
    inject(cluster) {
      const worker = pickWorker(cluster);
      const { random } = cluster.world;
      if (!worker) return false;
      const { host } = worker.process;
      const server = random.chance(0.5) ? '*' : random.pick(cluster.servers).process.host;
      const ways =
        server === '*'
          ? [
              [host, '*'],
              ['*', host],
            ]
          : [
              [host, server],
              [server, host],
            ];
      for (const [from, to] of ways) cluster.network.block(from!, to!);
      later(cluster, 50, random.pick([1_000, 5_000, 30_000]), 'partition heals', () => {
        for (const [from, to] of ways) cluster.network.unblock(from!, to!);
      });
      return true;
    },
  },
  'servers lose each other': {
    inject(cluster) {
      const { random } = cluster.world;
      const { servers, network } = cluster;
      const [one, other] = [random.pick(servers).process.host, random.pick(servers).process.host];
      if (one === other) return false;
      const ways = [[one, other] as const, ...(random.chance(0.5) ? [[other, one] as const] : [])];
      for (const [from, to] of ways) network.block(from, to);
      later(cluster, 50, random.pick([1_000, 5_000, 30_000]), 'servers hear each other again', () => {
        for (const [from, to] of ways) network.unblock(from, to);
      });
      return true;
    },
  },
  'clock jumps': {
    inject(cluster) {
      const { random } = cluster.world;
      const { servers } = cluster;
      const { process } = random.pick([...cluster.liveWorkers(), ...servers]);
      // Before all servers are connected there is one deadline for that, and nobody to be forgiven.
      if (servers.some((server) => server.process === process) && cluster.control.coordinatorPart?.coordinator?.phase === 'waiting')
        return false;
      return process.jump(random.pick([500, 2_500, 8_000, 70_000]));
    },
  },
  'clock runs fast or slow': {
    inject(cluster) {
      const { random } = cluster.world;
      random.pick([...cluster.liveWorkers(), ...cluster.servers]).process.setRate(random.pick([0.5, 0.9, 1, 1.1, 2]));
      return true;
    },
  },
  'step task delivered twice': {
    inject(cluster) {
      cluster.redis.deliveriesPerJob = 2;
      return true;
    },
  },
  ...CONTROL_PLANE_FAULTS,
  ...SERVER_FAULTS,
  'fill the disk': {
    inject(cluster) {
      if (cluster.disk.isFull) return false;
      cluster.disk.isFull = true;
      later(cluster, 500, 20_000, 'the disk has room again', () => (cluster.disk.isFull = false));
      return true;
    },
  },
  'slow the disk': {
    inject(cluster) {
      cluster.disk.slownessMs = cluster.world.random.pick([1, 20, 500]);
      return true;
    },
  },
  'flip a bit on the disk': {
    inject(cluster) {
      // Names of files that are being written hold random parts: only what is whole can be chosen again.
      const files = cluster.disk.present.files().filter((file) => !file.endsWith('.partial') && file.includes('/checkpoints/'));
      if (files.length === 0) return false;
      cluster.disk.present.flip(cluster.world.random.pick(files), cluster.world.random.int(0, 40), cluster.world.random.int(0, 7));
      cluster.mayLoseCheckpoints = 'a bit was flipped on the disk';
      return true;
    },
  },
  'pause and resume': {
    inject(cluster) {
      if (!cluster.control.pause()) return false;
      later(cluster, 10, 15_000, 'resume', () => cluster.control.resume());
      return true;
    },
  },
  'spoil a gradient': {
    inject(cluster) {
      const { run, runInvariants, world } = cluster;
      // In modes async and ssp the seed says which gradients have NaN, from the start (async-run.ts).
      if (run.shape.items) return false;
      // Nobody computes it yet.
      const round = runInvariants.committedRounds + 1 + world.random.int(0, 1);
      if (run.spoiled.size > 2 || round >= run.schedule.totalRounds) return false;
      const element = world.random.int(0, run.layout.totalLength - 1);
      const value = world.random.pick([Number.NaN, Infinity, -Infinity]);
      run.spoiled.set(`${round}/${world.random.int(0, run.shape.replicas - 1)}`, { element, value });
      if (run.shape.gradient.nonFinite === 'fail') allowFailure(cluster, 'a gradient that is no number');
      return true;
    },
  },
  /** Whole frames on a connection that holds: what no network does, and a mistake in our own code may. */
  'eat frames': {
    inject(cluster) {
      const { network, world, servers } = cluster;
      const { random } = world;
      const chosen = random.pick([...network.streams].filter(({ isOpen }) => isOpen));
      if (!chosen || network.eats) return false;
      if (random.chance(0.6)) {
        network.eats = (stream) => stream === chosen && !(network.eats = undefined);
        return true;
      }
      // Nothing bulky gets through on one connection, or to one server, for a while.
      const { host } = random.pick(servers).process;
      const isEaten = random.chance(0.5)
        ? (stream: SimStream) => stream === chosen
        : ({ remote }: SimStream) => remote.startsWith(`${host}/`);
      network.eats = (stream, frames) => isEaten(stream) && holdsData(frames);
      later(cluster, 500, 60_000, 'frames get through again', () => (network.eats = undefined));
      return true;
    },
  },
  cancel: {
    endsAttempt: true,
    inject(cluster) {
      if (cluster.control.isOver) return false;
      if (!cluster.control.isReachable) return false;
      allowFailure(cluster, 'cancel');
      return cluster.control.cancel();
    },
  },
  /** It goes on hearing workers and other servers, and cannot ask the arbiter, or does not hear him. One at a time, while a run is under way. */
  'a server loses the control plane': {
    inject(cluster) {
      const { control, network, servers, world } = cluster;
      const { random } = world;
      const { host, isAlive } = random.pick(servers).process;
      const isCut = servers.some(({ process }) => network.isCut(process.host, 'redis'));
      if (!isAlive || isCut || control.coordinatorPart?.run.hasStarted !== true) return false;
      const [from, to] = random.chance(0.5) ? [host, 'redis'] : ['redis', host];
      network.block(from, to);
      later(cluster, 50, random.pick([2_000, 10_000, 30_000]), 'a server has the control plane again', () => network.unblock(from, to));
      return true;
    },
  },
} as const satisfies Record<string, Fault>;

export const FAULT_KINDS = Object.keys(FAULTS) as FaultKind[];

function allowFailure(cluster: Cluster, why: string): void {
  cluster.mayFail ??= why;
}

export interface FaultPlan {
  readonly kinds: readonly FaultKind[];
  /** Mean time between two faults. */
  readonly everyMs: number;
  /** No fault starts after this; what was stopped, cut or slowed is put right. */
  readonly untilMs: number;
}

export function scheduleFaults(cluster: Cluster, plan: FaultPlan): void {
  const { world } = cluster;
  if (plan.kinds.length === 0) return;
  const next = (): void => {
    const waitMs = -Math.log(1 - world.random.float()) * plan.everyMs;
    if (world.nowMs + waitMs > plan.untilMs) return;
    world.schedule(waitMs, 'fault', () => {
      injectFault(cluster, world.random.pick(plan.kinds));
      next();
    });
  };
  next();
}

export function injectFault(cluster: Cluster, kind: FaultKind): boolean {
  const fault: Fault = FAULTS[kind];
  if (cluster.control.isOver || !fault.inject(cluster)) return false;
  if (fault.endsAttempt) allowFailure(cluster, kind);
  cluster.network.count(kind);
  cluster.world.note(kind);
  cluster.world.recent.push(`${cluster.world.nowMs.toFixed(3)} FAULT ${kind}`);
  return true;
}

/** Everything is put right: from here on the run has to end by itself. */
export function endFaults(cluster: Cluster): void {
  const { network, control, postgres, redis } = cluster;
  network.heal();
  network.eats = undefined;
  postgres.comeBack();
  redis.comeBack();
  redis.deliveriesPerJob = 1;
  for (const { process } of cluster.liveApis()) process.thaw();
  for (let lacking = cluster.options.apis - cluster.liveApis().length; lacking > 0; lacking--) cluster.restartApi();
  cluster.disk.isFull = false;
  cluster.disk.slownessMs = 2;
  for (const { process, slot } of cluster.servers) {
    process.thaw();
    process.setRate(1);
    if (!process.isAlive) cluster.restartServer(slot);
  }
  control.resume();
  cluster.world.schedule(30_000, 'resume', () => control.resume());
  for (const worker of cluster.liveWorkers()) {
    worker.process.thaw();
    worker.process.setRate(1);
    worker.hangs = false;
    worker.stepMs = cluster.stepMs;
  }
  if (cluster.liveWorkers().length === 0) cluster.startWorker();
}
