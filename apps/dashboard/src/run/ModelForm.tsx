/** The forms of a trained model that other programs load, and the choice of one. */
import { useId, type ReactNode } from 'react';
import { plainText } from '../text/plain-text.js';
import type { RunDetails } from './run-details.js';

type Export = RunDetails['exports'][number];

const FORMS: Readonly<Record<string, string>> = {
  tfjs: 'TensorFlow.js (model.json)',
  safetensors: 'safetensors',
  npz: 'NumPy (npz)',
  keras: 'Keras 3 (.keras)',
};

interface Props {
  readonly exports: readonly Export[];
  readonly chosen: Export;
  readonly label: string;
  readonly className?: string;
  readonly onChange: (format: string) => void;
}

export function ModelForm({ exports, chosen, label, className, onChange }: Props): ReactNode {
  const id = useId();
  return (
    <>
      <label className="visually-hidden" htmlFor={id}>
        {label}
      </label>
      <select id={id} className={className} value={chosen.format} onChange={(event) => onChange(event.target.value)}>
        {exports.map(({ format }) => (
          <option key={format} value={format}>
            {FORMS[format] ?? plainText(format, 40)}
          </option>
        ))}
      </select>
    </>
  );
}
