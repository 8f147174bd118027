/** The state tables as a page: docs/protocol-tables.md is this text, and a test compares the two. */
import { ASYNC_COORDINATOR_ROWS } from './async/async-coordinator-table.js';
import { ASYNC_MEMBER_ROWS } from './async/async-member-table.js';
import { ASYNC_SHARD_ROWS } from './async/async-shard-table.js';
import { COORDINATOR_ROWS } from './sync/coordinator-table.js';
import { MEMBER_ROWS } from './sync/member-table.js';
import { PHASES, ROUND_PLANS } from './sync/round-phases.js';
import { REPLICATION_ROWS } from './standby/replication.js';
import { SHARD_ROWS } from './sync/shard-table.js';
import { STANDBY_ROWS } from './standby/standby.js';
import type { StateRows } from './attempt/state-table.js';

const TABLES: readonly { title: string; where: string; rows: StateRows<string> }[] = [
  { title: 'Shard', where: 'libs/exchange/src/sync/shard.ts', rows: SHARD_ROWS },
  { title: 'Coordinator', where: 'libs/exchange/src/sync/rounds.ts', rows: COORDINATOR_ROWS },
  { title: 'Member (worker side)', where: 'libs/exchange/src/sync/member.ts', rows: MEMBER_ROWS },
  { title: 'Shard, modes async and ssp', where: 'libs/exchange/src/async/async-shard.ts', rows: ASYNC_SHARD_ROWS },
  { title: 'Coordinator, modes async and ssp', where: 'libs/exchange/src/async/work-items.ts', rows: ASYNC_COORDINATOR_ROWS },
  { title: 'Member, modes async and ssp', where: 'libs/exchange/src/async/async-member.ts', rows: ASYNC_MEMBER_ROWS },
  { title: 'Replication (a primary with a standby)', where: 'libs/exchange/src/standby/replication.ts', rows: REPLICATION_ROWS },
  { title: 'Standby', where: 'libs/exchange/src/standby/standby.ts', rows: STANDBY_ROWS },
];

/** Markdown of all state tables. */
export function printProtocolTables(): string {
  const parts = ['# Protocol state tables', '', 'Printed from the tables that the machines run on: `npm run docs`.', ''];
  for (const { title, where, rows } of TABLES) {
    parts.push(`## ${title}`, '', `\`${where}\``, '', '| row | state | event | does | next |', '|---|---|---|---|---|');
    for (const [name, { from, event, does, next }] of Object.entries(rows)) {
      parts.push(
        `| ${name} | ${from === 'any' ? 'any' : from.join(', ')} | ${event} | ${does} | ${next === '–' ? '–' : next.join(', ')} |`,
      );
    }
    parts.push('');
  }
  parts.push('## Phases of a synchronous round', '', '`libs/exchange/src/sync/round-phases.ts`', '');
  for (const [plan, phases] of Object.entries(ROUND_PLANS)) parts.push(`- ${plan}: ${phases.join(' → ')}`);
  parts.push('', '| phase | takes | does | gives |', '|---|---|---|---|');
  for (const [name, { takes, does, gives }] of Object.entries(PHASES)) parts.push(`| ${name} | ${takes} | ${does} | ${gives} |`);
  return [...parts, ''].join('\n');
}
