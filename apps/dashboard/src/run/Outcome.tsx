import { useState, type ReactNode } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { Card, Facts } from '../parts/Card.js';
import { CopyButton } from '../parts/CopyButton.js';
import { useApi } from '../session/api-context.js';
import { saveFile } from '../session/download.js';
import { accuracy, count, duration, loss, rate } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import type { RunDetails } from './RunPage.js';

export function Outcome({ result, name }: { result: NonNullable<RunDetails['result']>; name: string }): ReactNode {
  const sha256 = plainText(result.weightsSha256, 64);
  return (
    <Card title="Result" className="outcome">
      <div className="outcome-figures">
        <div>
          <span className="figure">{accuracy(result.accuracy)}</span>
          <span className="note">evaluation accuracy</span>
        </div>
        <div>
          <span className="figure">{loss(result.loss)}</span>
          <span className="note">evaluation loss</span>
        </div>
      </div>
      <Facts
        facts={[
          ['Trained examples', count(result.trainedExamples)],
          ['Training time', duration(result.trainingMs / 1000)],
          ['Examples/s', rate(result.examplesPerSecond)],
        ]}
      />
      <div className="hash">
        <span className="note">SHA-256 of the weights</span>
        <code>{sha256}</code>
        <CopyButton text={sha256} what="the SHA-256 of the weights" />
      </div>
      {result.weightsUrl && (
        <Download path={result.weightsUrl} fileName={`${name.replace(/[^\w.-]+/g, '-').replace(/^[-.]+/, '') || 'weights'}.safetensors`} />
      )}
    </Card>
  );
}

function Download({ path, fileName }: { path: string; fileName: string }): ReactNode {
  const { download, onFault } = useApi();
  const [state, setState] = useState<{ readonly busy: boolean; readonly problem?: string }>({ busy: false });
  const start = async (): Promise<void> => {
    setState({ busy: true });
    try {
      saveFile(await download(path), fileName);
      setState({ busy: false });
    } catch (error) {
      const fault = asFault(error);
      if (!onFault(fault)) setState({ busy: false, problem: fault.message });
    }
  };
  return (
    <>
      <button type="button" className="button" disabled={state.busy} onClick={() => void start()}>
        {state.busy ? 'Downloading…' : 'Download weights (safetensors)'}
      </button>
      <p className="problem" role="alert">
        {state.problem}
      </p>
    </>
  );
}
