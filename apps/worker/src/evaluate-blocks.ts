/** What a compute thread measures of examples that it has whole: block by block, each in parts that the loader prepares. */
import type { Engine } from '@paceline/engine';
import { evaluationParts, type BatchLoader } from './batch-loader.js';
import type { FromCompute } from './compute-protocol.js';

export interface EvaluationOptions {
  readonly engine: Pick<Engine, 'evaluate' | 'metricNames'>;
  readonly loader: Pick<BatchLoader, 'evaluationExamples' | 'takeEvaluation' | 'prefetchEvaluation' | 'releaseEvaluation'>;
  /** Gives the engine the parameters of the generation. @returns false where another generation has taken its place */
  load(): boolean;
  send(message: Extract<FromCompute, { kind: 'evaluated' }>): void;
  progress(): void;
  isStopping(): boolean;
}

export function evaluateBlocks(
  generation: number,
  blocks: readonly { from: number; to: number }[],
  { engine, loader, load, send, progress, isStopping }: EvaluationOptions,
): void {
  const sumsOfNone = (): number[] => engine.metricNames.map(() => 0);
  if (!load()) {
    // Nobody counts them, and the member has to know that they are not under way any more.
    for (const { from, to } of blocks) send({ kind: 'evaluated', generation, from, to, examples: 0, sums: sumsOfNone() });
    return;
  }
  const parts = evaluationParts(blocks, loader.evaluationExamples);
  let [sums, examples] = [sumsOfNone(), 0];
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
    [sums, examples] = [sumsOfNone(), 0];
  }
}
