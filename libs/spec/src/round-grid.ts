/**
 * Which examples of which epoch the rounds of a run have: the next so many of the epoch, and what is left of it in its last round. Rounds at the beginning
 * of the run may have fewer than the later ones (the sync steps of strategy local-update): an epoch in which they end has rounds of both sizes.
 */
export interface RoundGridOptions {
  /** Examples of the training split. */
  readonly examples: number;
  /** Examples per round. */
  readonly globalBatch: number;
  /** Leave the ragged last round of an epoch out. */
  readonly dropRemainder: boolean;
  /** The first rounds, where they have another number of examples. */
  readonly first?: { readonly rounds: number; readonly globalBatch: number } | undefined;
}

export interface GridRound {
  readonly epoch: number;
  readonly roundInEpoch: number;
  /** First position in the epoch's permutation. */
  readonly first: number;
  /** Examples of the round. */
  readonly count: number;
}

export interface RoundGrid {
  /** Rounds of an epoch that begins after the first rounds; 0 where a round is longer than an epoch, and is left out. */
  readonly roundsPerEpoch: number;
  /** Rounds of an epoch that has first rounds alone; equal to `roundsPerEpoch` where all rounds are alike. */
  readonly firstRoundsPerEpoch: number;
  /** Rounds of so many epochs from the beginning. */
  roundsIn(epochs: number): number;
  /** Epochs of so many rounds from the beginning, with the part of the last one. */
  epochsIn(rounds: number): number;
  /** Examples of so many rounds from the beginning. */
  examplesIn(rounds: number): number;
  round(k: number): GridRound;
}

/** @param options whole numbers; nothing but `roundsPerEpoch` and `firstRoundsPerEpoch` may be asked where one of the two is 0 */
export function roundGrid({ examples, globalBatch: later, dropRemainder, first }: RoundGridOptions): RoundGrid {
  const { rounds: firstRounds, globalBatch: batch } = first ?? { rounds: 0, globalBatch: later };
  const perEpoch = (of: number, size: number): number => (dropRemainder ? Math.floor(of / size) : Math.ceil(of / size));
  const [roundsPerEpoch, firstRoundsPerEpoch] = [perEpoch(examples, later), perEpoch(examples, batch)];
  // The epoch in which the first rounds end, where it has later ones too.
  const wholeEpochs = Math.floor(firstRounds / firstRoundsPerEpoch);
  const begun = firstRounds % firstRoundsPerEpoch;
  const rest = begun > 0 ? perEpoch(examples - begun * batch, later) : 0;
  const laterFrom = { round: firstRounds + rest, epoch: wholeEpochs + (begun > 0 ? 1 : 0) };
  const at = (epoch: number, roundInEpoch: number, from: number, size: number): GridRound => ({
    epoch,
    roundInEpoch,
    first: from,
    count: Math.min(size, examples - from),
  });
  const round = (k: number): GridRound => {
    if (k < firstRounds) return at(Math.floor(k / firstRoundsPerEpoch), k % firstRoundsPerEpoch, (k % firstRoundsPerEpoch) * batch, batch);
    if (k < laterFrom.round) return at(wholeEpochs, k - firstRounds + begun, begun * batch + (k - firstRounds) * later, later);
    const n = k - laterFrom.round;
    return at(laterFrom.epoch + Math.floor(n / roundsPerEpoch), n % roundsPerEpoch, (n % roundsPerEpoch) * later, later);
  };
  const roundsIn = (epochs: number): number => {
    if (epochs <= wholeEpochs) return epochs * firstRoundsPerEpoch;
    return laterFrom.round + (epochs - laterFrom.epoch) * roundsPerEpoch;
  };
  const epochsIn = (rounds: number): number => {
    const { epoch, roundInEpoch } = round(rounds);
    return roundInEpoch === 0 ? epoch : epoch + roundInEpoch / (roundsIn(epoch + 1) - roundsIn(epoch));
  };
  /** Examples that the epochs before are trained on, and where round `rounds` begins in its own. */
  const examplesIn = (rounds: number): number => {
    const { epoch, first: from } = round(rounds);
    if (!dropRemainder) return epoch * examples + from;
    const whole = Math.min(epoch, wholeEpochs) * firstRoundsPerEpoch * batch;
    const mixed = begun > 0 && epoch > wholeEpochs ? begun * batch + rest * later : 0;
    return whole + mixed + Math.max(0, epoch - laterFrom.epoch) * roundsPerEpoch * later + from;
  };
  return { roundsPerEpoch, firstRoundsPerEpoch, roundsIn, epochsIn, examplesIn, round };
}
