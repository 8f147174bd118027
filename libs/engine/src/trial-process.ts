/** A trial (trial.ts) as a program. */
import { answerQuestion } from './program.js';
import { runTrial } from './trial.js';

await answerQuestion(runTrial);
