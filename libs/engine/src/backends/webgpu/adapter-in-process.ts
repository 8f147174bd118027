/** Whether WebGPU has a GPU here, from outside: a driver that crashes takes its process with it. 0.3 s. */
import type { EngineDevice } from '../../engine.js';
import { answerOf } from '../../availability/one-shot-process.js';

export interface AdapterQuestion {
  /** Folder of the npm package `webgpu`. */
  readonly webgpuPackage: string;
}

/** What the engine webgpu would compute on; type CPU is a software driver. @throws EngineUnavailableError */
export function findAdapterInProcess(question: AdapterQuestion, env: NodeJS.ProcessEnv, deadlineMs: number): Promise<EngineDevice> {
  return answerOf<EngineDevice>(new URL('./adapter-process.js', import.meta.url), question, 'the look for a GPU', env, deadlineMs);
}
