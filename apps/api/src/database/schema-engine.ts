/**
 * Prisma's schema engine as WebAssembly. The `migrate` command of the Prisma CLI wants a native binary that it downloads; this is the
 * same engine, bundled by the CLI itself and installed by npm, so migrations need no network (docs/decisions has the choice).
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { bindMigrationAwareSqlAdapterFactory } from '@prisma/driver-adapter-utils';
import type { PrismaPg } from '@prisma/adapter-pg';
import type { SchemaEngine as Engine } from '@prisma/schema-engine-wasm';

type Exports = Record<string, unknown>;
/** The part of the WebAssembly API used here; its types come with the DOM library, which a server does not load. */
const { WebAssembly } = globalThis as unknown as {
  WebAssembly: { instantiate(bytes: Uint8Array, imports: Record<string, unknown>): Promise<{ instance: { exports: Exports } }> };
};

interface EngineGlue {
  __wbg_set_wasm(exports: Exports): void;
  SchemaEngine: { 'new'(options: { datamodels: [string, string][] }, log: (line: string) => void, factory: unknown): Promise<Engine> };
}

let glue: Promise<EngineGlue> | undefined;

/** The package leaves instantiating to bundlers; Node 20 has no import of .wasm files. */
async function instantiate(): Promise<EngineGlue> {
  const require = createRequire(import.meta.url);
  const folder = dirname(require.resolve('@prisma/schema-engine-wasm/schema_engine_bg'));
  const bindings = (await import('@prisma/schema-engine-wasm/schema_engine_bg')) as unknown as EngineGlue;
  const bytes = readFileSync(join(folder, 'schema_engine_bg.wasm'));
  const { instance } = await WebAssembly.instantiate(bytes, { './schema_engine_bg.js': bindings });
  bindings.__wbg_set_wasm(instance.exports);
  // Where the engine leaves the text of a panic; without it a panic is a TypeError that says nothing.
  (globalThis as Record<string, unknown>)['PRISMA_WASM_PANIC_REGISTRY'] ??= {
    set_message(message: string): never {
      throw new Error(`schema engine: ${message}`);
    },
  };
  (instance.exports['__wbindgen_start'] as () => void)();
  return bindings;
}

/** @param datamodels [file name, text] of the Prisma schema: at least one, or the engine panics */
export async function createSchemaEngine(adapter: PrismaPg, datamodels: [string, string][]): Promise<Engine> {
  glue ??= instantiate();
  const { SchemaEngine } = await glue;
  return SchemaEngine.new({ datamodels }, () => undefined, bindMigrationAwareSqlAdapterFactory(adapter));
}

export const NO_FILTERS = { externalTables: [], externalEnums: [] };
