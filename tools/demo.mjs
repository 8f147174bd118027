/** `npm run demo`: installs and builds what is missing, then trains MNIST on a cluster of its own (apps/cli/src/demo.ts). */
import { makeReady } from './ready-to-run.mjs';

if (makeReady()) {
  const { runDemo } = await import('../apps/cli/dist/demo.js');
  process.exitCode = await runDemo(process.argv.slice(2));
} else process.exitCode = 78;
