/** What a compute thread measures of examples that it has whole: block by block, each in parts that the loader prepares. */
import type { Engine } from '@paceline/engine';
import { evaluationParts, type BatchLoader } from './batch-loader.js';
import type { FromCompute } from './compute-protocol.js';

export interface EvaluationOptions {
  /** It has the parameters of the generation. */
  readonly engine: Pick<Engine, 'evaluate' | 'metricNames'>;
  readonly loader: Pick<BatchLoader, 'evaluationExamples' | 'takeEvaluation' | 'prefetchEvaluation' | 'releaseEvaluation'>;
  send(message: Extract<FromCompute, { kind: 'evaluated' }>): void;
  progress(): void;
  isStopping(): boolean;
}

export function evaluateBlocks(
  generation: number,
  blocks: readonly { from: number; to: number }[],
  { engine, loader, send, progress, isStopping }: EvaluationOptions,
): void {
  const parts = evaluationParts(blocks, loader.evaluationExamples);
  let [sums, examples] = [engine.metricNames.map(() => 0), 0];
  for (const [i, { block, from, to }] of parts.entries()) {
    if (isStopping()) return;
    const batch = loader.takeEvaluation(from, to);
    const next = parts[i + 1];
    if (next) loader.prefetchEvaluation(next.from, next.to);
    const result = engine.evaluate(batch);
    loader.releaseEvaluation(from, to);
    examples += result.count;
    result.metricSums.forEach((value, m) => (sums[m]! += value));
    progress();
    if (to < block.to) continue;
    send({ kind: 'evaluated', generation, from: block.from, to: block.to, examples, sums });
    [sums, examples] = [engine.metricNames.map(() => 0), 0];
  }
}
