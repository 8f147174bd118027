/** `paceline generate`: text from a language model, in the process of the command line. */
import { EXIT } from '@paceline/runtime/exit-codes';
import { type Command, InvalidArgumentError } from 'commander';
import type { Act, CommandContext } from '../command.js';
import { clean } from '../terminal/clean.js';
import { TRAINED_MODEL_ARGUMENT, withModel } from '../trained-model.js';

const LENGTH_MAX = 100_000;
const SHOWN_MAX = 1_000_000;

function numberIn(least: number, most: number, isWhole: boolean) {
  return (text: string): number => {
    const value = Number(text);
    const fits = text.trim() !== '' && value >= least && value <= most && (!isWhole || Number.isInteger(value));
    if (!fits) throw new InvalidArgumentError(`It is ${isWhole ? 'a whole number' : 'a number'} from ${least} to ${most}.`);
    return value;
  };
}

export function addGenerateCommand(program: Command, act: Act): void {
  program
    .command('generate')
    .description(
      'Continues a prompt with a language model: one that was trained with the target next-token on characters or words of a text.\n' +
        'The model computes the probabilities of each token from the last tokens, and one is drawn by them.',
    )
    .argument('<model>', TRAINED_MODEL_ARGUMENT)
    .requiredOption('-p, --prompt <text>', 'what the text begins with')
    .option('--length <tokens>', 'tokens to write', numberIn(1, LENGTH_MAX, true), 200)
    .option(
      '--temperature <number>',
      '0 takes the most probable token, 1 draws by the probabilities of the model',
      numberIn(0, 100, false),
      0.8,
    )
    .option('--seed <number>', 'the same seed gives the same text', numberIn(0, 2 ** 32 - 1, true), 0)
    .action(act(write));
}

interface Options {
  readonly prompt: string;
  readonly length: number;
  readonly temperature: number;
  readonly seed: number;
}

async function write(context: CommandContext, command: Command, reference: string): Promise<number> {
  const { prompt, length, temperature, seed } = command.opts<Options>();
  const { generate } = await import('@paceline/models');
  const text = await withModel(context, reference, (model) => generate(model, { prompt, length, temperature, seed }));
  const { terminal } = context;
  if (terminal.json) terminal.document({ prompt, text });
  else for (const line of `${prompt}${text}`.split('\n')) terminal.print(clean(line, SHOWN_MAX));
  return EXIT.ok;
}
