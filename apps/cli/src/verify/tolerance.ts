/** The largest relative difference of losses and weights that passes. */
export const TRAINING_TOLERANCE = 2e-4;
