/**
 * The keys of layer configs. A loader of tf.js turns them from snake case into camel case, so that one name has several
 * spellings (`kernel_constraint`, `kernelConstraint`, `kernel_constraint_`). Whatever is checked on a config is therefore
 * checked by its camel-case name, and a spelling that no exporter writes is refused.
 */

/** Snake case to camel case, by the rule of tf.js's own loader. */
export const camelCase = (text: string): string => text.replace(/(?!^)_+(\w|$)/g, (_, next: string) => next.toUpperCase());

/** A value of a config, and its key as the person wrote it. */
export interface ConfigField {
  readonly key: string;
  readonly value: unknown;
}

/** The fields of a config by their camel-case names. */
export function fieldsOf(config: Readonly<Record<string, unknown>>): ReadonlyMap<string, ConfigField> {
  return new Map(Object.entries(config).map(([key, value]) => [camelCase(key), { key, value }]));
}

/** The first key of an object that is not a plain spelling of a name, or the second spelling of one, and what is wrong with it. */
export function faultOfKeys(keys: readonly string[]): { readonly key: string; readonly message: string } | undefined {
  const spellings = new Map<string, string>();
  for (const key of keys) {
    if (key.endsWith('_') || key.includes('__')) return { key, message: 'a key must not end in "_" or hold "__"' };
    const name = camelCase(key);
    const other = spellings.get(name);
    if (other !== undefined)
      return { key, message: `the same key as ${JSON.stringify(other.slice(0, 60))} in another spelling: leave one out` };
    spellings.set(name, key);
  }
  return undefined;
}
