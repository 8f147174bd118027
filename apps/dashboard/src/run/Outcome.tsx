import type { ReactNode } from 'react';
import { Card, Facts } from '../components/Card.js';
import { CopyButton } from '../components/CopyButton.js';
import { count, duration, loss, rate } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { BestAndLast } from './BestAndLast.js';
import { Download, asFileName } from './Download.js';
import { figureOf, inDataUnit, isScaled, mainMeasures, withoutDiagonal, type Measure, type TargetScale } from './measures.js';
import type { RunDetails } from './run-details.js';
import type { RunCourse } from './use-course.js';

interface Props {
  readonly run: RunDetails;
  readonly result: NonNullable<RunDetails['result']>;
  readonly measures: readonly Measure[];
  readonly course: RunCourse | undefined;
  readonly scales: readonly TargetScale[];
}

export function Outcome({ run, result, measures, course, scales }: Props): ReactNode {
  const sha256 = plainText(result.weightsSha256, 64);
  const ofOutputs = withoutDiagonal(measures.filter(({ output }) => output !== undefined));
  const hasMatrix = measures.some(({ metric }) => metric === 'confusionMatrix');
  return (
    <Card title="Result" className="outcome">
      <div className="outcome-figures">
        {mainMeasures(measures).map((measure) => (
          <Figure key={measure.name} measure={measure} given={figureOf(result.values, measure.name)} scales={scales} />
        ))}
        <div>
          <span className="figure">{loss(result.loss)}</span>
          <span className="note">evaluation loss</span>
        </div>
      </div>
      {ofOutputs.length > 0 && (
        <Facts
          facts={ofOutputs.map((measure) => {
            const given = figureOf(result.values, measure.name);
            const inUnit = inDataUnit(measure, given, scales);
            const scaled = measure.format(given);
            return [
              `${measure.label} of ${plainText(measure.output ?? '', 40)}`,
              inUnit === undefined ? scaled : `${inUnit} (${scaled} scaled)`,
            ];
          })}
        />
      )}
      {course && <BestAndLast course={course} result={result} measures={measures} />}
      <Facts
        facts={[
          ['Trained examples', count(result.trainedExamples)],
          ['Training time', duration(result.trainingMs / 1000)],
          ['Examples/s', rate(result.examplesPerSecond)],
          ...(hasMatrix ? [MATRIX] : []),
        ]}
      />
      <div className="hash">
        <span className="note">SHA-256 of the weights</span>
        <code>{sha256}</code>
        <CopyButton text={sha256} what="the SHA-256 of the weights" />
      </div>
      {result.weightsUrl && (
        <Download
          path={result.weightsUrl}
          fileName={`${asFileName(plainText(run.name, 100)) || 'weights'}.safetensors`}
          text="Download weights (safetensors)"
        />
      )}
    </Card>
  );
}

interface FigureProps {
  readonly measure: Measure;
  readonly given: number | null;
  readonly scales: readonly TargetScale[];
}

/** An error is told in the unit of the data, as the predictions tell it; beside it what the charts show, where the target was scaled. */
function Figure({ measure, given, scales }: FigureProps): ReactNode {
  const inUnit = inDataUnit(measure, given, scales);
  const name = `evaluation ${inWords(measure.label)}`;
  const scaled = isScaled(measure, scales);
  if (inUnit !== undefined) {
    const squared = measure.unit === 'squared-error' ? ' squared' : '';
    return (
      <div>
        <span className="figure">{inUnit}</span>
        <span className="note">{name}</span>
        <span className="note">{`${scaled ? `${measure.format(given)} of the scaled target; ` : ''}in the unit of ${plainText(scales[0]?.target ?? '', 40)}${squared}`}</span>
      </div>
    );
  }
  return (
    <div>
      <span className="figure">{measure.format(given)}</span>
      <span className="note">{scaled ? `${name}, of scaled targets` : name}</span>
    </div>
  );
}

const MATRIX: readonly [string, ReactNode] = ['Confusion matrix', <a href="#predictions">under Predictions</a>];

/** In a sentence: not of abbreviations. */
const inWords = (label: string): string => (/^[A-Z][a-z]/.test(label) ? label[0]!.toLowerCase() + label.slice(1) : label);
