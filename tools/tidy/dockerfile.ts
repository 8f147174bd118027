/** The stages of deploy/Dockerfile, as its tests read them. */
import { DockerfileParser, type Copy, type Instruction } from 'dockerfile-ast';
import { jsonOf, textOf } from './tree.js';

export const APPS = ['api', 'ps', 'worker'] as const;

export interface Stage {
  name: string;
  image: string;
  instructions: Instruction[];
}

/** Stages of deploy/Dockerfile in order; an ARG before the first names the image that they all begin with. */
export function allStages(): Stage[] {
  const stages: Stage[] = [];
  const dockerfile = DockerfileParser.parse(textOf('deploy/Dockerfile'));
  for (const instruction of dockerfile.getInstructions()) {
    if (instruction.getKeyword() === 'FROM') {
      const words = (instruction.getArgumentsContent() ?? '').split(/\s+/);
      if (words[1]?.toUpperCase() !== 'AS') throw new Error('a stage of deploy/Dockerfile has no name');
      stages.push({ name: words[2]!, image: words[0]!, instructions: [] });
    } else stages.at(-1)?.instructions.push(instruction);
  }
  return stages;
}

export const STAGES = allStages();
/** The stages that end in the image of an app. */
export const stagesOf = (app: string): Stage[] =>
  STAGES.filter(({ name }) => ['manifests', 'build', `${app}-assembled`, app].includes(name));

export const argumentsOf = (instruction: Instruction): string => instruction.getArgumentsContent() ?? '';
export const only = (stage: Stage, keyword: string): Instruction[] =>
  stage.instructions.filter((instruction) => instruction.getKeyword() === keyword);

/** Source of a COPY and the stage that it comes from; undefined for the build context. */
export function copiesOf(stage: Stage): { from: string | undefined; sources: string[]; target: string }[] {
  return only(stage, 'COPY').map((instruction) => {
    const paths = argumentsOf(instruction).split(/\s+/);
    return { from: (instruction as Copy).getFromFlag()?.getValue() ?? undefined, sources: paths.slice(0, -1), target: paths.at(-1)! };
  });
}

/** Libraries of ours that an app needs, through others too. */
export function librariesOf(folder: string, seen = new Set<string>()): Set<string> {
  const manifest = jsonOf(`${folder}/package.json`) as { dependencies?: Record<string, string> };
  for (const name of Object.keys(manifest.dependencies ?? {})) {
    const library = /^@paceline\/(.+)$/.exec(name)?.[1];
    if (!library || seen.has(library)) continue;
    seen.add(library);
    librariesOf(`libs/${library}`, seen);
  }
  return seen;
}
