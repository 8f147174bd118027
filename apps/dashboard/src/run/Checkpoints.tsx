import { useState, type ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { bytes, count, dateAndTime, loss, shortTime } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { Download, asFileName } from './Download.js';
import { ModelForm } from './ModelForm.js';
import type { RunDetails } from './run-details.js';

/** Each can be downloaded as a model, in the form that is chosen above. */
export function Checkpoints({ run }: { run: RunDetails }): ReactNode {
  const [format, setFormat] = useState<string>();
  const { checkpoints, attempt: attempts, exports } = run;
  if (checkpoints.length === 0) return null;
  const found = exports.find((each) => each.format === format) ?? exports[0];
  const form = found && checkpoints.some(isUsable) && (
    <ModelForm exports={exports} chosen={found} label="Form of downloaded checkpoints" className="small-select" onChange={setFormat} />
  );
  return (
    <Card title="Checkpoints" aside={form}>
      <table className="members">
        <thead>
          <tr>
            <th scope="col">Round</th>
            <th scope="col">Written</th>
            <th scope="col">Loss</th>
            <th scope="col">Size</th>
            {form && (
              <th scope="col">
                <span className="visually-hidden">Model</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {checkpoints.map((checkpoint) => (
            <tr key={`${checkpoint.attempt}-${checkpoint.round}`}>
              <th scope="row">
                {count(checkpoint.round)}
                {attempts > 1 && <span className="note">attempt {count(checkpoint.attempt)}</span>}
              </th>
              <td>
                <time dateTime={checkpoint.createdAt} title={dateAndTime(checkpoint.createdAt)}>
                  {shortTime(checkpoint.createdAt)}
                </time>
                <span className="note">{noteOf(checkpoint)}</span>
              </td>
              <td>{loss(checkpoint.loss)}</td>
              <td>{bytes(checkpoint.bytes)}</td>
              {form && (
                <td className="download-cell">{isUsable(checkpoint) && <DownloadOf run={run} round={checkpoint.round} found={found} />}</td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

const isUsable = ({ state }: RunDetails['checkpoints'][number]): boolean => state === 'USABLE';

function DownloadOf({ run, round, found }: { run: RunDetails; round: number; found: RunDetails['exports'][number] }): ReactNode {
  const format = plainText(found.format, 20);
  return (
    <Download
      key={format}
      path={`${found.url}${found.url.includes('?') ? '&' : '?'}round=${round}`}
      fileName={`${asFileName(plainText(run.name, 100)) || 'model'}-${round}-${format}.zip`}
      text="Download"
      label={`Download the model of round ${count(round)}`}
      isSmall
    />
  );
}

/** What it was written for; what is wrong with it, where something is. */
function noteOf({ state, reason }: RunDetails['checkpoints'][number]): string {
  if (state === 'VOID') return 'a restore went back before it';
  if (state === 'INVALID') return 'could not be loaded';
  return plainText(reason, 30);
}
