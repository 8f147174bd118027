/** The devices of a strategy, by the names of tf.distribute: `gpu:0`, `cpu:1`. */
import { nvidiaDevices, tensorflowEngines, type TensorflowEngine } from '@paceline/tensorflow-addon';
import { ArgumentError, EngineError } from '../errors.js';
import type { MirroredOptions } from '../strategy-options.js';
import type { ThreadEngine } from '../threads/protocol.js';

/** What a replica's process computes with. */
export interface Device {
  /** `gpu:0`. */
  readonly name: string;
  readonly engine: ThreadEngine;
  /** What the process finds in CUDA_VISIBLE_DEVICES: its GPU; empty for none. */
  readonly visible: string;
}

/** What is here. */
export interface DevicesHere {
  /** The GPUs, as CUDA_VISIBLE_DEVICES names them. */
  readonly gpus: () => readonly string[];
  /** The preferred one first. */
  readonly tensorflow: () => readonly TensorflowEngine[];
  readonly cores: number;
}

export const devicesOf = (cores: number): DevicesHere => ({ gpus: () => nvidiaDevices(), tensorflow: () => tensorflowEngines(), cores });

type Engine = NonNullable<MirroredOptions['engine']>;
const ENGINES: readonly unknown[] = ['auto', 'wasm', 'tensorflow'] satisfies Engine[];
const INSTALL = 'paceline engine install tensorflow';

/** @throws ArgumentError */
function parsed(name: string, given: unknown): { readonly kind: 'cpu' | 'gpu'; readonly index: number } {
  const found = typeof given === 'string' ? /^\/?(?:device:)?(cpu|gpu):(\d{1,3})$/i.exec(given) : null;
  if (!found) throw new ArgumentError(`${name}: devices are named "gpu:0", "gpu:1" or "cpu:0", and not ${JSON.stringify(given)}`);
  return { kind: found[1]!.toLowerCase() as 'cpu' | 'gpu', index: Number(found[2]) };
}

/**
 * Which devices the options ask for; undefined where replicas are compute threads.
 * @throws ArgumentError for devices that have no meaning or are not here, EngineError where TensorFlow is not installed
 */
export function chosenDevices(name: string, options: MirroredOptions, here: DevicesHere): readonly Device[] | undefined {
  const { engine = 'auto', devices } = options;
  if (!ENGINES.includes(engine)) throw new ArgumentError(`${name}: engine must be auto, wasm or tensorflow, not ${String(engine)}`);
  const asked = devices ?? byDefault(engine, options, here);
  if (asked === undefined) return undefined;
  if (!Array.isArray(asked) || asked.length === 0)
    throw new ArgumentError(`${name}: devices must be a list of names, such as ["gpu:0", "gpu:1"]`);
  if (options.threads !== undefined)
    throw new ArgumentError(`${name}: with processes (devices, or the engine tensorflow) each device has one: leave threads out`);
  const found = asked.map((given) => parsed(name, given));
  const names = found.map(({ kind, index }) => `${kind}:${index}`);
  const twice = names.find((each, i) => names.indexOf(each) !== i);
  if (twice) throw new ArgumentError(`${name}: devices names ${twice} twice: each device has one process`);
  const hasGpus = found.some(({ kind }) => kind === 'gpu');
  if (hasGpus && engine === 'wasm') throw new ArgumentError(`${name}: the engine wasm computes on no GPU: name devices such as "cpu:0"`);
  const tensorflow = hasGpus || engine === 'tensorflow' ? tensorflowFor(name, hasGpus, here) : undefined;
  const gpus = hasGpus ? here.gpus() : [];
  return found.map(({ kind, index }, i): Device => {
    if (kind === 'gpu' && index >= gpus.length)
      throw new ArgumentError(
        `${name}: there is no ${names[i]}: ${gpus.length} GPUs are here (NVIDIA devices in /dev, of which CUDA_VISIBLE_DEVICES may name some)`,
      );
    const chosen: ThreadEngine = tensorflow
      ? { backend: 'tensorflow', tensorflowPackage: tensorflow.packageDir, isOnGpu: kind === 'gpu' }
      : { backend: 'wasm', isOnGpu: false };
    return { name: names[i]!, engine: chosen, visible: kind === 'gpu' ? gpus[index]! : '' };
  });
}

/**
 * Every GPU that TensorFlow can use; without one the engine tensorflow has a process for each core. No device is without a replica. A TensorFlow of the project is
 * used only where it is asked for: the program computes with it itself, and then holds the memory of the GPUs.
 */
function byDefault(engine: Engine, { threads, replicas }: MirroredOptions, here: DevicesHere): readonly string[] | undefined {
  if (engine === 'wasm' || (engine === 'auto' && threads !== undefined)) return undefined;
  const gpus = here.gpus();
  const canUseGpus =
    gpus.length > 0 &&
    here.tensorflow().some(({ variant, source }) => variant === 'cuda' && (engine === 'tensorflow' || source === 'installed'));
  if (!canUseGpus && engine !== 'tensorflow') return undefined;
  const most = canUseGpus ? gpus.length : here.cores;
  const count = typeof replicas === 'number' && replicas >= 1 ? Math.min(replicas, most) : most;
  return Array.from({ length: count }, (_, i) => `${canUseGpus ? 'gpu' : 'cpu'}:${i}`);
}

function tensorflowFor(name: string, needsGpu: boolean, here: DevicesHere): TensorflowEngine {
  const engines = here.tensorflow();
  const found = needsGpu ? engines.find(({ variant }) => variant === 'cuda') : engines[0];
  if (found) return found;
  throw new EngineError(
    needsGpu
      ? `${name}: no TensorFlow with CUDA is installed here: run \`${INSTALL} --cuda\`, or install @tensorflow/tfjs-node-gpu in this project`
      : `${name}: TensorFlow is not installed here: run \`${INSTALL}\`, or leave engine out`,
  );
}
