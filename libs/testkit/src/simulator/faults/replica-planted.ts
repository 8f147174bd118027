/** Planted mistakes (planted.ts) in codecs, in local steps, and in runs whose workers hold the shards. */
import type { Region, RoundDecision, OwnedChunk, TwoPhaseOptions } from '@paceline/exchange';
import type { ControlFields } from '@paceline/control-plane';
import type { Arena } from '@paceline/kernels';
import { STREAMING } from '../run/gradient-shape.js';
import type { PlantedBug } from './planted.js';

/** Private parts of the machines that a mistake is put into. */
interface OpenEncoder {
  seed: number;
  readonly arena: Arena;
  readonly trainable: number;
  addResidual(
    round: number,
    replica: number,
    gradient: number,
    squares: number,
  ): { readonly before: { readonly rest: number } | undefined };
  readResidual(round: number, replica: number, into: Float32Array): boolean;
  warmAt(
    place: number,
    residual: { readonly round: number } | undefined,
  ): { readonly before: number | undefined; readonly after: number } | undefined;
}
interface OpenShard {
  readonly options: {
    readonly tables?: { read(group: unknown, ids: Uint32Array, isNext: boolean): Float32Array };
    readonly store: {
      update(chunk: OwnedChunk, round: number, from: Region, to: Region, gradient: Region, decision?: RoundDecision): void;
      updateRows(chunk: OwnedChunk, round: number, params: Region, rows: { at: Uint32Array; width: number }, gradient: Region): void;
    };
  };
}
interface OpenMember {
  readonly held: {
    copy(from: { readonly have: Iterable<number> }, to: { readonly have: Set<number> }, isSame: (chunk: number) => boolean): void;
  };
}
interface OpenRounds {
  readonly present: { readonly agreement: { options: TwoPhaseOptions } };
}
interface OpenUpdates {
  begun(pointers: readonly number[]): { readonly pointers: readonly number[]; readonly weights: number; readonly steps: number };
}

/** What a member that lacks an estimate does. */
interface OpenMemberOfEstimates {
  readonly withheld: Set<number>;
}

const top = { kind: 'top-k', density: 0.25, errorFeedback: true } as const;
const ef21 = { ...top, feedbackRule: 'ef21' } as const;
/** Two variables of 8 x 4, of which chunks have 18 and 14 elements. */
const matrices = {
  codec: { kind: 'power-sgd', errorFeedback: false },
  columns: 4,
  chunks: [18, 14, 18, 14].map((length) => ({ length, section: 'trainable' as const })),
} as const;
const vectors = [3, 4, 5, 2].map((length) => ({ length, section: 'trainable' as const }));
const local = { localSteps: 3, outerOptimizer: 'nesterov', innerState: 'reset' } as const;
const adam = { name: 'adam', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 } as const;
const table = { rows: 6, width: 2, perReplica: 2 } as const;
const plain = { gradient: STREAMING, standby: 0, validation: undefined } as const;
const members = { isMirrored: true, servers: 3, replicas: 4, globalBatch: 12, ...plain } as const;

const READS_OLDER: PlantedBug['plant'] = {
  encoder(encoder) {
    const machine = encoder as unknown as OpenEncoder;
    const readResidual = machine.readResidual.bind(encoder);
    machine.readResidual = (round, replica, into) => readResidual(round - 1, replica, into);
  },
};

export const PLANTED_REPLICAS: readonly PlantedBug[] = [
  {
    name: 'a residual is applied twice',
    mistake: 'what a replica left out in the round before is added to its gradient twice',
    shownBy: ['I2'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, codec: top },
    plant: {
      encoder(encoder) {
        const machine = encoder as unknown as OpenEncoder;
        const addResidual = machine.addResidual.bind(encoder);
        machine.addResidual = (round, replica, gradient, squares) => {
          const residual = addResidual(round, replica, gradient, squares);
          const { arena, trainable } = machine;
          if (residual.before) arena.kernels.add(gradient, residual.before.rest, trainable);
          return residual;
        };
      },
    },
  },
  {
    name: 'a checkpoint has an older residual',
    mistake: 'a checkpoint is given what the round before it has left of a replica',
    shownBy: ['I2'],
    withinSeeds: 20,
    kinds: ['kill a server', 'kill a worker'],
    shape: { ...plain, codec: top, rounds: 9, checkpointEveryRounds: 2 },
    plant: READS_OLDER,
  },
  {
    name: 'a worker hands an older residual on',
    mistake: 'a worker gives the one that has its replica next what an earlier round has left',
    shownBy: ['I2'],
    withinSeeds: 20,
    kinds: ['a worker leaves', 'add a worker'],
    shape: { ...plain, codec: top, rounds: 9, checkpointEveryRounds: 0 },
    plant: READS_OLDER,
  },
  {
    name: 'a gradient without its estimate',
    mistake: 'with EF21 a worker sends the gradient of a replica whose estimate it does not have',
    shownBy: ['I2'],
    withinSeeds: 20,
    kinds: ['kill a worker', 'add a worker'],
    shape: { ...plain, codec: ef21, rounds: 9 },
    plant: {
      member(member) {
        (member as unknown as OpenMemberOfEstimates).withheld.add = function () {
          return this;
        };
      },
    },
  },
  {
    name: 'an estimate without the one before',
    mistake: 'with EF21 a replica takes what it has sent in a round for its estimate',
    shownBy: ['I2'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, codec: ef21 },
    plant: {
      encoder(encoder) {
        const machine = encoder as unknown as OpenEncoder;
        const addResidual = machine.addResidual.bind(encoder);
        machine.addResidual = (...round) => ({ ...addResidual(...round), before: undefined });
      },
    },
  },
  {
    name: 'a norm of one chunk',
    mistake: 'with error feedback and clipping by the global norm the coordinator takes the norm of one chunk for that of all',
    shownBy: ['I8'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, codec: top, servers: 2, chunks: vectors, gradient: { ...STREAMING, clipGlobalNorm: 0.05 } },
    plant: {
      rounds(rounds) {
        const { agreement } = (rounds as unknown as OpenRounds).present;
        const { options } = agreement;
        agreement.options = { ...options, decide: (round, replicas, chunks) => options.decide(round, replicas, chunks.slice(0, 1)) };
      },
    },
  },
  {
    name: 'a power iteration begins anew',
    mistake: 'with power-sgd a replica begins each round with random factors: what it has found in the round before is lost',
    shownBy: ['I2'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, ...matrices },
    plant: {
      encoder(encoder) {
        const machine = encoder as unknown as OpenEncoder;
        const warmAt = machine.warmAt.bind(encoder);
        machine.warmAt = (place, residual) => {
          const warm = warmAt(place, residual);
          return warm && { ...warm, before: undefined };
        };
      },
    },
  },
  {
    name: 'rows of the generation before',
    mistake: 'a worker that asks for rows of the next generation is told those of the present one',
    shownBy: ['I8'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, table, optimizer: adam },
    plant: {
      shard(shard) {
        const { tables } = (shard as unknown as OpenShard).options;
        if (!tables) return;
        const read = tables.read.bind(tables);
        tables.read = (group, ids) => read(group, ids, false);
      },
    },
  },
  {
    name: 'a row is taken for its neighbour',
    mistake: 'the gradient of a row is applied to the row behind it',
    shownBy: ['I8'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, table, optimizer: { name: 'sgd', learningRate: 0.1 } },
    plant: {
      shard(shard) {
        const { store } = (shard as unknown as OpenShard).options;
        const updateRows = store.updateRows.bind(store);
        store.updateRows = (chunk, round, params, { at, width }, gradient) =>
          updateRows(chunk, round, params, { at: at.map((row) => (row + 1) % (chunk.length / width)), width }, gradient);
      },
    },
  },
  {
    name: 'each worker rounds in its own way',
    mistake: 'random numbers of a codec follow from the worker, in place of the seed of the run',
    shownBy: ['I8'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, codec: { kind: 'int8', errorFeedback: false } },
    plant: {
      encoder(encoder, { workers }) {
        (encoder as unknown as OpenEncoder).seed = workers.length;
      },
    },
  },
  {
    name: 'local steps from a stale base',
    mistake: 'the local steps of a replica begin with the weights of the generation before',
    shownBy: ['I8'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, local, optimizer: adam },
    plant: {
      local(updates) {
        const run = updates.run.bind(updates);
        let before: Float32Array | undefined;
        let last = -1;
        let stale: Float32Array | undefined;
        updates.run = (round, step) => {
          if (round.round !== last) [stale, before, last] = [before, round.start.slice(), round.round];
          return run({ ...round, start: stale ?? round.start }, step);
        };
      },
    },
  },
  {
    name: 'a chunk is not carried over',
    mistake: 'what a round has not exchanged counts as that of the next generation at a worker, which has an older one in its place',
    shownBy: ['I8'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, local: { ...local, innerState: 'keep', fragments: 2 }, chunks: matrices.chunks },
    plant: {
      member(member) {
        const { held } = member as unknown as OpenMember;
        held.copy = (from, to, isSame) => {
          for (const index of from.have) if (isSame(index)) to.have.add(index);
        };
      },
    },
  },
  {
    name: 'slots of a round before',
    mistake: 'with innerState reset a round begins with the slots that the last one has left',
    shownBy: ['I8'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, local, optimizer: adam },
    plant: {
      local(updates) {
        const machine = updates as unknown as OpenUpdates;
        const begun = machine.begun.bind(updates);
        let isBegun = false;
        machine.begun = (pointers) => {
          if (isBegun) return { pointers, weights: 0, steps: 0 };
          isBegun = true;
          return begun(pointers);
        };
      },
    },
  },
  {
    name: 'the outer step applied twice',
    mistake: 'a shard applies the outer optimizer twice in a round',
    shownBy: ['I2'],
    withinSeeds: 5,
    kinds: [],
    shape: { ...plain, local, optimizer: adam },
    plant: {
      shard(shard) {
        const { store } = (shard as unknown as OpenShard).options;
        const update = store.update.bind(store);
        store.update = (chunk, round, from, to, gradient, decision) => {
          update(chunk, round, from, to, gradient, decision);
          update(chunk, round, to, to, gradient, decision);
        };
      },
    },
  },
  {
    name: 'a late claim is not asked for again',
    mistake:
      'where workers hold the shards, nobody is told that a part was made again before its claim had come: its worker waits for ever',
    shownBy: ['I9', 'liveness'],
    withinSeeds: 40,
    seed: 11,
    kinds: ['restart Redis', 'partition', 'one-way partition', 'stop an api'],
    shape: members,
    plant: {
      control: (fields: ControlFields) => {
        if (fields.claims === undefined) return fields;
        const { open: _, ...claims } = JSON.parse(fields.claims) as { open?: unknown };
        return { ...fields, claims: JSON.stringify(claims) };
      },
    },
  },
  {
    name: 'a seat is taken by whoever holds a shard',
    mistake: 'the seat of a shard is offered in the control hash with the number of another one',
    shownBy: ['refusal', 'I9', 'liveness', 'crash'],
    withinSeeds: 10,
    kinds: [],
    shape: members,
    plant: {
      control: (fields: ControlFields) => {
        if (fields.seats === undefined) return fields;
        const offered = JSON.parse(fields.seats) as { seats: { seat: number }[] };
        const seats = offered.seats.map((seat) => ({ ...seat, seat: seat.seat === 2 ? 1 : seat.seat }));
        return { ...fields, seats: JSON.stringify({ ...offered, seats }) };
      },
    },
  },
];
