/** `paceline demo`: the whole way on this machine, from a team to trained weights, and nothing left behind. */
import type { Command } from 'commander';
import type { Act } from '../command.js';
import { startDemo, withDemoOptions, type DemoOptions } from '../demo.js';

const CALLS = { again: 'npx paceline demo', longer: 'npx paceline up' };

export function addDemo(program: Command, act: Act): void {
  withDemoOptions(program.command('demo')).action(
    act(({ terminal }, command) => startDemo(Object.assign(command.opts<Omit<DemoOptions, 'calls'>>(), { calls: CALLS }), terminal)),
  );
}
