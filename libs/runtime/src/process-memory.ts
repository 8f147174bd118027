import { totalmem } from 'node:os';

/** Bytes of memory that this process may use at most: the machine's, or those of its control group (a container's limit). */
export function usableMemoryBytes(): number {
  const constrained = process.constrainedMemory(); // 0 without a limit; some kernels answer with a number beyond every machine
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
}
