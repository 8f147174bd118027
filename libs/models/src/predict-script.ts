/**
 * `predict.mjs` of an export in the form of TensorFlow.js: rows to predictions in plain Node, with tf.js and nothing of Paceline. It applies what
 * preprocessing.json says; what it cannot apply (images, texts) it refuses by name. It is written without template strings, as it stands in one here.
 */
export const PREDICT_SCRIPT = String.raw`/**
 * Predicts rows with the model in this folder. Needs Node 20 and tf.js:
 *
 *   npm install @tensorflow/tfjs
 *   node predict.mjs rows.csv          (or rows.json: a list of objects; a CSV file names its columns in the first line)
 *
 * In a program: import { load } from './predict.mjs'; const { predict } = await load(); predict([{ column: value }]).
 */
import { readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const MISSING = new Set(['', 'na', 'n/a', '#n/a', 'nan', 'null', 'none', '?', '-']);
const isMissing = (value) => value === undefined || value === null || (typeof value === 'string' && value.trim() === '');
const size = (shape) => shape.reduce((product, n) => product * n, 1);
const refuse = (message) => {
  throw new Error(message);
};

/** tf.js as one package, or its parts. */
async function tensorflow() {
  try {
    return await import('@tensorflow/tfjs');
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
  }
  const [core, layers] = [await import('@tensorflow/tfjs-core'), await import('@tensorflow/tfjs-layers')];
  await import('@tensorflow/tfjs-backend-cpu');
  return Object.assign({}, core, { loadLayersModel: layers.loadLayersModel });
}

function number(value, row, column) {
  if (isMissing(value) || (typeof value === 'string' && MISSING.has(value.trim().toLowerCase()))) return NaN;
  const found = Number(value);
  return Number.isNaN(found) && !Number.isNaN(value)
    ? refuse('row ' + row + ', column ' + JSON.stringify(column) + ': ' + JSON.stringify(value) + ' is no number')
    : Math.fround(found);
}

function fnv1a(text) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

/** Each makes of a row the numbers of an encoder of the plan. */
const ENCODERS = {
  numbers: ({ columns, missing, subtract, divide }) => (row, at) =>
    columns.map((column, i) => {
      const value = number(row[column], at, column);
      return ((Number.isNaN(value) ? missing[i] : value) - subtract[i]) / divide[i];
    }),
  'one-hot': ({ column, names }) => {
    const places = new Map(names.map((name, i) => [name, i]));
    return (row) => {
      const out = new Array(names.length).fill(0);
      const place = isMissing(row[column]) ? undefined : places.get(String(row[column]).trim());
      if (place !== undefined) out[place] = 1;
      return out;
    };
  },
  index: ({ column, names }) => {
    const places = new Map(names.map((name, i) => [name, i + 1]));
    return (row) => [isMissing(row[column]) ? 0 : (places.get(String(row[column]).trim()) ?? 0)];
  },
  class: ({ column, names }) => {
    const places = new Map(names.map((name, i) => [name, i]));
    return (row, at) => [places.get(String(row[column]).trim()) ?? refuse('row ' + at + ', column ' + JSON.stringify(column) + ': no known class')];
  },
  hash: ({ column, buckets }) => (row) => {
    const out = new Array(buckets).fill(0);
    if (!isMissing(row[column])) out[fnv1a(String(row[column]).trim()) % buckets] = 1;
    return out;
  },
  array: ({ column, shape, subtract, divide }) => (row, at) => {
    const values = [row[column]].flat(Infinity).map((value) => number(value, at, column));
    if (values.length !== size(shape)) refuse('row ' + at + ', column ' + JSON.stringify(column) + ': ' + values.length + ' numbers, not ' + size(shape));
    return values.map((value) => (value - subtract) / divide);
  },
};

function encoderOf(encoder) {
  const make = ENCODERS[encoder.kind];
  if (!make) refuse('this model takes a column of kind ' + encoder.kind + ' (' + JSON.stringify(encoder.column) + '), which predict.mjs cannot prepare: use paceline predict');
  return make(encoder);
}

/** From rows to one array of numbers for each input of the model. */
function plannedInputs({ plan, inputOrder }) {
  const fields = plan.inputs.map(({ rows, encoders }) => ({ rows, encoders: encoders.map(encoderOf) }));
  const span = Math.max(...fields.map(({ rows }) => rows.first + (rows.count - 1) * rows.step + 1));
  return (given) => {
    const examples = Math.max(0, given.length - span + 1);
    const inputs = fields.map(({ rows, encoders }) => {
      const out = [];
      const encoded = given.map((row, i) => encoders.flatMap((encode) => encode(row, i + 1)));
      for (let example = 0; example < examples; example++)
        for (let k = 0; k < rows.count; k++) out.push(encoded[example + rows.first + k * rows.step]);
      return Float32Array.from(out.flat());
    });
    return { examples, inputs: inputOrder.map((field) => inputs[field]) };
  };
}

/** Lists of pixels, divided as in training; without a description numbers as they are. */
function plainInputs({ inputs = [] }) {
  return (given) => {
    const lists = given.map((row) => (Array.isArray(row) ? row : Object.values(row)).flat(Infinity).map(Number));
    const divideBy = inputs[0] ? inputs[0].image.divideBy : 1;
    return { examples: given.length, inputs: [Float32Array.from(lists.flat(), (value) => value / divideBy)] };
  };
}

function softmax(values) {
  const largest = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

function probabilities(values, gives) {
  if (values.length > 1) return gives === 'logits' ? softmax(values) : values;
  const second = gives === 'logits' ? 1 / (1 + Math.exp(-values[0])) : values[0];
  return [1 - second, second];
}

function meaning(values, output) {
  if (output.kind === 'classes') {
    const positions = size(output.shape ?? []);
    const width = values.length / positions;
    const found = Array.from({ length: positions }, (_, i) => probabilities(values.slice(i * width, (i + 1) * width), output.gives));
    const labels = found.map((each) => output.labels[each.indexOf(Math.max(...each))]);
    if (positions > 1) return { labels };
    return { label: labels[0], probabilities: Object.fromEntries(output.labels.map((label, i) => [label, found[0][i]])) };
  }
  const { subtract = [0], divide = [1] } = output.scale ?? {};
  return { values: values.map((value, k) => value * divide[k % divide.length] + subtract[k % subtract.length]) };
}

/** @returns the model, and predict: rows (objects by column) to one object for each output */
export async function load(folder = dirname(fileURLToPath(import.meta.url))) {
  const tf = await tensorflow();
  await tf.ready();
  const json = (name) => JSON.parse(readFileSync(join(folder, name), 'utf8'));
  const [{ modelTopology, weightsManifest, format }, preprocessing] = [json('model.json'), json('preprocessing.json')];
  const bytes = Buffer.concat(weightsManifest.flatMap(({ paths }) => paths.map((path) => readFileSync(join(folder, path)))));
  const weightSpecs = weightsManifest.flatMap(({ weights }) => weights);
  const weightData = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  const model = await tf.loadLayersModel(tf.io.fromMemory({ modelTopology, format, weightSpecs, weightData }));
  const encode = preprocessing.plan ? plannedInputs(preprocessing) : plainInputs(preprocessing);
  const predict = (rows) => {
    const { examples, inputs } = encode(rows);
    if (examples === 0) return [];
    const outputs = tf.tidy(() => {
      const tensors = inputs.map((values, i) => tf.tensor(values, [examples, ...model.inputs[i].shape.slice(1).map((n) => n ?? -1)]));
      return [model.predict(tensors.length === 1 ? tensors[0] : tensors)].flat().map((tensor) => [...tensor.dataSync()]);
    });
    return Array.from({ length: examples }, (_, row) =>
      Object.fromEntries(
        preprocessing.outputs.map((output, i) => {
          const width = outputs[i].length / examples;
          return [output.name, meaning(outputs[i].slice(row * width, (row + 1) * width), output)];
        }),
      ),
    );
  };
  return { model, predict };
}

/** Rows of a CSV text by the names in its first line; cells may be quoted. */
export function csv(text) {
  const lines = [[]];
  const cell = /("(?:[^"]|"")*"|[^",\r\n]*)(,|\r?\n|$)/gy;
  while (cell.lastIndex < text.length) {
    const [, value, end] = cell.exec(text) ?? refuse('line ' + lines.length + ' of the CSV file cannot be read: is a quote left open?');
    lines.at(-1).push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
    if (end !== ',' && cell.lastIndex < text.length) lines.push([]);
  }
  const [names, ...rows] = lines;
  return rows.filter((cells) => cells.some((value) => value !== '')).map((cells) => Object.fromEntries(names.map((name, i) => [name.trim(), cells[i]])));
}

if (process.argv[1] && realpathSync(process.argv[1]) === realpathSync(fileURLToPath(import.meta.url))) {
  const [, , file] = process.argv;
  if (!file) refuse('Usage: node predict.mjs rows.csv|rows.json');
  const text = readFileSync(file, 'utf8').replace(/^\ufeff/, '');
  const rows = /^\s*\[/.test(text) ? JSON.parse(text) : csv(text);
  const { predict } = await load();
  for (const one of predict(rows)) console.log(JSON.stringify(one));
}
`;
