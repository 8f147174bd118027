import { useId, type ReactNode } from 'react';

interface Props {
  readonly title: string;
  /** Beside the title. */
  readonly aside?: ReactNode;
  readonly className?: string;
  /** For links to it. */
  readonly anchor?: string;
  readonly children: ReactNode;
}

export function Card({ title, aside, className = '', anchor, children }: Props): ReactNode {
  const id = useId();
  return (
    <section id={anchor} className={`card ${className}`} aria-labelledby={id}>
      <div className="card-head">
        <h2 id={id}>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}

/** Names and values in two columns. */
export function Facts({ facts }: { facts: readonly (readonly [string, ReactNode])[] }): ReactNode {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
