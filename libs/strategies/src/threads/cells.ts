/**
 * How the main thread and the compute threads wait for each other: counters in shared memory that only rise.
 *
 * | cell | written by | meaning |
 * |---|---|---|
 * | COMMAND | main | commands so far; a compute thread waits for the next |
 * | KIND | main | what the command is: a message to be read from the port, a step, a prediction, or the end |
 * | MODEL | main | of a step or prediction: which model |
 * | ARRIVED | compute threads | arrivals at the middle of a step or prediction, when all gradients lie in the arena, or all outputs in their buffers |
 * | SUMMED | compute threads | with other processes: arrivals when this process has added its own replicas up |
 * | REDUCED | group thread | meetings: steps and predictions of which the sums or rows of all processes are here, or which were left out |
 * | UPDATED | compute threads | where each process updates a part: arrivals when that of this process is updated |
 * | GATHERED | group thread | such updates of which the parameters of all processes are here |
 * | MET | compute threads | arrivals at meetings of the replicas of a function (meeting.ts) |
 * | DONE | compute threads | commands done, over all threads |
 * | PROGRESS | compute threads | rises whenever work has moved on |
 * | FAILED | compute threads, group thread | of the present step or prediction: whether a replica threw, as the number of the command; a step that was given behind it is left out |
 * | ENDED | compute threads | whether a thread ended |
 * | SETS | main | of the last four commands: in which set of numbers and buffers a step or prediction finds what it needs |
 *
 * The main thread may give one step more before the present one has ended: threads then go from step to step without waiting for it. Both are steps of the
 * same model, so KIND and MODEL hold for both.
 *
 * Counters wrap around at 2³², so two of them are compared by the sign of their difference.
 */
export const [COMMAND, KIND, MODEL, ARRIVED, DONE, PROGRESS, FAILED, ENDED, SUMMED, REDUCED, UPDATED, GATHERED, MET] = [
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
];
const SETS = 13;
const RING = 4;
export const CELLS = SETS + RING;

/** Where a command has its set. */
export const setCell = (command: number): number => SETS + (command & (RING - 1));

/** What FAILED says when it is another process that has failed. */
export const ELSEWHERE = -1;

export const [MESSAGE, STEP, PREDICT, END] = [0, 1, 2, 3];

/** Looks before a compute thread goes to sleep: waking one up takes longer than most waits inside of a step. The main thread sleeps at once, as it would take a core from them. */
const SPINS = 1_000;

const reached = (value: number, target: number): boolean => ((value - target) | 0) >= 0;

/**
 * Waits until a counter has reached its target.
 * @param isOver of the main thread: looked at every `lookMs`, ends the wait
 * @returns false when it was over before
 */
export function waitFor(cells: Int32Array, cell: number, target: number, isOver?: () => boolean, lookMs = 250): boolean {
  for (let i = 0; !isOver && i < SPINS; i++) if (reached(Atomics.load(cells, cell), target)) return true;
  for (;;) {
    const value = Atomics.load(cells, cell);
    if (reached(value, target)) return true;
    if (Atomics.wait(cells, cell, value, isOver ? lookMs : undefined) === 'timed-out' && isOver!()) return false;
  }
}

/** Adds one, and wakes who waits when the target is reached. */
export function arrive(cells: Int32Array, cell: number, target: number): void {
  if (reached(Atomics.add(cells, cell, 1) + 1, target)) Atomics.notify(cells, cell);
}
