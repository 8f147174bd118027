import type { ReactNode } from 'react';
import { Card, Facts } from '../components/Card.js';
import { CopyButton } from '../components/CopyButton.js';
import { parseReference, shortVersion } from '../datasets/versions.js';
import { Link, datasetPath, runPath } from '../router.js';
import type { RunDetails } from './run-details.js';
import { WEIGHTS_LABEL, setFields, specFacts, type SpecFact } from './spec-facts.js';
import { toYaml, visibleJson } from './yaml.js';

/** What was set for the run comes first; what is so by default is a list below. */
export function Spec({ run }: { run: RunDetails }): ReactNode {
  const facts = specFacts(run.spec);
  const set = facts.filter(({ isSet }) => isSet);
  const usual = facts.filter(({ isSet }) => !isSet);
  return (
    <Card title="Spec" className="spec" aside={<CopyButton text={toYaml(setFields(run.spec))} what="as YAML" label="Copy as YAML" />}>
      {set.length > 0 ? (
        <Facts facts={set.map((fact) => [fact.label, linked(fact, run.spec)])} />
      ) : (
        <p className="nothing">All fields have their defaults.</p>
      )}
      {usual.length > 0 && (
        <details open={set.length < 3}>
          <summary>{usual.length} by default</summary>
          <Facts facts={usual.map((fact) => [fact.label, linked(fact, run.spec)])} />
        </details>
      )}
      <Json value={run.spec} />
    </Card>
  );
}

/** Datasets and runs that the spec names have pages of their own. */
function linked({ label, value }: SpecFact, spec: unknown): ReactNode {
  const { dataset, weights } = spec as { readonly dataset?: unknown; readonly weights?: { readonly run?: unknown } };
  const reference = label === 'Dataset' ? parseReference(dataset) : undefined;
  if (reference) return <Link to={datasetPath(reference.name, reference.version && shortVersion(reference.version))}>{value}</Link>;
  if (label === WEIGHTS_LABEL && typeof weights?.run === 'string') return <Link to={runPath(weights.run)}>{value}</Link>;
  return value;
}

function Json({ value }: { value: unknown }): ReactNode {
  const json = visibleJson(value);
  return (
    <details>
      <summary>As JSON, with all defaults</summary>
      <CopyButton text={json} what="the spec as JSON" />
      <pre tabIndex={0} aria-label="Spec as JSON">
        {json}
      </pre>
    </details>
  );
}
