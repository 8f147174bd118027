/** `npm run simulate`: the simulator as it is built, with the flags as they are given (docs/simulation.md). */
import { existsSync } from 'node:fs';

const command = new URL('../libs/testkit/dist/simulator/command.js', import.meta.url);
if (!existsSync(command) || !existsSync(new URL('../libs/kernels/dist/kernels.wasm', import.meta.url))) {
  process.stderr.write('Nothing is built yet: run "npm run build" first.\n');
  process.exit(2);
}
await import(command.href);
