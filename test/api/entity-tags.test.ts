/** What clients read again and again: an answer that has not changed is not sent again. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import { ControlPlane, createRun, until } from './services.js';

let plane: ControlPlane;
beforeAll(async () => {
  plane = await ControlPlane.start();
});
afterAll(() => plane?.stop());

describe('what is read again', () => {
  const READ = `query($id: ID!) { run(id: $id) { name statusReason } }`;
  const graphql = (id: string) => `/graphql?${new URLSearchParams({ query: READ, variables: JSON.stringify({ id }) }).toString()}`;

  it('is answered 304 without a body as long as it is the same, over REST and by GET over GraphQL, and anew when it is not', async () => {
    const polled = await plane.team('pollers');
    const database = plane.api.app.get(Database);
    const id = await createRun(polled, { name: 'polled' });
    // Over, so that nobody but this test changes what is stored of it.
    await polled.post(`/api/v1/runs/${id}/cancel`);
    await until('it to be over', async () => (await polled.get(`/api/v1/runs/${id}`)).body.status === 'CANCELLED');
    for (const path of ['/api/v1/runs', `/api/v1/runs/${id}`, `/api/v1/runs/${id}/events`, graphql(id)]) {
      await database.run.update({ where: { id }, data: { statusReason: 'as before' } });
      await database.runEvent.deleteMany({ where: { runId: id, type: 'marked' } });
      const read = (tag = '""') => polled.get(path).set('apollo-require-preflight', 'true').set('if-none-match', tag);
      const first = await until('rows that rest', async () => {
        const [one, other] = [await read(), await read()];
        return one.headers['etag'] === other.headers['etag'] && other;
      });
      const tag = first.headers['etag'] as string;
      expect([first.status, tag, first.headers['cache-control']], path).toEqual([200, expect.stringMatching(/^W\//), 'private, no-cache']);
      for (const given of [tag, tag.replace('W/', ''), `"another", ${tag}`]) {
        const again = await read(given);
        expect([again.status, again.text, again.headers['etag']], path).toEqual([304, '', tag]);
      }
      await database.run.update({ where: { id }, data: { statusReason: 'something else' } });
      const at = new Date();
      await database.runEvent.create({ data: { runId: id, seq: 1_000_000, type: 'marked', message: '', data: {}, at, attempt: 1 } });
      const changed = await read(tag);
      expect([changed.status, changed.headers['etag'] === tag], path).toEqual([200, false]);
    }
    const posted = await polled.post('/graphql').set('if-none-match', '*').send({ query: '{ viewer { isAdmin } }' });
    expect([posted.status, posted.headers['etag']]).toEqual([200, undefined]);
    expect((await plane.admin.get(`/api/v1/runs/${id}`).set('if-none-match', '*')).status, "another team's").toBe(404);
  });
});
