/** Stock tf.js in a process of its own, for tests: asked in lines, answered in lines. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export interface StockAnswer {
  readonly outputs?: readonly { readonly shape: number[]; readonly values: number[] }[];
  readonly error?: string;
}

export class StockTfjs {
  readonly folder = mkdtempSync(join(tmpdir(), 'paceline-stock-'));
  private readonly child = spawn(process.execPath, [join(import.meta.dirname, 'stock-tfjs.fixture.mjs')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  private readonly lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  private asked = 0;

  async ask(model: string, inputs: readonly { shape: readonly number[]; values: Float32Array }[]): Promise<StockAnswer> {
    const written = inputs.map(({ shape, values }) => {
      const file = join(this.folder, `input-${this.asked++}.f32`);
      writeFileSync(file, values);
      return { shape, file };
    });
    this.child.stdin.write(`${JSON.stringify({ folder: model, inputs: written })}\n`);
    const { value, done } = await this.lines.next();
    if (done) throw new Error('stock tf.js has ended');
    return JSON.parse(value) as StockAnswer;
  }

  async stop(): Promise<void> {
    this.child.stdin.end();
    await new Promise((resolve) => this.child.once('close', resolve));
    rmSync(this.folder, { recursive: true, force: true });
  }
}
