/** What the result of a run says of its evaluation split: computed by the api when the panel is looked at first. */
import { useCallback, useId, useState, type ReactNode } from 'react';
import { RunPredictions } from '../graphql/generated/predictions.js';
import { usePoll } from '../live/use-poll.js';
import { Card } from '../components/Card.js';
import { useApi } from '../session/api-context.js';
import { count } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { ClassPredictions } from './ClassPredictions.js';
import type { PredictionOutput, RunPredictionsDetails } from './prediction-outputs.js';
import type { RunDetails } from './run-details.js';
import { ValuePredictions } from './ValuePredictions.js';

const ASK_EVERY_MS = 1_000;

/** Not there before the run has SUCCEEDED. */
export function Predictions({ run }: { run: RunDetails }): ReactNode {
  if (run.status !== 'SUCCEEDED' || !run.result) return null;
  // A run that was extended has another result.
  return <OfResult key={run.result.weightsSha256} id={run.id} />;
}

function OfResult({ id }: { id: string }): ReactNode {
  const { ask } = useApi();
  const [state, setState] = useState<RunPredictionsDetails['state']>();
  const load = useCallback(
    async (signal: AbortSignal) => {
      const found = (await ask(RunPredictions, { id }, signal)).run?.predictions ?? null;
      setState(found?.state);
      return found;
    },
    [ask, id],
  );
  const waits = state === undefined || state === 'COMPUTING';
  const { data, trouble, refused, refresh } = usePoll('predictions', load, waits ? ASK_EVERY_MS : undefined);
  const [chosen, setChosen] = useState(0);
  const output = data?.outputs[chosen] ?? data?.outputs[0];
  return (
    <Card
      title="Predictions"
      anchor="predictions"
      className="predictions"
      aside={
        data?.state === 'READY' && (
          <span className="steps">
            <OutputChoice outputs={data.outputs} chosen={chosen} onChange={setChosen} />
            <span className="faint">{examplesText(data)}</span>
          </span>
        )
      }
    >
      {refused ? (
        <p className="problem">{refused.message}</p>
      ) : data?.state === 'UNAVAILABLE' ? (
        <div className="predictions-state">
          <p>{plainText(data.reason ?? 'They cannot be made.', 1000)}</p>
          <button type="button" className="button small" onClick={refresh}>
            Try again
          </button>
        </div>
      ) : output ? (
        <OutputView key={chosen} output={output} />
      ) : (
        <p className="nothing predictions-state" role="status">
          {waitingText(data, trouble?.message)}
        </p>
      )}
    </Card>
  );
}

function waitingText(data: RunPredictionsDetails | null | undefined, trouble: string | undefined): string {
  if (trouble) return `${trouble} Trying again…`;
  if (data?.state === 'READY') return 'The model has no output that could be shown.';
  return data?.state === 'COMPUTING' ? 'Predictions for the evaluation split are being computed…' : 'Loading…';
}

function examplesText({ examples, measured, split }: RunPredictionsDetails): string {
  const all = `${count(examples)} examples of the ${plainText(split ?? '', 20)} split`;
  return measured !== null && examples !== null && measured < examples ? `${count(measured)} of ${all}` : all;
}

interface ChoiceProps {
  readonly outputs: readonly PredictionOutput[];
  readonly chosen: number;
  readonly onChange: (chosen: number) => void;
}

/** Only where there is something to choose. */
function OutputChoice({ outputs, chosen, onChange }: ChoiceProps): ReactNode {
  const id = useId();
  if (outputs.length < 2) return null;
  return (
    <>
      <label className="visually-hidden" htmlFor={id}>
        Output of the model
      </label>
      <select id={id} className="small-select" value={chosen} onChange={(event) => onChange(Number(event.target.value))}>
        {outputs.map((output, i) => (
          <option key={i} value={i}>
            {plainText(output.name, 60)}
          </option>
        ))}
      </select>
    </>
  );
}

function OutputView({ output }: { output: PredictionOutput }): ReactNode {
  switch (output.__typename) {
    case 'PredictedClasses':
      return <ClassPredictions output={output} />;
    case 'PredictedValues':
      return <ValuePredictions output={output} />;
    case 'UnpicturedOutput':
      return <p className="nothing predictions-state">{plainText(output.reason, 500)}</p>;
  }
}
