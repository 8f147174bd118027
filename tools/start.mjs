/** `npm start`: installs and builds what is missing, then runs `paceline up` with the given flags. */
import { makeReady } from './ready-to-run.mjs';

if (makeReady()) {
  const { runProgram } = await import('../apps/cli/dist/program.js');
  process.exitCode = await runProgram(['up', ...process.argv.slice(2)]);
} else process.exitCode = 78;
