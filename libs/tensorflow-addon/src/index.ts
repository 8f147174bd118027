export { engineVariables, nvidiaDevices, prepareForTensorflow } from './environment.js';
export { installTensorflow } from './install.js';
export { engineFolders, hasNvidiaDevice, removeEngineFolder, tensorflowEngines, type TensorflowEngine } from './installation.js';
