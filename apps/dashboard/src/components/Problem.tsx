import type { ReactNode } from 'react';
import { Link } from '../router.js';

/** A page or a part that cannot be shown, why, and the way out. */
export function Problem({ title, text }: { title: string; text: string }): ReactNode {
  return (
    <section className="card problem-card">
      <h1>{title}</h1>
      <p>{text}</p>
      <p>
        <Link to="/">All runs</Link>
      </p>
    </section>
  );
}
