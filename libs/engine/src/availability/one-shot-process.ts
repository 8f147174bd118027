/**
 * Processes that answer one question and end: a crash of an engine's native code ends only them. The question is JSON on stdin,
 * the answer the last line of stdout, the reason for none the last line of stderr.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { EngineUnavailableError } from '../errors/engine-unavailable.js';

/**
 * @param what names it in messages
 * @throws EngineUnavailableError with what the process said last
 */
export function answerOf<T>(program: URL, question: object, what: string, env: NodeJS.ProcessEnv, deadlineMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      process.execPath,
      [fileURLToPath(program)],
      { timeout: deadlineMs, killSignal: 'SIGKILL', encoding: 'utf8', env, maxBuffer: 1 << 20 },
      (error, stdout, stderr) => {
        if (!error) return resolve(JSON.parse(stdout.trim().split('\n').at(-1)!) as T);
        const said = stderr.trim().split('\n').at(-1)?.slice(0, 500);
        const how = error.killed
          ? `gave no answer within ${deadlineMs} ms`
          : error.signal
            ? `was ended by ${error.signal}`
            : said || error.message;
        reject(new EngineUnavailableError(error.killed || error.signal ? `${what} ${how}` : how));
      },
    );
    child.stdin!.on('error', () => undefined); // it ended before it read: the exit says why
    child.stdin!.end(JSON.stringify(question));
  });
}

/** The other side: what such a program does. It ends the process. */
export async function answerQuestion<Q>(answer: (question: Q) => Promise<unknown>): Promise<void> {
  try {
    let text = '';
    for await (const chunk of process.stdin) text += String(chunk);
    const result = await answer(JSON.parse(text) as Q);
    process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
  } catch (error) {
    process.stderr.write(`${(error as Error).message.split('\n').join(' ')}\n`, () => process.exit(1));
  }
}
