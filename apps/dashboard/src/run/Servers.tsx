import type { ReactNode } from 'react';
import { shardHostsIn } from '@paceline/spec/shard-holders';
import { Card } from '../components/Card.js';
import { isOver } from '../components/status-table.js';
import { plainText } from '../text/plain-text.js';
import type { RunDetails } from './run-details.js';

function noteOf({ index, role, term }: RunDetails['servers'][number]): string {
  if (role === 'STANDBY') return 'standby';
  return [index === 0 ? 'coordinator' : '', term > 1 ? `since term ${term}` : ''].filter((text) => text !== '').join(' ');
}

/** The servers of a run, or the workers that hold its shards; or those that it had: when it stands still or is over they hold nothing any more. */
export function Servers({ servers, status, spec }: Pick<RunDetails, 'servers' | 'status' | 'spec'>): ReactNode {
  const isOnWorkers = shardHostsIn(spec) !== 'servers';
  const over = isOver(status) || status === 'PAUSED' || status === 'RECOVERING';
  return (
    <Card
      title={isOnWorkers ? 'Shards on workers' : 'Parameter servers'}
      aside={over && servers.length > 0 && <span className="faint">let go</span>}
    >
      {servers.length === 0 ? (
        <p className="nothing">{over ? 'None had claimed a shard.' : 'None has claimed a shard yet.'}</p>
      ) : (
        <table className="members">
          <thead>
            <tr>
              <th scope="col">{isOnWorkers ? 'Worker' : 'Server'}</th>
              <th scope="col">Shard</th>
              {!over && <th scope="col">State</th>}
            </tr>
          </thead>
          <tbody>
            {servers.map((server) => (
              <tr key={`${server.index} ${server.role}`}>
                <th scope="row">
                  {plainText(server.serverId, 60) || 'none yet'}
                  <span className="note">{plainText(server.address, 120)}</span>
                </th>
                <td>
                  {server.index}
                  {noteOf(server) && <span className="note">{noteOf(server)}</span>}
                </td>
                {!over && <td>{plainText(server.state, 30).toLowerCase()}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Card>
  );
}
