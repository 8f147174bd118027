export * from './safetensors.js';
