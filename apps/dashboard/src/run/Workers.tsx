/** The workers and their replicas: one line for each held seat, one for all open seats. */
import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { isOver } from '../components/status-table.js';
import { bytes, count, ranges } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import type { RunDetails } from './run-details.js';
import { workersAtWork } from './run-state.js';
import { trafficText } from './traffic.js';

/** As many as are asked for (operations.graphql), those that are held first. */
const MOST_SEATS = 200;

type Seat = RunDetails['stepTasks'][number];

export function Workers({ run }: { run: RunDetails }): ReactNode {
  const held = run.stepTasks.filter((seat) => seat.worker !== null && !isClosed(seat)).sort((a, b) => a.seat - b.seat);
  const open = run.stepTasks.filter((seat) => seat.worker === null && !isClosed(seat));
  const over = isOver(run.status);
  const untold = run.stepTasks.length < MOST_SEATS ? 0 : run.progress.workers - held.length;
  // Their seats are kept for some seconds, in case they come back.
  const isGone = !over && held.length > 0 && workersAtWork(run) === 0;
  return (
    <Card
      title="Workers"
      aside={
        <span className="faint">
          {count(run.progress.replicas)} {run.progress.replicas === 1 ? 'replica' : 'replicas'}
        </span>
      }
    >
      {held.length > 0 && (
        <table className="members">
          <thead>
            <tr>
              <th scope="col">Worker</th>
              <th scope="col">Seat</th>
              <th scope="col">Replicas</th>
              <th scope="col">Memory</th>
            </tr>
          </thead>
          <tbody>
            {held.map((seat) => (
              <WorkerLine
                key={seat.id}
                seat={seat}
                worker={seat.worker!}
                isGone={isGone}
                traffic={run.traffic?.workers.find(({ workerId }) => workerId === seat.worker!.id)}
              />
            ))}
          </tbody>
        </table>
      )}
      {untold > 0 && <p className="nothing">and {count(untold)} more</p>}
      {held.length === 0 && <p className="nothing">{noneText(run)}</p>}
      {!over && open.length > 0 && (
        <p className="nothing">
          {open.length === 1 ? 'Seat' : 'Seats'} {ranges(open.map(({ seat }) => seat))} {open.length === 1 ? 'is' : 'are'} open: more
          workers may join.
        </p>
      )}
    </Card>
  );
}

function noneText({ status }: RunDetails): string {
  if (isOver(status)) return 'The run is over; its seats are free.';
  if (status === 'PAUSED') return 'The run is paused; its seats are free.';
  if (status === 'RECOVERING') return 'The next attempt is about to begin; its seats are free.';
  return 'No worker has a seat yet.';
}

const isClosed = (seat: Seat): boolean => seat.state.toUpperCase() === 'CLOSED';

interface LineProps {
  readonly seat: Seat;
  readonly worker: NonNullable<Seat['worker']>;
  readonly isGone: boolean;
  readonly traffic: NonNullable<RunDetails['traffic']>['workers'][number] | undefined;
}

function WorkerLine({ seat, worker, isGone, traffic }: LineProps): ReactNode {
  // The fingerprint names the engine first, then everything that its bits depend on.
  const engine = plainText(worker.engine, 300);
  const speeds = worker.engines
    .filter(({ examplesPerSecond }) => examplesPerSecond !== null)
    .map(({ name, examplesPerSecond }) => `${plainText(name, 30)} ${count(Math.round(examplesPerSecond!))}/s`)
    .join(', ');
  const where = `${plainText(worker.host, 100)}, pid ${worker.pid}`;
  return (
    <tr>
      <th scope="row">
        {plainText(worker.name, 60)}
        {(isGone || worker.status === 'LOST') && <span className="lost"> lost</span>}
        <span className="note">{where}</span>
        {engine && (
          <span className="note" title={engine}>
            {engine.split(';')[0]}
            {speeds && ` (${speeds})`}
          </span>
        )}
        {traffic && (
          <span className="note">
            to servers {trafficText(traffic.toServersBytes, traffic.denseToServersBytes)}; to the worker{' '}
            {trafficText(traffic.toWorkersBytes, traffic.denseToWorkersBytes)}
          </span>
        )}
      </th>
      <td>{seat.seat}</td>
      <td>{ranges(seat.replicas)}</td>
      <td>{bytes(worker.rssBytes)}</td>
    </tr>
  );
}
