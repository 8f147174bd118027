/** The look for a GPU (adapter.ts) as a program. */
import { answerQuestion } from '../../availability/one-shot-process.js';
import { findAdapter } from './adapter.js';
import type { AdapterQuestion } from './adapter-in-process.js';

await answerQuestion(async ({ webgpuPackage }: AdapterQuestion) => (await findAdapter(webgpuPackage)).device);
