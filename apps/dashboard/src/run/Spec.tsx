import type { ReactNode } from 'react';
import { Card, Facts } from '../parts/Card.js';
import { CopyButton } from '../parts/CopyButton.js';
import type { RunDetails } from './RunPage.js';
import { specFacts } from './spec-facts.js';

export function Spec({ run }: { run: RunDetails }): ReactNode {
  const json = visibleJson(run.spec);
  return (
    <Card title="Spec" className="spec">
      <Facts facts={specFacts(run.spec)} />
      <details>
        <summary>As JSON</summary>
        <CopyButton text={json} what="the spec as JSON" />
        <pre tabIndex={0} aria-label="Spec as JSON">
          {json}
        </pre>
      </details>
    </Card>
  );
}

/** JSON escapes control characters itself; format characters, which could reorder what is read, are escaped here. */
function visibleJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/\p{Cf}/gu, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
}
