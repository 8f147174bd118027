/** Of src/graphql, without their endings. */
export const FILES: readonly string[];
/** The text of a file as it stands. */
export function present(name: string): string;
/** The text of a file as it must be. Rejects when a document does not fit the schema. */
export function generate(name: string): Promise<string>;
