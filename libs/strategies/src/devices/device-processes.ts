/**
 * The processes of a strategy's devices, seen from the main thread: one for each device, with the engine that computes its replicas. They start with the
 * strategy. Each has its channel to this process as its life line: where that ends, however this process has ended, it ends itself.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { prepareForTensorflow } from '@paceline/tensorflow-addon';
import { DeviceError } from '../errors.js';
import type { DeviceInit } from '../threads/protocol.js';
import { threadEntry } from '../threads/thread-entry.js';
import type { Device } from './device-names.js';
import { folderOfDevice } from './device-place.js';
import type { ProcessInit } from './messages.js';

/** One of the processes, for a program. */
export interface DeviceReport {
  /** `gpu:0`. */
  readonly name: string;
  readonly engine: 'tensorflow' | 'wasm';
  /** Of its process. */
  readonly pid: number;
  /** Bytes of parameters and rows that went to it, and of gradients and outputs that came back, so far. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
}

interface Started {
  readonly device: Device;
  readonly child: ChildProcess;
  readonly init: DeviceInit;
  readonly exited: Promise<void>;
}

const SECRET_BYTES = 32;

export class DeviceProcesses {
  private readonly started: Started[];
  /** Of each device: bytes sent, bytes received. */
  private readonly traffic: Float64Array;
  private onEnd: (error: Error) => void = () => undefined;

  constructor(
    devices: readonly Device[],
    private readonly deadlineMs: number,
  ) {
    this.traffic = new Float64Array(new SharedArrayBuffer(devices.length * 2 * 8));
    this.started = devices.map((device, i) => this.start(device, i));
  }

  get reports(): readonly DeviceReport[] {
    return this.started.map(({ device, init }, i) => ({
      name: device.name,
      engine: device.engine.backend,
      pid: init.pid,
      sentBytes: this.traffic[i * 2]!,
      receivedBytes: this.traffic[i * 2 + 1]!,
    }));
  }

  /** For the compute thread that speaks to the process. */
  initOf(index: number): DeviceInit {
    return this.started[index]!.init;
  }

  /** Hears of a process that has ended by itself. */
  watch(onEnd: (error: Error) => void): void {
    this.onEnd = onEnd;
  }

  /** At once: nothing of a process is worth waiting for. */
  end(): void {
    this.onEnd = () => undefined;
    for (const { child, init } of this.started) {
      child.kill('SIGKILL');
      rmSync(init.folder, { recursive: true, force: true });
    }
  }

  async dispose(): Promise<void> {
    this.end();
    for (const { child } of this.started) child.ref();
    await Promise.all(this.started.map(({ exited }) => exited));
  }

  private start(device: Device, index: number): Started {
    const { name, engine, visible } = device;
    const env = engine.backend === 'tensorflow' ? prepareForTensorflow({ ...process.env, CUDA_VISIBLE_DEVICES: visible }) : process.env;
    // What a function of `run` writes is seen where the program writes.
    const options = { env, execArgv: [], stdio: ['ignore', 'inherit', 'inherit', 'ipc'] as ('ignore' | 'inherit' | 'ipc')[] };
    const folder = folderOfDevice();
    const child = fork(fileURLToPath(threadEntry('devices/device-process.js')), [folder], options);
    const common = { name, group: randomUUID(), secret: randomBytes(SECRET_BYTES).toString('hex') };
    child.send({ ...common, engine } satisfies ProcessInit, (error) => error && this.noteEnd(device, child, error.message));
    child.on('error', (error) => this.noteEnd(device, child, error.message));
    const exited = new Promise<void>((resolve) => {
      child.once('exit', (code, signal) => {
        resolve();
        this.noteEnd(device, child, `it ended ${signal ? `by ${signal}` : `with code ${code}`}`);
      });
      child.once('error', () => child.pid === undefined && resolve()); // it has never been there
    });
    child.unref();
    child.channel?.unref();
    const traffic = this.traffic.subarray(index * 2, index * 2 + 2);
    return { device, child, exited, init: { ...common, folder, pid: child.pid ?? 0, deadlineMs: this.deadlineMs, traffic } };
  }

  private noteEnd({ name }: Device, { pid }: ChildProcess, why: string): void {
    this.onEnd(new DeviceError(name, `device ${name} (process ${pid}): ${why}`));
  }
}
