/** The state tables as a page: docs/protocol-tables.md is this text, and a test compares the two. */
import { TOKEN_COORDINATOR_ROWS } from '../tokens/token-coordinator-table.js';
import { TOKEN_MEMBER_ROWS } from '../tokens/token-member-table.js';
import { TOKEN_SHARD_ROWS } from '../tokens/token-shard-table.js';
import { COORDINATOR_ROWS } from './coordinator-table.js';
import { MEMBER_ROWS } from './member-table.js';
import { REPLICATION_ROWS } from './replication.js';
import { SHARD_ROWS } from './shard-table.js';
import { STANDBY_ROWS } from './standby.js';
import type { StateRows } from './state-table.js';

const TABLES: readonly { title: string; where: string; rows: StateRows<string> }[] = [
  { title: 'Shard', where: 'libs/exchange/src/rounds/shard.ts', rows: SHARD_ROWS },
  { title: 'Coordinator', where: 'libs/exchange/src/rounds/coordinator.ts', rows: COORDINATOR_ROWS },
  { title: 'Member (worker side)', where: 'libs/exchange/src/rounds/member.ts', rows: MEMBER_ROWS },
  { title: 'Shard, modes async and ssp', where: 'libs/exchange/src/tokens/token-shard.ts', rows: TOKEN_SHARD_ROWS },
  { title: 'Coordinator, modes async and ssp', where: 'libs/exchange/src/tokens/token-coordinator.ts', rows: TOKEN_COORDINATOR_ROWS },
  { title: 'Member, modes async and ssp', where: 'libs/exchange/src/tokens/token-member.ts', rows: TOKEN_MEMBER_ROWS },
  { title: 'Replication (a primary with a standby)', where: 'libs/exchange/src/rounds/replication.ts', rows: REPLICATION_ROWS },
  { title: 'Standby', where: 'libs/exchange/src/rounds/standby.ts', rows: STANDBY_ROWS },
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
  return parts.join('\n');
}
