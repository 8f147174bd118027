/** Which classes were taken for which: the matrix, how well each class is told, and the mistakes that the model was most sure of. */
import { useState, type ReactNode } from 'react';
import { showPixels } from '../datasets/Preview.js';
import { isPicture } from '../datasets/statistics.js';
import { count, share } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { ExampleTable } from './ExampleTable.js';
import { cellTints } from './matrix-tints.js';
import type { ClassOutput } from './prediction-outputs.js';

const LABEL_CHARACTERS = 24;
const CLASSES_AT_FIRST = 20;
/** Classes from which on the matrix has a row of the panel for itself. */
const LARGE_MATRIX = 12;
/** Characters of all names in the head of the matrix together. */
const HEAD_CHARACTERS = 48;
/** Two names that stand side by side under a picture. */
const NAME_CHARACTERS = 5;
const name = (label: string): string => plainText(label, LABEL_CHARACTERS) || '(empty)';

export function ClassPredictions({ output }: { output: ClassOutput }): ReactNode {
  const { labels, matrix, accuracy, wrongCount, count: all } = output;
  return (
    <>
      <p className="predictions-lead">
        <strong>{share(accuracy)}</strong> of {count(all)} predicted right, {count(wrongCount)} wrong
      </p>
      <div className="predictions-tables">
        {matrix ? <Matrix of={output.name} labels={labels} matrix={matrix} /> : <Confusions output={output} />}
        <Scores output={output} />
      </div>
      <Wrong output={output} />
    </>
  );
}

interface MatrixProps {
  readonly of: string;
  readonly labels: readonly string[];
  readonly matrix: readonly (readonly number[])[];
}

/** Rows are true classes. A cell is the darker the larger its part of its row is, so that rare classes are seen as well. */
function Matrix({ of, labels, matrix }: MatrixProps): ReactNode {
  const tints = cellTints(matrix);
  const isLarge = labels.length > LARGE_MATRIX;
  // Names beside each other take more room than there is: they stand upright.
  const isUpright = labels.length * Math.max(...labels.map((label) => name(label).length)) > HEAD_CHARACTERS;
  return (
    <div className={isLarge ? 'whole-row' : undefined}>
      <h3 id="matrix-title">
        Confusion matrix <span className="faint">true classes in rows, predictions in columns</span>
      </h3>
      <div className="wide-table matrix-place" tabIndex={0} role="region" aria-labelledby="matrix-title">
        <table className={isUpright ? 'matrix upright' : 'matrix'}>
          <caption className="visually-hidden">{`How often each class of ${plainText(of, 60)} was taken for which`}</caption>
          <thead>
            <tr>
              <td />
              {labels.map((label, i) => (
                <th key={i} scope="col" title={plainText(label, 100)}>
                  <span>{name(label)}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {matrix.map((row, truth) => (
              <tr key={truth}>
                <th scope="row" title={plainText(labels[truth] ?? '', 100)}>
                  {name(labels[truth] ?? '')}
                </th>
                {row.map((cell, prediction) => (
                  <td
                    key={prediction}
                    className={truth === prediction ? 'hit' : cell > 0 ? 'miss' : 'none'}
                    style={{ ['--tint' as string]: `${tints[truth]![prediction]}%` }}
                    title={`${count(cell)} of ${name(labels[truth] ?? '')} taken for ${name(labels[prediction] ?? '')}`}
                  >
                    {count(cell)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

/** Where a matrix has no room. */
function Confusions({ output: { confusions, classes } }: { output: ClassOutput }): ReactNode {
  return (
    <div>
      <h3>Most frequent mistakes</h3>
      <table className="members">
        <thead>
          <tr>
            <th scope="col">True</th>
            <th scope="col">Predicted</th>
            <th scope="col" className="figure-cell">
              Times
            </th>
          </tr>
        </thead>
        <tbody>
          {confusions.map((each, i) => (
            <tr key={i}>
              <th scope="row">{name(each.truth)}</th>
              <td>{name(each.prediction)}</td>
              <td className="figure-cell">{count(each.count)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="note">{`A matrix of ${count(classes)} classes has no room here.`}</p>
    </div>
  );
}

function Scores({ output: { scores, classes } }: { output: ClassOutput }): ReactNode {
  const [all, setAll] = useState(false);
  const shown = all ? scores : scores.slice(0, CLASSES_AT_FIRST);
  return (
    <div>
      <h3>By class</h3>
      <table className="members scores">
        <thead>
          <tr>
            <th scope="col">Class</th>
            {['Examples', 'Precision', 'Recall', 'F1'].map((title) => (
              <th key={title} scope="col" className="figure-cell">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((score, i) => (
            <tr key={i}>
              <th scope="row" title={plainText(score.label, 100)}>
                {name(score.label)}
              </th>
              <td className="figure-cell">{count(score.count)}</td>
              <td className="figure-cell">{share(score.precision)}</td>
              <td className="figure-cell">{share(score.recall)}</td>
              <td className="figure-cell">{share(score.f1)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length < scores.length && (
        <button type="button" className="button small" onClick={() => setAll(true)}>
          Show all {count(scores.length)}
        </button>
      )}
      {all && scores.length < classes && <p className="note">{`Those with the most examples, of ${count(classes)} classes.`}</p>}
    </div>
  );
}

function Wrong({ output }: { output: ClassOutput }): ReactNode {
  const { wrong, wrongCount, columns } = output;
  if (wrong.length === 0) return <p className="nothing">Every example was predicted right.</p>;
  const title =
    wrong.length < wrongCount ? `The ${wrong.length} mistakes that the model was most sure of` : 'Mistakes, the most confident first';
  const pictures = wrong.filter(({ image }) => isPicture(image));
  const isShort = wrong.every((each) => [each.truth, each.prediction].every((label) => name(label).length <= NAME_CHARACTERS));
  return (
    <div>
      <h3>{title}</h3>
      {pictures.length > 0 ? (
        <ol className={isShort ? 'pictures wrong-pictures' : 'pictures wrong-pictures stacked'}>
          {pictures.map(({ example, image, truth, prediction, probability }, i) => (
            <li key={i}>
              <img src={image!} onLoad={showPixels} alt={`Example ${count(example + 1)}: ${name(truth)}, taken for ${name(prediction)}`} />
              <span className="picture-text" title={`${plainText(truth, 100)}, taken for ${plainText(prediction, 100)}`}>
                <span className="is">
                  <span className="visually-hidden">is </span>
                  {name(truth)}
                </span>{' '}
                <span className="taken">
                  <span aria-hidden="true">→ </span>
                  <span className="visually-hidden">taken for </span>
                  <span className="lost">{name(prediction)}</span>
                </span>
              </span>
              <span className="picture-text faint">{share(probability)}</span>
            </li>
          ))}
        </ol>
      ) : (
        <ExampleTable
          label="Wrong examples"
          heads={['True', 'Predicted', 'Probability']}
          columns={columns}
          rows={wrong.map(({ example, step, truth, prediction, probability, cells }) => ({
            example,
            step,
            figures: [name(truth), name(prediction), share(probability)],
            cells,
          }))}
        />
      )}
    </div>
  );
}
