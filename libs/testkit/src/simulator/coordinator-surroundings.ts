/**
 * What stands around the coordinator of a simulated attempt, as coordinator-host.ts of libs/hosting has it: what it begins with, the carrier of its
 * journal, and the weights at the end.
 */
import type { Connection, Coordinator, Journal, TokenCoordinator } from '@paceline/exchange';
import { JournalPublisher } from '@paceline/hosting';
import { StorageError, type CheckpointReader, type Checkpoints } from '@paceline/storage';
import type { Cluster } from './cluster.js';
import type { HostedAttempt } from './hosted-attempt.js';

const COLLECT_DEADLINE_MS = 60_000;

export function publisherOf(
  part: HostedAttempt,
  coordinator: Coordinator | TokenCoordinator,
  journal: Journal,
  { run, runId }: Cluster,
): JournalPublisher {
  const { attempt, server } = part;
  return new JournalPublisher({
    ...{ controlPlane: server.controlPlane, clock: server.process, runId, attempt, journal },
    term: () => coordinator.term,
    state: () => ({
      ...{ phase: part.outcome?.outcome ?? coordinator.phase, round: coordinator.round, totalRounds: run.schedule.totalRounds },
      ...{ view: coordinator.view, seats: part.outcome ? [] : coordinator.seats(), refusedFrames: 0, refusedConnections: 0 },
      waitingFor: coordinator.waitingFor()?.slice(0, 300) ?? null,
    }),
    onCancel: () => coordinator.cancel(),
    onPause: () => coordinator.pause(),
    onWorkers: (workers) => coordinator.setWorkerTarget(workers),
  });
}

/** Loads what the attempt begins with, where there is something. @throws StorageError */
export async function restored(
  { restore, memory }: HostedAttempt,
  checkpoints: Checkpoints,
  { watch }: Cluster,
): Promise<CheckpointReader | undefined> {
  if (!restore) return undefined;
  try {
    const reader = await checkpoints.open(restore);
    await memory.restore(reader);
    return reader;
  } catch (error) {
    if (error instanceof StorageError && error.code === 'CHECKPOINT_INVALID') watch.notLoaded(restore, error);
    throw error;
  }
}

/** Pulls every chunk of the last generation and compares it with the run that nothing has happened to. */
export class WeightsCollection {
  private readonly chunks = new Map<number, Uint8Array>();
  private cancel: (() => void) | undefined;

  constructor(
    private readonly part: HostedAttempt,
    private readonly coordinator: Coordinator | TokenCoordinator,
    private readonly servers: ReadonlyMap<number, Connection>,
    private readonly cluster: Cluster,
  ) {}

  begin(): void {
    const { coordinator, cluster } = this;
    this.cancel = this.part.server.process.after(COLLECT_DEADLINE_MS, () => coordinator.fail('the weights could not be written'));
    for (const { index } of cluster.run.layout.chunks)
      this.servers
        .get(cluster.ownerOf(index))!
        .sendMessage({ type: 'pull', generation: coordinator.round, chunk: index }, coordinator.numbers());
  }

  stop(): void {
    this.cancel?.();
  }

  collected(chunk: number, payload: Uint8Array): void {
    const { coordinator, cluster } = this;
    const { layout } = cluster.run;
    this.chunks.set(chunk, payload);
    if (this.chunks.size < layout.chunks.length) return;
    const { tokens, reference } = cluster;
    for (const { index, offset, length } of layout.chunks) {
      const values = new Float32Array(this.chunks.get(index)!.buffer as ArrayBuffer);
      const isRight = tokens
        ? tokens.collected(this.part.attempt, index, values)
        : reference.holds(coordinator.round, { offset, length }, values);
      cluster.checks.expect(isRight, 'I8', () => `the collected chunk ${index} is not that of the ${tokens ? 'shard' : 'undisturbed run'}`);
    }
    const { round, ledger } = coordinator;
    coordinator.weightsCollected({
      ...{ rounds: round, loss: null, accuracy: null, examplesPerSecond: 0, trainedExamples: ledger.trainedExamples },
      ...{ weightsSha256: '0'.repeat(64), weightsFile: null, trainingMs: ledger.trainingMs },
    });
  }
}
