/**
 * What a new run would measure in vain, as it shows with the outputs of its model: options that no measured output reads, and a number that says nothing.
 * Only what somebody gives is held to this: a run that was stored goes on as it is.
 */
import { lossOfOutput, type LossName, type MeasuredName, type ModelEnd, type SpecIssue } from '@paceline/spec';
import type { MeasuredPart, MetricPlan } from './metric-plan.js';

/** Losses that take each output of a row by itself. */
const BY_ELEMENT: readonly LossName[] = ['binaryCrossentropy', 'hinge', 'squaredHinge'];
/** They take a row of several classes for the class of its largest output. */
const COUNTERS: readonly MeasuredName[] = ['precision', 'recall', 'f1Score'];

/** @param plan of the same spec and outputs */
export function measureIssues(spec: MeasuredPart, outputs: readonly ModelEnd[], { planned }: Pick<MetricPlan, 'planned'>): SpecIssue[] {
  const issues: SpecIssue[] = [];
  const widthOf = (output: number): number => outputs[output]!.shape.at(-1) ?? 1;
  const { topK, threshold } = spec.metricOptions ?? {};
  const ranked = planned.filter(({ metric }) => metric === 'topKCategoricalAccuracy').map(({ output }) => widthOf(output));
  const widest = Math.max(...ranked);
  if (topK !== undefined && ranked.length > 0 && widest <= topK)
    issues.push({
      path: 'metricOptions.topK',
      message:
        widest === 1
          ? 'is not used: a single output has no ranks; measure accuracy in place of topKCategoricalAccuracy'
          : `must be less than the ${widest} classes: among the ${topK} largest outputs each class is always right`,
    });
  const ofThreshold = planned.filter(({ metric }) => metric === 'binaryAccuracy' || COUNTERS.includes(metric));
  const isRead = ({ metric, target, output }: (typeof planned)[number]): boolean =>
    metric === 'binaryAccuracy' || target.classes === 0 || widthOf(output) === 1;
  if (threshold !== undefined && ofThreshold.length > 0 && !ofThreshold.some(isRead))
    issues.push({
      path: 'metricOptions.threshold',
      message: `is not used: ${ofThreshold[0]!.metric} takes the class with the largest of ${widthOf(ofThreshold[0]!.output)} outputs; measure binaryAccuracy, or leave it out`,
    });
  const surprised = planned.find(({ metric, target, output }) => {
    const loss = lossOfOutput(spec, outputs[output]!.name);
    const name = typeof loss === 'object' ? loss.name : loss;
    return metric === 'perplexity' && target.classes === 0 && widthOf(output) > 1 && name !== undefined && BY_ELEMENT.includes(name);
  });
  if (surprised)
    issues.push({
      path: 'metrics',
      message: `perplexity is of one class in a row, and the output ${outputs[surprised.output]!.name} has ${widthOf(surprised.output)} labels at once: leave it out, or measure binaryAccuracy`,
    });
  return issues;
}
