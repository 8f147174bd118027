/** An export in a page: served as files, loaded by stock tf.js in a browser, and it computes what the model computes here. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportModel, openModelFolder, unpack, zip } from '@paceline/models';
import { build } from 'vite';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { trained } from '../../libs/models/src/trained-model.fixture.js';
import { startBrowser, type TestBrowser } from './chromium.js';

const ENTRY = `
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import { loadLayersModel } from '@tensorflow/tfjs-layers';
globalThis.answer = async (values, shape) => {
  await tf.setBackend('cpu');
  const model = await loadLayersModel('model/model.json');
  return [...model.predict(tf.tensor(values, shape)).dataSync()];
};
`;

let folder: string;
let browser: TestBrowser;
let server: Server;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'paceline-page-'));
  writeFileSync(join(folder, 'entry.js'), ENTRY);
  await unpack(zip(exportModel(await trained('cnn'), 'tfjs')), join(folder, 'model'), false);
  await build({
    root: folder,
    configFile: false,
    logLevel: 'error',
    resolve: {
      alias: [{ find: /^@tensorflow\/(?<name>.*)$/, replacement: join(import.meta.dirname, '../../node_modules/@tensorflow/$1') }],
    },
    build: { outDir: 'dist', minify: false, lib: { entry: 'entry.js', formats: ['es'], fileName: () => 'page.js' } },
  });
  const types: Readonly<Record<string, string>> = { js: 'text/javascript', json: 'application/json', html: 'text/html' };
  server = createServer((request, response) => {
    const path = request.url === '/' ? 'index.html' : request.url!.slice(1);
    response.setHeader('content-type', types[path.split('.').at(-1)!] ?? 'application/octet-stream');
    if (path === 'index.html') return void response.end('<!doctype html><script type="module" src="page.js"></script>');
    response.end(readFileSync(join(folder, path === 'page.js' ? 'dist/page.js' : path)));
  }).listen(0, '127.0.0.1');
  browser = await startBrowser();
});
afterAll(async () => {
  await browser?.close();
  server?.close();
  rmSync(folder, { recursive: true, force: true });
});

it('is loaded by tf.loadLayersModel in Chromium and answers with the same numbers', async () => {
  const context = await browser.context();
  const page = await context.newPage();
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  await page.waitForFunction('typeof answer === "function"');
  const pixels = Array.from({ length: 2 * 784 }, (_, i) => ((i * 37) % 256) / 255);
  const answered = await page.evaluate<number[]>(`answer(${JSON.stringify(pixels)}, [2, 28, 28, 1])`);
  const { predictor } = await openModelFolder(join(folder, 'model'));
  const expected = [...predictor.predict([Float32Array.from(pixels)], 2)[0]!];
  predictor.dispose();
  expect(answered).toHaveLength(20);
  const scale = Math.max(...expected.map(Math.abs));
  answered.forEach((value, i) => expect(Math.abs(value - expected[i]!)).toBeLessThan(1e-5 * scale));
  await context.close();
});
