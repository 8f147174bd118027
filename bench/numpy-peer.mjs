/** The peer of bench/kernels.mjs: numpy, and PyTorch where it is, in a Python process. */
import { spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const DEADLINE_MS = 120_000;

/**
 * @param {string} python
 * @param {number} elements of each array
 */
export async function startNumpy(python, elements) {
  const script = fileURLToPath(new URL('kernels-numpy.py', import.meta.url));
  const child = spawn(path.resolve(python), [script, String(elements)], { stdio: ['pipe', 'pipe', 'inherit'] });
  const failed = new Promise((_, reject) => {
    child.once('error', (cause) =>
      reject(new Error(`${python} cannot be started: ${cause.message}. Give --peer-python a Python that has numpy`)),
    );
    child.once('exit', (code) => reject(new Error(`${python} ended with ${code}; what it said is above. It needs numpy`)));
  });
  failed.catch(() => undefined); // it is told by the next answer that is waited for
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  /** @returns {Promise<string>} */
  const answer = async () => {
    /** @type {NodeJS.Timeout | undefined} */
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`${python} did not answer within ${DEADLINE_MS / 1000} s`)), DEADLINE_MS);
    });
    try {
      return /** @type {string} */ (await Promise.race([lines.next().then(({ value, done }) => (done ? failed : value)), failed, late]));
    } finally {
      clearTimeout(timer);
    }
  };
  const stop = () => child.kill();
  const known = new Set(
    (
      await answer().catch((error) => {
        stop();
        throw error;
      })
    ).split(' '),
  );
  return {
    stop,
    /**
     * Milliseconds of processor time of a call.
     * @param {string} kernel
     * @returns {Promise<{ numpy: number, torch: number | undefined } | undefined>} undefined for what the peer does not do
     */
    async measure(kernel) {
      if (!known.has(kernel)) return undefined;
      child.stdin.write(`${kernel}\n`);
      const [numpy = Number.NaN, torch] = (await answer()).split(' ').map(Number);
      return { numpy, torch };
    },
  };
}
