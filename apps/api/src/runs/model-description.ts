/**
 * What a spec's model looks like, found by building it in a thread of its own (libs/engine): a hostile topology costs that thread
 * and nothing else. tf.js is loaded by the first run that is created, not by the start of the api.
 */
import { createHash } from 'node:crypto';
import type { ModelDescription, RunSpec, SpecIssue } from '@paceline/spec';
import { Fault } from '../fault.js';

const DEADLINE_MS = 10_000;
const MAX_REMEMBERED = 32;

export class ModelDescriptions {
  private readonly remembered = new Map<string, ModelDescription>();

  /** @returns the description, or what is wrong with the model @throws Fault TOO_BUSY */
  async of(spec: RunSpec): Promise<{ model: ModelDescription } | { issues: SpecIssue[] }> {
    const key = createHash('sha256')
      .update(JSON.stringify([spec.model, spec.dataset, spec.loss, spec.engine]))
      .digest('hex');
    const known = this.remembered.get(key);
    if (known) return { model: known };
    const { describeModelInThread, DescribeBusyError, ModelError } = await import('@paceline/engine');
    try {
      const model = await describeModelInThread(spec, { deadlineMs: DEADLINE_MS });
      const [oldest] = this.remembered.keys();
      if (this.remembered.size >= MAX_REMEMBERED && oldest !== undefined) this.remembered.delete(oldest);
      this.remembered.set(key, model);
      return { model };
    } catch (error) {
      if (error instanceof ModelError) return { issues: [{ path: error.path, message: error.message }] };
      if (error instanceof DescribeBusyError) throw new Fault('TOO_BUSY', error.message, 5);
      throw error;
    }
  }
}
