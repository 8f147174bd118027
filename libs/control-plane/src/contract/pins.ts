/** Checkpoints of a run that others need: runs that are to begin with them, and names of models. The field `pins` of its control hash, as `attempt:round`, separated by commas. */

export interface Pin {
  readonly attempt: number;
  readonly round: number;
}

const MOST = 1_000;

export const pinsText = (pins: readonly Pin[]): string =>
  pins
    .slice(0, MOST)
    .map(({ attempt, round }) => `${attempt}:${round}`)
    .join(',');

/** What is no pin is left out. */
export function pinsOf(text: string | undefined): Pin[] {
  return (text ?? '').split(',').flatMap((part) => {
    const [, attempt, round] = /^(\d{1,9}):(\d{1,15})$/.exec(part) ?? [];
    return attempt === undefined ? [] : [{ attempt: Number(attempt), round: Number(round) }];
  });
}
