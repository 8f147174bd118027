/**
 * A step as the list of kernels that it has called. tf.js finds out anew in each step which kernels to call: it builds the tape, wraps values in tensors, and
 * walks back. For small models that takes as long as the arithmetic, and V8 compiles it for thousands of steps. A step whose calls depend on nothing
 * but the shapes is recorded once. Later steps call the same kernels with the same values at the same addresses.
 *
 *     record   the step runs as always; each kernel call is noted, and all values that it makes are kept
 *     replay   inputs are written where they lay, kernels are called in order, and a loss is computed where it was
 *
 * A kernel gets the memory that it had instead of new memory. The number of that memory is registered anew, because XNNPACK keeps packed copies of operands by that
 * number. A kernel that asks for other memory than before (its memory depends on the data) ends the replay with a ReplayError; the step is
 * computed then. A recording is given up where a step draws random numbers, reads values between kernels, or writes over numbers that came from
 * JavaScript. Whether a kernel writes over an input must not depend on the data: that is looked at when a step is recorded and proven.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';

/** Where a loss is computed during the step, from values of the step, by the caller. */
export interface RecordedLoss {
  readonly outputs: tf.TensorInfo;
  readonly logits: tf.TensorInfo | undefined;
  readonly gradient: tf.TensorInfo;
}

interface KernelCall {
  readonly kernel: tf.KernelFunc;
  readonly inputs: tf.NamedTensorInfoMap;
  readonly attrs: tf.NamedAttrMap | undefined;
  /** What it makes, in order. */
  readonly made: tf.TensorInfo[];
}

type Call = KernelCall | RecordedLoss;

/** Values from JavaScript, and their bytes. */
interface Constant {
  readonly info: tf.TensorInfo;
  readonly bytes: Uint8Array;
}

/** A float32 of four such bytes is NaN. */
const SPOILT = 0xff;

/** The kernels have not asked for what they asked for when they were recorded. */
class ReplayError extends Error {
  override readonly name = 'ReplayError';
}

/** These kernels return their input. A replay need not call them: the address is the same. */
const HANDED_ON: readonly string[] = [tf.Identity, tf.Reshape];

const NUMBERS: readonly tf.DataType[] = ['float32', 'int32', 'bool'];

export interface RecordingOptions {
  /** A step that makes more values is not kept: its kernels take so long that the calls do not matter. */
  readonly mostBytes: number;
}

export class RecordedStep {
  constructor(
    private readonly hooks: Hooks,
    readonly inputs: readonly tf.TensorInfo[],
    private readonly calls: readonly Call[],
    /** By the names of the variables. */
    readonly gradients: Readonly<Record<string, tf.TensorInfo>>,
    private readonly kept: readonly tf.DataId[],
    private readonly constants: readonly Constant[],
  ) {}

  /** Whether the numbers that came from JavaScript are what they were: a kernel that writes over them would go on from there. */
  get constantsAreUnchanged(): boolean {
    return this.constants.every((constant) => this.hooks.isUnchanged(constant));
  }

  /**
   * @param fill writes the inputs
   * @param loss computes a loss, in the order of the recording, and writes its gradient
   * @throws ReplayError, and what kernels throw; what the step has computed is undefined then
   */
  replay(fill: (inputs: readonly tf.TensorInfo[]) => void, loss: (loss: RecordedLoss, index: number) => void): void {
    const { hooks, calls } = this;
    fill(this.inputs);
    for (const input of this.inputs) hooks.renew(input);
    const { backend } = hooks;
    let losses = 0;
    hooks.replaying = true;
    try {
      for (const call of calls) {
        if (!('kernel' in call)) {
          loss(call, losses++);
          hooks.renew(call.gradient);
          continue;
        }
        hooks.made = call.made;
        hooks.next = 0;
        call.kernel({ inputs: call.inputs, attrs: call.attrs!, backend });
        if (hooks.next !== call.made.length) throw new ReplayError(`a kernel has made ${hooks.next} values instead of ${call.made.length}`);
      }
    } finally {
      hooks.replaying = false;
      hooks.made = [];
    }
  }

  /** Overwrites what kernels have made, so that a replay which leaves something out does not give its old values. A layer that keeps a value of the recorded step would lose it: none does. */
  spoil(): void {
    for (const call of this.calls) if ('kernel' in call) for (const made of call.made) this.hooks.bytesOf(made).fill(SPOILT);
  }

  /** Gives all values back. */
  dispose(): void {
    this.hooks.release(this.kept);
  }
}

/** Notes a step while it runs. */
export class StepRecorder {
  private readonly calls: Call[] = [];
  private inputs: readonly tf.TensorInfo[] = [];
  private readonly kept: tf.DataId[] = [];
  private keptBytes = 0;
  private readonly constants: Constant[] = [];
  private current: tf.TensorInfo[] | undefined;
  private why: string | undefined;

  private constructor(
    private readonly hooks: Hooks,
    private readonly mostBytes: number,
  ) {}

  /**
   * Runs a step and records it.
   * @param run computes the step, and gives the gradients by the names of the variables
   * @returns undefined where the step cannot be replayed
   */
  static record<T>(
    backend: BackendWasm,
    { mostBytes }: RecordingOptions,
    run: (recorder: StepRecorder) => { readonly result: T; readonly gradients: Readonly<Record<string, tf.TensorInfo>> },
  ): { readonly result: T; readonly step: RecordedStep | undefined } {
    const hooks = hooksOf(backend);
    const recorder = new StepRecorder(hooks, mostBytes);
    const uncover = recorder.coverKernels();
    hooks.recorder = recorder;
    let ended: { readonly result: T; readonly gradients: Readonly<Record<string, tf.TensorInfo>> } | undefined;
    try {
      ended = run(recorder);
    } finally {
      hooks.recorder = undefined;
      uncover();
      if (!ended || recorder.why !== undefined) hooks.release(recorder.kept);
    }
    const { why, inputs, calls, kept } = recorder;
    if (why !== undefined) return { result: ended.result, step: undefined };
    const gradients = Object.fromEntries(Object.entries(ended.gradients).map(([name, info]) => [name, infoOf(info)]));
    const step = new RecordedStep(
      hooks,
      inputs,
      calls,
      gradients,
      kept,
      recorder.constants.filter(({ info }) => !recorder.isWritten(info)),
    );
    if (step.constantsAreUnchanged) return { result: ended.result, step };
    step.dispose();
    return { result: ended.result, step: undefined };
  }

  /** The inputs of the model, as they were written. */
  noteInputs(inputs: readonly tf.TensorInfo[]): void {
    this.inputs = inputs.map(infoOf);
  }

  /** A loss was computed in JavaScript, now. */
  noteLoss(outputs: tf.TensorInfo, logits: tf.TensorInfo | undefined, gradient: tf.TensorInfo): void {
    this.calls.push({ outputs: infoOf(outputs), logits: logits && infoOf(logits), gradient: infoOf(gradient) });
  }

  /** Inputs and gradients of losses are written in each replay. */
  private isWritten({ dataId }: tf.TensorInfo): boolean {
    return (
      this.inputs.some((input) => input.dataId === dataId) ||
      this.calls.some((call) => 'gradient' in call && call.gradient.dataId === dataId)
    );
  }

  /** The step cannot be replayed. */
  giveUp(why: string): void {
    this.why ??= why;
  }

  /** Values were made: in a kernel, or from numbers of JavaScript, which are the same in each step. */
  made(info: tf.TensorInfo): void {
    if (!NUMBERS.includes(info.dtype)) return this.giveUp('it makes values that are no numbers');
    this.keptBytes += tf.util.sizeFromShape(info.shape) * tf.util.bytesPerElement(info.dtype);
    if (this.keptBytes > this.mostBytes) return this.giveUp('it makes too many values');
    this.hooks.keep(info.dataId);
    this.kept.push(info.dataId);
    if (this.current) this.current.push(infoOf(info));
    else this.constants.push({ info: infoOf(info), bytes: this.hooks.bytesOf(info).slice() });
  }

  get isInKernel(): boolean {
    return this.current !== undefined;
  }

  private coverKernels(): () => void {
    const configs = tf.getKernelsForBackend('wasm').map((config) => ({ config, kernel: config.kernelFunc }));
    for (const { config, kernel } of configs) config.kernelFunc = (given) => this.called(config.kernelName, kernel, given);
    return () => {
      for (const { config, kernel } of configs) config.kernelFunc = kernel;
    };
  }

  private called(name: string, kernel: tf.KernelFunc, given: Parameters<tf.KernelFunc>[0]): ReturnType<tf.KernelFunc> {
    if (this.current) {
      this.giveUp('a kernel calls kernels');
      return kernel(given);
    }
    const made: tf.TensorInfo[] = (this.current = []);
    try {
      const result = kernel(given);
      if (!HANDED_ON.includes(name) || made.length > 0)
        this.calls.push({ kernel, inputs: infosOf(given.inputs), attrs: given.attrs, made });
      return result;
    } finally {
      this.current = undefined;
    }
  }
}

/** Without the tensor, which is disposed of: a recording needs its address alone. */
const infoOf = ({ dataId, shape, dtype }: tf.TensorInfo): tf.TensorInfo => ({ dataId, shape: [...shape], dtype });
const infosOf = (inputs: tf.NamedTensorInfoMap): tf.NamedTensorInfoMap => {
  if (Array.isArray(inputs)) return inputs.map(infoOf) as unknown as tf.NamedTensorInfoMap;
  return Object.fromEntries(
    Object.entries(inputs as Readonly<Record<string, tf.TensorInfo | readonly tf.TensorInfo[] | null | undefined>>).map(([name, given]) => [
      name,
      Array.isArray(given) ? given.map(infoOf) : given && infoOf(given as tf.TensorInfo),
    ]),
  ) as tf.NamedTensorInfoMap;
};

const inWords = ({ dtype, shape }: Pick<tf.TensorInfo, 'dtype'> & { readonly shape: readonly number[] }): string =>
  `${dtype} [${shape.join(', ')}]`;

/** What of tf.js' engine is used and not in its type. */
interface Internals {
  removeDataId(dataId: tf.DataId, backend: unknown): void;
}

/** Stands between the kernels and the memory of a backend, for good: methods that come and go would make V8 take the object for a dictionary. */
class Hooks {
  recorder: StepRecorder | undefined;
  replaying = false;
  /** What the present kernel makes. */
  made: readonly tf.TensorInfo[] = [];
  next = 0;
  /** Values that all recordings keep. */
  kept = 0;
  private isWriting = false;

  constructor(readonly backend: BackendWasm) {
    const { backend: at } = this;
    const [makeOutput, write, move] = [at.makeOutput.bind(at), at.write.bind(at), at.move.bind(at)];
    const [disposeData, incRef, readSync] = [at.disposeData.bind(at), at.incRef.bind(at), at.readSync.bind(at)];
    at.makeOutput = (shape, dtype, memoryOffset, values) => {
      if (this.replaying) return this.handOutAgain(shape, dtype, memoryOffset, values);
      if (memoryOffset !== undefined && memoryOffset !== null) this.recorder?.giveUp('a kernel has memory of its own');
      return makeOutput(shape, dtype, memoryOffset, values);
    };
    at.write = (values, shape, dtype) => {
      if (this.replaying) throw new ReplayError('a kernel writes values by itself');
      this.isWriting = true;
      try {
        const dataId = write(values, shape, dtype);
        this.recorder?.made({ dataId, shape, dtype });
        return dataId;
      } finally {
        this.isWriting = false;
      }
    };
    at.move = (...given) => {
      if (this.replaying) throw new ReplayError('values are moved');
      if (!this.isWriting) this.recorder?.giveUp('values are moved');
      move(...given);
    };
    at.disposeData = (dataId, force) => (this.replaying ? true : disposeData(dataId, force));
    at.incRef = (dataId) => {
      if (!this.replaying) incRef(dataId);
    };
    at.readSync = (dataId, ...range) => {
      if (this.recorder?.isInKernel === false) this.recorder.giveUp('values are read between kernels');
      return readSync(dataId, ...range);
    };
  }

  keep(dataId: tf.DataId): void {
    this.backend.incRef(dataId);
    this.kept++;
  }

  release(kept: readonly tf.DataId[]): void {
    this.kept -= kept.length;
    const engine = tf.engine() as unknown as Internals;
    for (const dataId of kept) if (this.backend.disposeData(dataId)) engine.removeDataId(dataId, this.backend);
  }

  /** The values that the kernel made when it was recorded. */
  private handOutAgain(shape: readonly number[], dtype: tf.DataType, memoryOffset: number | undefined, values: unknown): tf.TensorInfo {
    const made = this.made[this.next++];
    if (!made || made.dtype !== dtype || memoryOffset != null || !tf.util.arraysEqual(made.shape, shape as number[]))
      throw new ReplayError(`a kernel asks for ${inWords({ dtype, shape })}, where it asked for ${made ? inWords(made) : 'nothing more'}`);
    this.renew(made);
    if (values != null) (this.backend.typedArrayFromHeap(made) as Float32Array).set(values as Float32Array);
    return { dataId: made.dataId, shape: [...shape], dtype }; // kernels write another shape to it
  }

  /** The C++ side drops what it has made of the values before. */
  renew({ dataId, shape }: tf.TensorInfo): void {
    const { dataIdMap, wasm } = this.backend;
    const { id, memoryOffset } = dataIdMap.get(dataId);
    wasm.tfjs.disposeData(id);
    wasm.tfjs.registerTensor(id, tf.util.sizeFromShape(shape), memoryOffset);
  }

  bytesOf(info: tf.TensorInfo): Uint8Array {
    const { buffer, byteOffset, byteLength } = this.backend.typedArrayFromHeap(info);
    return new Uint8Array(buffer, byteOffset, byteLength);
  }

  isUnchanged({ info, bytes }: Constant): boolean {
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).equals(this.bytesOf(info));
  }
}

/** Values in a backend that are there for recordings alone, of all engines that it serves. */
export const valuesKept = (backend: object): number => hooks.get(backend)?.kept ?? 0;

const hooks = new WeakMap<object, Hooks>();
function hooksOf(backend: BackendWasm): Hooks {
  let found = hooks.get(backend);
  if (!found) hooks.set(backend, (found = new Hooks(backend)));
  return found;
}
