/** Weights of other programs in the OpenAPI document. */
import { Stored, type Json } from './bodies.js';
import { answer, problem, refusals } from './openapi-parts.js';

const sha256: Json = { name: 'sha256', in: 'path', required: true, schema: { type: 'string', pattern: '^[0-9a-f]{64}$' } };

export const weightPaths = (): Json => ({
  '/api/v1/models/weights/{sha256}': {
    put: {
      operationId: 'uploadWeights',
      summary:
        'Store weights (a safetensors file of float32 variables) under their SHA-256, for weights.upload of a run spec. HEAD says whether they are there. Removed after a day; a run has a copy.',
      parameters: [sha256],
      requestBody: { required: true, content: { 'application/octet-stream': {} } },
      responses: {
        '200': answer(Stored, 'It was there already.'),
        '201': answer(Stored, 'It is stored.'),
        '409': problem('The team has as many uploads as it may have (`LIMIT_REACHED`).'),
        '413': problem('The body is too large.'),
        '422': problem('Another hash or size than was said, no safetensors file, or a number that is not finite.'),
        ...refusals,
        '503': problem('The api has no store, or it does not answer.'),
      },
    },
  },
});
