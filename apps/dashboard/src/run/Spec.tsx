import type { ReactNode } from 'react';
import { Card, Facts } from '../parts/Card.js';
import { CopyButton } from '../parts/CopyButton.js';
import type { RunDetails } from './RunPage.js';
import { setFields, specFacts } from './spec-facts.js';
import { toYaml } from './yaml.js';

/** What was set for the run comes first; what is so by default is a list below. */
export function Spec({ run }: { run: RunDetails }): ReactNode {
  const facts = specFacts(run.spec);
  const set = facts.filter(({ isSet }) => isSet);
  const usual = facts.filter(({ isSet }) => !isSet);
  return (
    <Card title="Spec" className="spec" aside={<CopyButton text={toYaml(setFields(run.spec))} what="as YAML" label="Copy as YAML" />}>
      {set.length > 0 ? (
        <Facts facts={set.map(({ label, value }) => [label, value])} />
      ) : (
        <p className="nothing">Everything is as by default.</p>
      )}
      {usual.length > 0 && (
        <details open={set.length < 3}>
          <summary>{usual.length} by default</summary>
          <Facts facts={usual.map(({ label, value }) => [label, value])} />
        </details>
      )}
      <Json value={run.spec} />
    </Card>
  );
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

/** JSON escapes control characters itself; format characters, which could reorder what is read, are escaped here. */
function visibleJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/\p{Cf}/gu, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
}
