/** A trial (trial-steps.ts) as a process. */
import { answerQuestion } from './one-shot-process.js';
import { runTrial } from './trial-steps.js';

await answerQuestion(runTrial);
