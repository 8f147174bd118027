/** A trial (trial.ts) as a program: the request on stdin, the result as the last line of stdout; the reason as the last line of stderr. */
import { runTrial, type TrialRequest } from './trial.js';

try {
  let text = '';
  for await (const chunk of process.stdin) text += String(chunk);
  const result = await runTrial(JSON.parse(text) as TrialRequest);
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
} catch (error) {
  process.stderr.write(`${(error as Error).message.split('\n').join(' ')}\n`, () => process.exit(1));
}
