/** What a page asks for once, and needs: asked for again, after 1, 2, 4 … 15 s, while the api is away or has too much to do. */
import { asFault, type ApiFault } from '../graphql/api-fault.js';
import { pauseUntilNudged } from './follow.js';

const FIRST_DELAY_MS = 1_000;
const MAX_DELAY_MS = 15_000;

/** @param onFault hears, once, of a fault that waiting does not mend. Nothing is called after `signal` was aborted */
export async function askUntilAnswered<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  onAnswer: (answer: T) => void,
  onFault: (fault: ApiFault) => void,
  signal: AbortSignal,
): Promise<void> {
  for (let faults = 0; ; faults++) {
    let answer: T;
    try {
      answer = await ask(signal);
    } catch (error) {
      if (signal.aborted) return;
      const fault = asFault(error);
      if (!fault.isTemporary) return onFault(fault);
      await pauseUntilNudged(Math.max(fault.retryAfterMs ?? 0, Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** faults)), signal);
      if (signal.aborted) return;
      continue;
    }
    if (!signal.aborted) onAnswer(answer);
    return;
  }
}
