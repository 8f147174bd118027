/** What runs with codecs are tried on: the codecs that keep nothing, and a model that is small enough for the reference. */
import { CODECS, keepsRest, type CodecSpec, type RunSpecInput } from '@paceline/spec';

export const layer = (class_name: string, config: object) => ({ class_name, config });
/** What mlp-dropout has, in three chunks instead of fourteen: where replicas take many steps, or gradients are encoded, the reference computes for long. */
export const SMALL: RunSpecInput['model'] = {
  topology: {
    class_name: 'Sequential',
    config: {
      layers: [
        layer('Dense', { name: 'hidden', units: 48, activation: 'relu', batch_input_shape: [null, 784] }),
        layer('BatchNormalization', { name: 'norm' }),
        layer('Dropout', { name: 'dropout', rate: 0.25 }),
        layer('Dense', { name: 'digits', units: 10, activation: 'softmax' }),
      ],
    },
  },
};
/** All codecs that keep nothing of a replica: a run has equal bits with them wherever its replicas are computed. auto is none of its own. */
export const KEEPS_NOTHING = CODECS.filter((kind) => kind !== 'none' && kind !== 'auto' && !keepsRest({ kind, errorFeedback: false }));

export const CODEC_OPTIONS: Partial<Record<CodecSpec['kind'], Partial<CodecSpec>>> = {
  'top-k': { density: 0.02 },
  'random-k': { density: 0.1 },
  threshold: { threshold: 1e-3 },
};
