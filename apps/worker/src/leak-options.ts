/** What a compute thread gives its LeakGuard. Apart from it, as this loads tf.js, and main threads put leaks into words. */
import { getHeapStatistics } from 'node:v8';
import { collectGarbage, LeakDetector, type LeakLimits } from '@paceline/engine';
import type { Leak, LeakGuardOptions } from './leak-guard.js';

export const leakOptions = (limits: LeakLimits, found: (leak: Leak) => void): LeakGuardOptions => ({
  detector: new LeakDetector(limits),
  limits,
  collect: collectGarbage,
  rssBytes: () => process.memoryUsage.rss(),
  nowMs: () => performance.now(),
  heapBytes: () => {
    const { used_heap_size, external_memory } = getHeapStatistics();
    return used_heap_size + external_memory;
  },
  found,
});
