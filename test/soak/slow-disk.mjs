/**
 * Loaded before the program of a server (`--import`): every file of a run stays open for a while before it is used, as on a slow disk, so
 * that a test finds a server at work on a file whenever it looks. Nothing else of the server is touched.
 */
import { promises } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const OPEN_FOR_MS = 80;
const { open } = promises;
promises.open = async (file, ...more) => {
  const handle = await open(file, ...more);
  if (String(file).includes('/runs/')) await new Promise((resolve) => setTimeout(resolve, OPEN_FOR_MS));
  return handle;
};
syncBuiltinESMExports();
