import { parseRunSpec, serverPartBytes, type RunSpecInput } from '@paceline/spec';
import { expect, it } from 'vitest';
import { memoryOf } from './model.js';

it.each<RunSpecInput>([
  { optimizer: { name: 'adam' } },
  { strategy: { kind: 'parameter-server', servers: 3 }, checkpoint: { everySeconds: 0 } },
  { strategy: { kind: 'parameter-server', backupReplicas: 1 }, codec: { kind: 'fp16', parameters: 'bf16' } },
  { strategy: { kind: 'parameter-server', mode: 'async' } },
])('says of %j what a run is accepted with: as much of each server', (input) => {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed));
  const { strategy } = parsed.spec;
  const servers = 'servers' in strategy ? strategy.servers : 1;
  const one = serverPartBytes(parsed.spec, { parameterCount: 999_000, stateCount: 1_001 });
  expect(memoryOf(parsed.spec, { parameters: 999_000, state: 1_001 }).serverBytes).toBe(servers * one);
});
