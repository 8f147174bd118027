/**
 * Whether checkpoints can have what the codec keeps of replicas: a run whose checkpoints lack it loses it at each restart, and with each replica that moves. With
 * EF21 it could not go on at all.
 */
import { beyondResidualBounds, createLayout, RESIDUAL_BOUNDS, residualBoundsMessage } from '@paceline/learning';
import { keepsEstimate, shardCount, type RunSpec, type SpecIssue } from '@paceline/spec';

/** Undefined where no server would have to write more than it may. */
export function residualIssue(spec: RunSpec, model: Parameters<typeof createLayout>[0], bounds = RESIDUAL_BOUNDS): SpecIssue | undefined {
  if (!spec.codec) return undefined;
  const servers = shardCount(spec.strategy);
  const beyond = beyondResidualBounds(spec, createLayout(model), servers, bounds);
  return (
    beyond && {
      path: keepsEstimate(spec) ? 'codec.feedbackRule' : 'codec',
      message: residualBoundsMessage(spec, beyond, servers, bounds),
    }
  );
}
