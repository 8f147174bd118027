/**
 * The compute threads of a strategy, seen from the main thread. They start once, with the strategy, and are kept until it is disposed; they keep no
 * process alive. Commands are given and awaited synchronously: tf.js calls a train function once per batch and wants its losses at once.
 */
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import { ClusterConfigError, DeviceError, disposed, MemberError, ThreadError } from '../errors.js';
import type { GroupThread } from '../members/group-link.js';
import { CELLS, COMMAND, DONE, END, ENDED, FAILED, KIND, MESSAGE, MODEL, PREDICT, PROGRESS, setCell, STEP, waitFor } from './cells.js';
import { FIRST_SET, type DeviceInit, type FromThread, type ThreadEngine, type ThreadInit, type ToThread } from './protocol.js';
import { isGone, threadEntry } from './thread-entry.js';

/** What joins the compute threads with those of other processes. */
export type PoolGroup = Pick<GroupThread, 'collector' | 'start' | 'failures' | 'lost' | 'isGone' | 'leave'>;

/** Where each compute thread has the process of a device: these processes. */
export interface PoolDevices {
  initOf(thread: number): DeviceInit;
  /** Hears of a process that has ended by itself. */
  watch(onEnd: (error: Error) => void): void;
  end(): void;
  dispose(): Promise<void>;
}

export interface PoolOptions {
  readonly threads: number;
  /** Without progress for so long, threads are taken for stuck. */
  readonly deadlineMs: number;
  /** Adds the sums of other processes up with those of this one. */
  readonly group?: PoolGroup | undefined;
  /** What the threads compute with; wasm where left out. */
  readonly engine?: ThreadEngine | undefined;
  readonly devices?: PoolDevices | undefined;
}

/** tf.js and its wasm module are loaded when a thread starts: longer than a step may take on a busy machine. */
const LEAST_START_MS = 300_000;

const LOOK_MS = 250;

/** The thread of a device says which one is silent: before the main thread gives all of them up. */
const DEVICE_GRACE_MS = 10_000;

/** They say themselves what has ended. */
const OWN_CAUSES = [MemberError, ClusterConfigError, DeviceError];

const LEFT_OUT = 'the step before has failed, and this one was left out';

/** Node 20 has it; the types of ES 2023 have not. */
async function waitAsync(cells: Int32Array, cell: number, value: number, timeoutMs: number): Promise<void> {
  type Wait = (cells: Int32Array, cell: number, value: number, timeoutMs: number) => { readonly value: unknown };
  await (Atomics as unknown as { readonly waitAsync: Wait }).waitAsync(cells, cell, value, timeoutMs).value;
}

export class ThreadPool {
  readonly threads: number;
  private readonly cells = new Int32Array(new SharedArrayBuffer(CELLS * 4));
  private readonly workers: Worker[] = [];
  private readonly ports: MessagePort[] = [];
  private commands = 0;
  /** Steps of one model that were started and not yet waited for: at most two. */
  private readonly running = new Set<() => FromThread[]>();
  /** Steps that failed or were left out, and whose result has not been asked for yet, with their model. */
  private readonly untold = new Map<() => FromThread[], number>();
  /** The model whose steps they are. */
  private runs = -1;
  private state: 'open' | 'broken' | 'disposed' = 'open';
  private cause: Error | undefined;

  private readonly deadlineMs: number;

  constructor(private readonly options: PoolOptions) {
    const { engine, devices } = options;
    this.deadlineMs = options.deadlineMs + (devices ? DEVICE_GRACE_MS : 0);
    this.threads = options.threads;
    const entry = threadEntry('threads/compute-thread.js');
    for (let index = 0; index < options.threads; index++) {
      const { port1, port2 } = new MessageChannel();
      const collect = options.group?.collector();
      const cells = this.cells.buffer as SharedArrayBuffer;
      const init: ThreadInit = { index, threads: options.threads, cells, port: port2, collect, engine, device: devices?.initOf(index) };
      const worker = new Worker(entry, { workerData: init, transferList: collect ? [port2, collect] : [port2], execArgv: [] });
      worker.unref();
      port1.unref();
      worker.on('error', (error) => this.noteEnd(error));
      worker.on('exit', () => this.noteEnd(undefined));
      this.workers.push(worker);
      this.ports.push(port1);
    }
    devices?.watch((error) => this.state === 'open' && this.break(error));
    options.group?.start(this.cells.buffer as SharedArrayBuffer, (error) => this.noteEnd(error));
  }

  /** The same message to some threads, and their answers. Those that are not named answer nothing. */
  ask(message: ToThread, threads = this.threads): FromThread[] {
    this.settle();
    for (const worker of this.workers.slice(0, threads)) worker.postMessage(message);
    this.command(MESSAGE, Math.max(LEAST_START_MS, this.deadlineMs));
    return this.answers();
  }

  /** A message to each thread that starts what may take as long as a step, and their answers. */
  call(messageOf: (thread: number) => ToThread): FromThread[] {
    this.settle();
    for (const [thread, worker] of this.workers.entries()) worker.postMessage(messageOf(thread));
    this.command(MESSAGE, this.deadlineMs);
    return [...this.answers(), ...this.failuresElsewhere()];
  }

  /** What replicas of other processes failed with. @throws when the group is lost */
  private failuresElsewhere(): FromThread[] {
    const failures = this.options.group?.failures() ?? [];
    const lost = this.options.group?.lost;
    if (lost) this.break(lost);
    this.check();
    return failures;
  }

  /** One step or prediction of a model; what replicas failed with. */
  compute(kind: typeof STEP | typeof PREDICT, model: number, set = FIRST_SET): FromThread[] {
    return this.begin(kind, model, set)();
  }

  /**
   * Starts a step or prediction. One step of the same model may still run: the threads go on with this one when it has ended well, and leave it out
   * when it has failed. Whatever else the threads are given waits for both.
   * @param set which numbers and buffers it uses
   * @returns waits for its end: what replicas failed with, or that the step was left out
   * @throws ThreadError for a step of a model whose step before has failed, as long as nobody has asked what came of that one
   */
  begin(kind: typeof STEP | typeof PREDICT, model: number, set: number): () => FromThread[] {
    const hasFailed = Atomics.load(this.cells, FAILED) !== 0;
    if (this.running.size > 1 || kind !== STEP || this.runs !== model || hasFailed) this.settle();
    else this.check();
    if (kind === STEP && [...this.untold.values()].includes(model)) throw new ThreadError(LEFT_OUT);
    this.runs = model;
    if (this.running.size === 0) Atomics.store(this.cells, FAILED, 0);
    Atomics.store(this.cells, MODEL, model);
    this.start(kind, set);
    const command = this.commands;
    let failures: FromThread[] | undefined;
    const settled = (): FromThread[] => {
      if (failures) return failures;
      for (const earlier of this.running) {
        if (earlier === settled) break;
        earlier(); // what is said of failures is said of the first one
      }
      this.finish(command, this.deadlineMs);
      this.running.delete(settled);
      const failed = Atomics.load(this.cells, FAILED);
      failures = failed !== 0 && ((failed - command) | 0) <= 0 ? [...this.answers(), ...this.failuresElsewhere()] : [];
      if (failures.length === 0 && failed === ((command - 1) | 0)) failures.push({ kind: 'failed', message: LEFT_OUT });
      if (failures.length === 0 && failed === command)
        failures.push({ kind: 'failed', message: 'a compute thread failed and did not say why' });
      if (failures.length > 0) this.untold.set(settled, model);
      return failures;
    };
    this.running.add(settled);
    return () => {
      const told = settled();
      this.untold.delete(settled);
      return told;
    };
  }

  /** Waits for the steps that run. Whoever has started them learns what came of them. */
  settle(): void {
    this.check();
    for (const end of this.running) end();
  }

  /** As compute, for a thread that must not stand still meanwhile: that of a process which serves a coordinator. */
  async computeLater(kind: typeof STEP | typeof PREDICT, model: number): Promise<FromThread[]> {
    this.settle();
    Atomics.store(this.cells, FAILED, 0);
    Atomics.store(this.cells, MODEL, model);
    const startMs = performance.now();
    this.start(kind);
    await this.doneLater(() => {
      if (performance.now() - startMs > this.options.deadlineMs)
        this.fail(new ThreadError(`a step took longer than ${this.options.deadlineMs} ms`));
    });
    return Atomics.load(this.cells, FAILED) === 0 ? [] : this.answers();
  }

  /** As call, for such a thread. It has no deadline: whoever asks this process has one. */
  async callLater(messageOf: (thread: number) => ToThread): Promise<FromThread[]> {
    this.settle();
    for (const [thread, worker] of this.workers.entries()) worker.postMessage(messageOf(thread));
    this.start(MESSAGE);
    await this.doneLater(() => undefined);
    return this.answers();
  }

  /** @param look from time to time */
  private async doneLater(look: () => void): Promise<void> {
    const target = Math.imul(this.commands, this.threads);
    const isDone = (): boolean => ((Atomics.load(this.cells, DONE) - target) | 0) >= 0;
    for (let value = Atomics.load(this.cells, DONE); !isDone(); value = Atomics.load(this.cells, DONE)) {
      await waitAsync(this.cells, DONE, value, LOOK_MS);
      this.check();
      look();
    }
  }

  /** Neither disposed nor broken. */
  get isOpen(): boolean {
    return this.state === 'open';
  }

  /** @throws the error, now and whenever the pool is asked again */
  fail(error: Error): never {
    if (this.state === 'open') this.break(error);
    this.check();
    throw error;
  }

  async dispose(): Promise<void> {
    if (this.state === 'disposed') return;
    this.endQuietly();
    this.state = 'disposed';
    this.start(END);
    for (const port of this.ports) port.close();
    await Promise.all([...this.workers.map((worker) => worker.terminate()), this.options.devices?.dispose()]);
  }

  /** A step that still runs when the pool is disposed has nobody who asks what came of it. */
  private endQuietly(): void {
    try {
      if (this.state === 'open') this.settle();
    } catch (error) {
      this.cause ??= error as Error; // of a pool that is broken: its threads have been ended
    }
  }

  private start(kind: number, set = FIRST_SET): void {
    this.commands = (this.commands + 1) | 0;
    Atomics.store(this.cells, setCell(this.commands), set);
    Atomics.store(this.cells, KIND, kind);
    Atomics.store(this.cells, COMMAND, this.commands);
    Atomics.notify(this.cells, COMMAND);
  }

  private command(kind: number, deadlineMs: number): void {
    this.start(kind);
    this.finish(this.commands, deadlineMs);
  }

  private finish(command: number, deadlineMs: number): void {
    let [seen, at] = [Atomics.load(this.cells, PROGRESS), performance.now()];
    const isOver = (): boolean => {
      if (Atomics.load(this.cells, ENDED) === 1 || this.workers.some(isGone) || this.options.group?.isGone) return true;
      const progress = Atomics.load(this.cells, PROGRESS);
      if (progress !== seen) [seen, at] = [progress, performance.now()];
      return performance.now() - at > deadlineMs;
    };
    const isDone = waitFor(this.cells, DONE, Math.imul(command, this.threads), isOver);
    const gone = this.workers.some(isGone) || this.options.group?.isGone; // asked after each command: the answer is kept from a thread that lives
    if (isDone) return;
    const hasEnded = gone || Atomics.load(this.cells, ENDED) === 1;
    const said = this.answers().flatMap((answer) => (answer.kind === 'failed' ? [answer.message] : []));
    this.break(
      new ThreadError(
        hasEnded
          ? `a compute thread ended: ${said[0] ?? 'it was ended from outside, or its memory was full'}`
          : `no compute thread made progress for ${deadlineMs} ms: set deadlineMs where a step may take longer`,
      ),
    );
    this.check();
  }

  /** @throws DeviceError where one of them says that the process of its device is gone */
  private answers(): FromThread[] {
    const answers: FromThread[] = [];
    for (const port of this.ports)
      for (let next = receiveMessageOnPort(port); next; next = receiveMessageOnPort(port)) answers.push(next.message as FromThread);
    const [gone] = answers.flatMap((answer) => (answer.kind === 'failed' && answer.device !== undefined ? [answer] : []));
    if (gone) this.fail(new DeviceError(gone.device!, gone.message));
    return answers;
  }

  private check(): void {
    if (this.state === 'disposed') throw disposed();
    const { cause } = this;
    if (this.state === 'broken' && cause && OWN_CAUSES.some((own) => cause instanceof own)) throw cause;
    if (this.state === 'broken') throw new ThreadError(cause!.message, { cause });
  }

  private noteEnd(error: Error | undefined): void {
    if (this.state === 'open') this.break(new ThreadError(`a compute thread ended${error ? `: ${error.message}` : ''}`, { cause: error }));
  }

  private break(cause: Error): void {
    this.state = 'broken';
    this.cause = cause;
    this.options.group?.leave(cause.message);
    this.options.devices?.end();
    for (const worker of this.workers) void worker.terminate();
  }
}
