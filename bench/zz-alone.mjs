import { engineAlone } from './engine-alone.mjs';
const measure = await engineAlone(
  { model: 'mlp', globalBatch: 128, replicas: 1, length: { rounds: 10 }, seed: 1, optimizer: { name: 'sgd', learningRate: 0.1 } },
  128,
);
const n = Number(process.argv[2] ?? 4);
for (let i = 0; i < n; i++) console.log(process.pid, JSON.stringify(measure()));
