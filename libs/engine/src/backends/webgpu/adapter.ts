/**
 * Finds a GPU by Dawn, which the npm package `webgpu` brings to Node. Dawn asks the drivers of the machine: Vulkan on Linux (whose loader reads
 * VK_ICD_FILENAMES and the like from the environment that the process started with), Metal on macOS, D3D12 on Windows.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { EngineDevice } from '../../engine.js';
import { EngineUnavailableError } from '../../errors/engine-unavailable.js';

/** What the package exports. */
interface DawnModule {
  /** @param flags of Dawn, `name=value` */
  create(flags: string[]): GPU;
  /** GPUBuffer, GPUBufferUsage and so on, which browsers have as globals. */
  readonly globals: object;
}

export interface FoundAdapter {
  /** To be held as long as the adapter is used. */
  readonly gpu: GPU;
  readonly adapter: GPUAdapter;
  readonly globals: object;
  readonly device: EngineDevice;
  /** Version of the package. */
  readonly dawn: string;
}

/** As WebGPU has it today; the types that tf.js brings are older. */
interface AdapterInfo {
  readonly vendor: string;
  readonly architecture: string;
  readonly device: string;
  readonly description: string;
  readonly isFallbackAdapter: boolean;
}

/** Dawn's own mark for software is not set by every driver. */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|basic render|warp/i;

/**
 * The adapter that tf.js would take: the fast one where there are two.
 * @param webgpuPackage folder of the npm package `webgpu`
 * @throws EngineUnavailableError that says what is missing
 */
export async function findAdapter(webgpuPackage: string | undefined): Promise<FoundAdapter> {
  if (webgpuPackage === undefined)
    throw new EngineUnavailableError(
      'WebGPU is not installed here: run `npm install webgpu` in the folder of your project, or take `engine: wasm`.',
    );
  const { module, version } = await loadDawn(webgpuPackage);
  const gpu = module.create([]);
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter)
    throw new EngineUnavailableError(
      'Dawn (the npm package webgpu) found no GPU adapter: it needs a driver for Vulkan (Linux), Metal (macOS) or D3D12 (Windows). Take `engine: wasm`.',
    );
  return { gpu, adapter, globals: module.globals, device: deviceOf(adapter), dawn: version };
}

async function loadDawn(folder: string): Promise<{ module: DawnModule; version: string }> {
  const platform = `${process.platform}-${process.platform === 'darwin' ? 'universal' : process.arch}`;
  if (!existsSync(join(folder, 'dist', platform, 'dawn.node')))
    throw new EngineUnavailableError(`The npm package webgpu in ${folder} has no binary for ${platform}: take \`engine: wasm\`.`);
  const { version, main } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string; main: string };
  try {
    return { module: (await import(pathToFileURL(join(folder, main)).href)) as DawnModule, version };
  } catch (cause) {
    throw new EngineUnavailableError(`The npm package webgpu ${version} cannot be loaded here: ${(cause as Error).message.slice(0, 300)}`, {
      cause,
    });
  }
}

function deviceOf(adapter: GPUAdapter): EngineDevice {
  const { info } = adapter as unknown as { readonly info: AdapterInfo };
  const name = adapterName(info);
  const isSoftware = info.isFallbackAdapter || SOFTWARE.test(name);
  return { name, type: isSoftware ? 'CPU' : 'GPU', memoryBytes: 0 };
}

/** Vendor, architecture, device and the driver's own words, as far as they are told and each once; at most 120 characters. */
export function adapterName({ vendor, architecture, device, description }: AdapterInfo): string {
  const parts = [vendor, architecture, device, description].map((part) => part.replace(/[;\s]+/g, ' ').trim());
  const told = parts.filter(
    (part, i) => part !== '' && !parts.some((other, j) => j !== i && other.includes(part) && (other !== part || j < i)),
  );
  return told.join(' ').slice(0, 120) || 'unnamed adapter';
}
