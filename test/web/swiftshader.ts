/**
 * A Vulkan driver for machines without a GPU: SwiftShader computes on the processor what a GPU would, some hundred times slower. It is inside the
 * package that the dashboard's tests have their browser from. The loader of Vulkan reads its environment when a process starts, so it is for
 * processes that a test starts, not for the test's own.
 */
import { join } from 'node:path';
import { webgpuPackage } from '@paceline/runtime';
import { PACKAGE, packageFolder, unpackedOnce, untar } from './chromium-package.js';

/**
 * Undefined on machines that the package has nothing for, and where PACELINE_SKIP_WEBGPU is 1: `NO_DRIVER` says why a test is skipped.
 * @throws Error where it has something, but is not installed: a test that should have run is not passed over in silence
 */
export function swiftShaderEnvironment(): Record<string, string> | undefined {
  if (process.env.PACELINE_SKIP_WEBGPU === '1' || process.platform !== 'linux' || process.arch !== 'x64') return undefined;
  const folder = packageFolder();
  if (!folder || !webgpuPackage(import.meta.dirname))
    throw new Error(
      `${folder ? 'webgpu' : PACKAGE} is not installed: run npm ci, or leave the tests of webgpu out with PACELINE_SKIP_WEBGPU=1`,
    );
  const place = unpackedOnce(folder, 'swiftshader', (making) => untar(folder, 'swiftshader.tar.br', making));
  return { VK_ICD_FILENAMES: join(place, 'vk_swiftshader_icd.json'), LD_LIBRARY_PATH: place };
}

export const NO_DRIVER = `needs SwiftShader, which ${PACKAGE} has for Linux on x64; PACELINE_SKIP_WEBGPU=1 leaves it out`;
