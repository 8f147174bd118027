/** A program that several processes run, and what they say at its end. */
import { expect } from 'vitest';
import { MODEL_PROGRAM, tfConfigs, type Ended, type Programs, type Running } from './programs.fixture.js';

const SECRET = { PACELINE_CLUSTER_SECRET: 'a secret of these tests' };

/** Initial weights may come by chance; the optimizer has slots. */
export const BUILD = `
import { MirroredStrategy, MultiWorkerMirroredStrategy } from 'paceline';
${MODEL_PROGRAM}
const build = (kernel = seeded) => built(kernel, tf.train.adam(0.01));
const told = (error) => say({ code: error.code, name: error.constructor.name, message: error.message, members: error.members, replica: error.replica, layer: error.layer });
`;

export async function started(
  programs: Programs,
  source: string | readonly string[],
  processes: number,
  env: Readonly<Record<string, string>> = {},
  /** Before they start. */
  prepare: (workers: readonly string[]) => Promise<void> = async () => undefined,
): Promise<Running[]> {
  const configs = await tfConfigs(processes);
  await prepare((JSON.parse(configs[0]!) as { cluster: { worker: string[] } }).cluster.worker);
  return configs.map((config, i) =>
    programs.start(typeof source === 'string' ? source : source[i]!, { ...SECRET, ...env, TF_CONFIG: config }),
  );
}
const lastLine = ({ status, output, errors }: Ended): Record<string, unknown> => {
  expect(status, errors).toBe(0);
  return JSON.parse(output.trim().split('\n').at(-1)!) as Record<string, unknown>;
};
export const results = async (running: readonly Running[]) => (await Promise.all(running.map(({ ended }) => ended))).map(lastLine);
