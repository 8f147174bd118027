/** Whether predictions are there: for the types of GraphQL and for the OpenAPI document. */
export const PREDICTIONS_STATES = { COMPUTING: 'COMPUTING', READY: 'READY', UNAVAILABLE: 'UNAVAILABLE' } as const;
export type PredictionsState = keyof typeof PREDICTIONS_STATES;
