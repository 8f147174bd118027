/** What follows from a run's row alone. */
import {
  coordinatorOf,
  hasLiveAttempt,
  isOver,
  restartsLeft,
  type MeasuresRecord,
  type RunChange,
  type RunResult,
} from '@paceline/control-plane';
import { roundGrid, roundsOf, shardCount, shardHosts, type RoundGrid, type RunSpec } from '@paceline/spec';
import type { Prisma } from '../generated/prisma/client.js';
import type { RunRow, RunRowWithSpec, ShortSpec } from './run-columns.js';
import { Run, RunProgress, RunResultType } from './run.types.js';
import type { RunTraffic } from './traffic.types.js';

export const specOf = (row: Pick<RunRowWithSpec, 'spec'>): RunSpec => row.spec as unknown as RunSpec;
export const shortSpecOf = (row: Pick<RunRow, 'shortSpec'>): ShortSpec => row.shortSpec as unknown as ShortSpec;
/** What libs/control-plane has decided, as Prisma takes it: its JSON columns are of no type that we could name there. */
export const columnsOf = (change: RunChange) => change as Prisma.RunUncheckedUpdateManyInput;

/** Workers that a run may have where nobody has scaled it. */
const mostWorkers = ({ strategy, replicas }: ShortSpec): number => (shardHosts(strategy) === 'workers' ? shardCount(strategy) : replicas);

export const resultOf = (row: Pick<RunRow, 'result'>): RunResult | null => row.result as unknown as RunResult | null;

export function toRun(row: RunRow): Run {
  const { id, name, status, statusReason, statusChangedAt, shortSpec, attempt, createdAt, startedAt, finishedAt } = row;
  return Object.assign(new Run(), {
    id,
    name,
    status,
    statusReason,
    statusChangedAt,
    shortSpec,
    attempt,
    restartsLeft: restartsLeft(
      { used: row.restartsUsed, total: row.restartsTotal, bestRound: Number(row.bestRound) },
      shortSpecOf(row).restarts,
    ),
    workersWanted: row.workersWanted ?? mostWorkers(shortSpecOf(row)),
    createdAt,
    startedAt,
    finishedAt,
    parameterCount: Number(row.parameterCount),
    row,
  });
}

/** The measures that have fields of their own, beside all of them by name. */
export const namedMeasures = (values: MeasuresRecord = {}) => ({
  values,
  loss: values['loss'] ?? null,
  accuracy: values['accuracy'] ?? values['binaryAccuracy'] ?? null,
  meanAbsoluteError: values['meanAbsoluteError'] ?? null,
  meanSquaredError: values['meanSquaredError'] ?? null,
});

export function progressOf(row: RunRow): RunProgress {
  const { round, latest, phase } = stateOf(row);
  const totalRounds = Number(row.totalRounds);
  const { round: place, epochsIn } = gridOf(row);
  const { values, loss, accuracy } = namedMeasures(latest?.values);
  return {
    phase,
    round,
    totalRounds,
    epoch: place(Math.max(0, Math.min(round, totalRounds - 1))).epoch,
    totalEpochs: epochsIn(totalRounds),
    values,
    loss,
    accuracy,
    validation: latest?.validation ?? null,
    ...speedOf(row, latest?.examplesPerSecond ?? null, round),
    ...seatsOf(row),
  };
}

/** What its coordinator has heard of the bytes on the sockets. */
export const trafficOf = (row: RunRow): RunTraffic | null => {
  const { traffic } = coordinatorOf(row) ?? {};
  return traffic ? { ...traffic, workers: [...traffic.workers] } : null;
};

/** The round that a run is in, by its result or else by its coordinator. */
function stateOf(row: RunRow) {
  const coordinator = coordinatorOf(row);
  // An extension that was cancelled or failed may have gone beyond the result, which stands.
  const result = row.status === 'SUCCEEDED' ? resultOf(row) : null;
  if (!result) return { round: coordinator?.round ?? 0, latest: coordinator?.latest, phase: coordinator?.phase ?? ('waiting' as const) };
  const latest = coordinator?.round === result.rounds ? coordinator.latest : null;
  return { round: result.rounds, latest, phase: 'finished' as const };
}

/** @param speed examples a second, as measured last @param round committed rounds */
function speedOf(row: RunRow, speed: number | null, round: number): Pick<RunProgress, 'examplesPerSecond' | 'etaSeconds'> {
  // A run that waits for somebody does not come nearer to its end.
  const hasEta = row.status === 'RUNNING' && !coordinatorOf(row)?.waitingFor;
  return {
    examplesPerSecond: isOver(row.status) ? (resultOf(row)?.examplesPerSecond ?? speed) : speed,
    etaSeconds: !hasEta || !speed ? null : (scheduledExamples(row, Number(row.totalRounds)) - scheduledExamples(row, round)) / speed,
  };
}

/** Workers that compute, and what the run waits for; empty between attempts. */
function seatsOf(row: RunRow): Pick<RunProgress, 'workers' | 'replicas' | 'waitingFor'> {
  const coordinator = hasLiveAttempt(row.status) ? coordinatorOf(row) : null;
  return {
    workers: new Set(coordinator?.seats.map(({ workerId }) => workerId)).size,
    replicas: shortSpecOf(row).replicas,
    waitingFor: coordinator?.waitingFor ?? null,
  };
}

const gridOf = (row: RunRow): RoundGrid => roundGrid(roundsOf(shortSpecOf(row), row.trainExamples));

/** Examples that rounds 0..rounds-1 have, by the schedule of the spec. */
export const scheduledExamples = (row: RunRow, rounds: number): number => gridOf(row).examplesIn(rounds);

export function resultTypeOf(row: RunRow): RunResultType | null {
  const result = resultOf(row);
  if (!result) return null;
  const { weightsFile, values, weightsRound, ...rest } = result;
  const weightsUrl = weightsFile === null ? null : `/api/v1/runs/${row.id}/weights`;
  return { ...rest, ...namedMeasures(values), weightsRound: weightsRound ?? rest.rounds, weightsUrl };
}
