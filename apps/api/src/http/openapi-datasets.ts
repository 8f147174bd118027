/** Datasets in the OpenAPI document: lists, one, and the bytes; everything else of them is in GraphQL. */
import { Dataset, DatasetCommit, DatasetPage, DatasetRemoval, Stored, UploadedFile, type Json } from './bodies.js';
import { after, answer, first, json, problem, query, refusals, text } from './openapi-parts.js';

const name: Json = { name: 'name', in: 'path', required: true, schema: text };
const reference: Json = { name: 'name', in: 'path', required: true, description: 'NAME, or NAME@VERSION.', schema: text };
const sha256: Json = { name: 'sha256', in: 'path', required: true, schema: { type: 'string', pattern: '^[0-9a-f]{64}$' } };
const bytes: Json = { required: true, content: { 'application/octet-stream': {} } };
const store = { '503': problem('The api has no data store, or it does not answer.') };
const limits = {
  '409': problem('The team has as many bytes of datasets as it may have (`LIMIT_REACHED`).'),
  '413': problem('The body is too large.'),
  '422': problem('Another hash or size than was said.'),
};

function listPaths(): Json {
  return {
    '/api/v1/datasets': {
      get: {
        operationId: 'listDatasets',
        summary: 'Datasets of the release and of the team.',
        parameters: [first, after],
        responses: {
          '200': answer(DatasetPage, 'A page.'),
          '422': problem('A bad cursor or number.'),
          ...refusals,
        },
      },
    },
    '/api/v1/datasets/{name}': {
      get: {
        operationId: 'getDataset',
        summary: 'One dataset.',
        parameters: [name],
        responses: { '200': answer(Dataset, 'The dataset.'), '404': problem('No such dataset.'), ...refusals },
      },
    },
    '/api/v1/datasets/{name}/manifest': {
      get: {
        operationId: 'getDatasetManifest',
        summary: 'The manifest of the newest version, or of the one that is named.',
        parameters: [reference],
        responses: {
          '200': json({ type: 'object' }, 'Canonical JSON; its SHA-256 is the version.'),
          '404': problem('No such dataset.'),
          ...refusals,
        },
      },
    },
    '/api/v1/datasets/{name}/remove': {
      post: {
        operationId: 'removeDataset',
        summary: 'Remove a dataset of the team, or one version of it.',
        parameters: [reference, query('force', 'true: also when runs that are over were trained on it.', text)],
        responses: {
          '200': answer(DatasetRemoval, 'What was removed.'),
          '404': problem('No such dataset.'),
          '409': problem('Runs use it; they are named.'),
          ...refusals,
        },
      },
    },
  };
}

function uploadPaths(): Json {
  return {
    '/api/v1/datasets/{name}/versions': {
      post: {
        operationId: 'commitDatasetVersion',
        summary: 'Make a version of a dataset from its manifest; every shard was uploaded before.',
        parameters: [name, query('source', 'Where the data came from, in words.', text)],
        requestBody: { required: true, content: { 'application/json': { schema: { type: 'object' } } } },
        responses: {
          '200': answer(DatasetCommit, 'The dataset had this version already.'),
          '201': answer(DatasetCommit, 'A new version.'),
          '413': problem('The manifest is too large.'),
          '422': problem('The manifest or a shard is wrong; `issues` names the place.'),
          ...refusals,
          ...store,
        },
      },
    },
    '/api/v1/datasets/shards/{sha256}': {
      put: {
        operationId: 'uploadDatasetShard',
        summary: 'Store a shard under its SHA-256. What no version refers to is removed after a day.',
        parameters: [sha256],
        requestBody: bytes,
        responses: {
          '200': answer(Stored, 'It was there already.'),
          '201': answer(Stored, 'It is stored.'),
          ...limits,
          ...refusals,
          ...store,
        },
      },
      get: {
        operationId: 'getDatasetShard',
        summary: 'A shard (safetensors). HEAD says whether it is there.',
        parameters: [sha256],
        responses: {
          '200': { description: 'The file.', content: { 'application/octet-stream': {} } },
          '404': problem('No such shard in your team.'),
          ...refusals,
          ...store,
        },
      },
    },
    '/api/v1/datasets/uploads': {
      post: {
        operationId: 'uploadDatasetFile',
        summary: 'Store a file as it is, for the mutation importDataset. Removed with the import, or after a day.',
        parameters: [query('name', 'Name of the file, with its ending.', text)],
        requestBody: bytes,
        responses: {
          '201': answer(UploadedFile, 'It is stored.'),
          ...limits,
          ...refusals,
          ...store,
        },
      },
    },
  };
}

export const datasetPaths = (): Json => Object.assign({}, listPaths(), uploadPaths());
