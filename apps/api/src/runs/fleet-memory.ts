/**
 * Whether those who are connected have the memory for a model. Only what no member could hold is refused: what a run needs at the least, beside
 * what the largest one may use. Nobody connected, or one that does not say: nothing is known, and the run waits for whoever comes.
 */
import { Injectable } from '@nestjs/common';
import { createOptimizer } from '@paceline/learning';
import { leastServerBytes, leastWorkerBytes, type RunSpec, type SpecIssue } from '@paceline/spec';
import { Fleet, type FleetRole } from '../fleet/fleet.js';

const megabytes = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`;

@Injectable()
export class FleetMemory {
  constructor(private readonly fleet: Fleet) {}

  /** @param elements parameters and state of the model */
  async issueOf(spec: RunSpec, elements: number): Promise<SpecIssue | undefined> {
    const needs: readonly [FleetRole, number, string][] = [
      ['worker', leastWorkerBytes(elements), 'use a smaller model, or connect a worker with more memory'],
      [
        'server',
        leastServerBytes(spec.strategy, createOptimizer(spec.optimizer).slots.length, elements),
        'use more servers (`strategy.servers`), or connect one with more memory',
      ],
    ];
    for (const [role, bytes, advice] of needs) {
      const most = await this.largest(role);
      if (most && most.memoryBytes < bytes) {
        const message =
          `has ${elements} parameters (state included): a ${role} holds at least ${megabytes(bytes)} of it, and the largest that is connected ` +
          `(${most.id} on ${most.host}) may use ${megabytes(most.memoryBytes)}; ${advice}`;
        return { path: 'model', message };
      }
    }
    return undefined;
  }

  private async largest(role: FleetRole): Promise<{ id: string; host: string; memoryBytes: number } | undefined> {
    const members = (await this.fleet.list(role)).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row));
    const known = members.flatMap(({ id, host, memoryBytes }) => (memoryBytes === undefined ? [] : [{ id, host, memoryBytes }]));
    if (known.length < members.length) return undefined;
    return known.sort((a, b) => b.memoryBytes - a.memoryBytes)[0];
  }
}
