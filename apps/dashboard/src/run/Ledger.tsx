import type { ReactNode } from 'react';
import { Card, Facts } from '../components/Card.js';
import { count } from '../text/format.js';
import { lostText } from './lost-residuals.js';
import type { RunDetails } from './run-details.js';
import { trafficText } from './traffic.js';

const FRAMES = 'Old or duplicate parts of gradients, for example when a worker joins or leaves. None was counted.';
const CONNECTIONS = 'Counted by its first server for all runs: too early, from an older attempt, or without a valid token. None took part.';

/** What was committed, counted by the coordinator from (round, replica) rows, and what was refused. */
export function Ledger({
  run: { attempt, ledger, progress, staleness, traffic, codec, lostResiduals, pickedStrategy },
}: {
  run: RunDetails;
}): ReactNode {
  // The rest of the ledger is of all attempts.
  const since = attempt > 1 ? `, attempt ${count(attempt)}` : '';
  return (
    <Card title="Ledger">
      <Facts
        facts={[
          ['Committed rounds', <Of part={ledger.committedRounds} whole={progress.totalRounds} key="rounds" />],
          [
            'Committed examples',
            <Examples committed={ledger.committedExamples} expected={ledger.expectedExamples - ledger.droppedExamples} key="examples" />,
          ],
          ...(ledger.droppedExamples > 0 ? [['Dropped examples', count(ledger.droppedExamples)] as const] : []),
          ...(staleness.length > 0 ? [['Staleness of updates', shares(staleness)] as const] : []),
          ...(pickedStrategy ? [['Strategy', <PickedStrategy picked={pickedStrategy} key="strategy" />] as const] : []),
          ...(codec ? [['Codec', <PickedCodec codec={codec} key="codec" />] as const] : []),
          ...(lostResiduals ? [['Lost residuals', <Lost lost={lostResiduals} key="lost" />] as const] : []),
          ...(traffic
            ? ([
                [`Sent to servers${since}`, trafficText(traffic.toServersBytes, traffic.denseToServersBytes)],
                [`Sent to workers${since}`, trafficText(traffic.toWorkersBytes, traffic.denseToWorkersBytes)],
              ] as const)
            : []),
          ['Refused frames', <Refused number={ledger.refusedFrames} from={FRAMES} key="frames" />],
          ['Refused connections', <Refused number={ledger.refusedConnections} from={CONNECTIONS} key="connections" />],
        ]}
      />
    </Card>
  );
}

/** Shares of the updates by how many others came between reading the parameters and updating them. */
function shares(updates: readonly number[]): string {
  const all = updates.reduce((sum, number) => sum + number, 0);
  return updates
    .map((number, staleness) => [staleness, Math.round((100 * number) / all)] as const)
    .filter(([, share]) => share > 0)
    .map(([staleness, share]) => `${staleness}${staleness === updates.length - 1 ? '+' : ''}: ${share} %`)
    .join(', ');
}

/** What `codec: auto` has picked, and why. */
function PickedCodec({ codec: { kind, parameters, fromRound, why } }: { codec: NonNullable<RunDetails['codec']> }): ReactNode {
  return (
    <>
      {kind === 'none' && parameters === 'float32' ? 'auto: none' : `auto: ${kind}, parameters ${parameters}, from round ${fromRound} on`}
      <span className="note">{why}</span>
    </>
  );
}

/** What the codec had kept of replicas and is gone. */
function Lost({ lost }: { lost: NonNullable<RunDetails['lostResiduals']> }): ReactNode {
  return (
    <>
      <span className="warn">{lostText(lost)}</span>
      <span className="note">From round {lost.fromRound} on the bits are not those of an undisturbed run.</span>
    </>
  );
}

/** What `strategy: auto` has picked, and why. */
function PickedStrategy({ picked: { kind, why } }: { picked: NonNullable<RunDetails['pickedStrategy']> }): ReactNode {
  return (
    <>
      {`auto: ${kind}`}
      <span className="note">{why}</span>
    </>
  );
}

function Of({ part, whole }: { part: number; whole: number }): ReactNode {
  return (
    <>
      {count(part)} <span className="faint">of {count(whole)}</span>
    </>
  );
}

/** `expected` is what the committed rounds must have had: another number means that an example was lost or counted twice. */
function Examples({ committed, expected }: { committed: number; expected: number }): ReactNode {
  if (committed !== expected) {
    return (
      <span className="warn">
        {count(committed)} instead of {count(expected)}
      </span>
    );
  }
  return (
    <>
      {count(committed)} {committed > 0 && <span className="exact">each exactly once</span>}
    </>
  );
}

/** What is refused is not used: a number above zero is no alarm, and the rows say what it comes from. */
function Refused({ number, from }: { number: number; from: string }): ReactNode {
  return (
    <>
      {count(number)}
      {number > 0 && <span className="note">{from}</span>}
    </>
  );
}
