/** The trained model in the forms that other programs load: of the result, or of the newest checkpoint of a run that has none. */
import { useState, type ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { count } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { Download, asFileName } from './Download.js';
import { ModelForm } from './ModelForm.js';
import type { RunDetails } from './run-details.js';

export function ModelDownload({ run }: { run: RunDetails }): ReactNode {
  const [chosen, setChosen] = useState<string>();
  const { exports } = run;
  const found = exports.find(({ format }) => format === chosen) ?? exports[0];
  if (!found) return null;
  const format = plainText(found.format, 20);
  return (
    <Card title="Model">
      <div className="model-download">
        <ModelForm exports={exports} chosen={found} label="Form of the model" onChange={setChosen} />
        <Download
          key={format}
          path={found.url}
          fileName={`${asFileName(plainText(run.name, 100)) || 'model'}-${format}.zip`}
          text="Download model"
        />
      </div>
      <p className="note">A zip archive with the weights {sourceOf(run)}, and a card that says how it was trained.</p>
    </Card>
  );
}

function sourceOf({ result, checkpoints }: RunDetails): string {
  if (result) return 'of the result';
  const newest = checkpoints.find(({ state }) => state === 'USABLE');
  return newest ? `of the newest checkpoint, round ${count(newest.round)}` : 'of the newest checkpoint';
}
