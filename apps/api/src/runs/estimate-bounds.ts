/** Whether checkpoints can have the estimates of EF21: a run whose checkpoints lack them could not go on after it has lost a worker. */
import { createLayout, shardChunks } from '@paceline/learning';
import { keepsEstimate, MOST_RESIDUAL_BYTES, MOST_RESIDUAL_TENSORS, shardCount, type RunSpec, type SpecIssue } from '@paceline/spec';

const FLOAT_BYTES = 4;

/** Undefined where no server would have to write more than it may. */
export function estimateIssue(spec: RunSpec, model: Parameters<typeof createLayout>[0]): SpecIssue | undefined {
  if (!keepsEstimate(spec)) return undefined;
  const { replicas, strategy } = spec;
  const [servers, layout] = [shardCount(strategy), createLayout(model)];
  for (let server = 0; server < servers; server++) {
    const chunks = shardChunks(layout, servers, server)
      .map((chunk) => layout.chunks[chunk]!)
      .filter(({ section }) => section === 'trainable');
    const bytes = FLOAT_BYTES * replicas * chunks.reduce((sum, { length }) => sum + length, 0);
    if (bytes <= MOST_RESIDUAL_BYTES && replicas * chunks.length <= MOST_RESIDUAL_TENSORS) continue;
    return {
      path: 'codec.feedbackRule',
      message:
        `ef21 needs the estimates of all ${replicas} replicas in checkpoints, which is ${Math.ceil(bytes / 2 ** 20)} MiB in ${replicas * chunks.length} tensors for a server; ` +
        `at most ${MOST_RESIDUAL_BYTES >> 20} MiB and ${MOST_RESIDUAL_TENSORS} tensors are written: use more servers, fewer replicas, or residual`,
    };
  }
  return undefined;
}
