/** The text of src/graphql/operations.ts as it stands. */
export function present(): string;
/** The text of src/graphql/operations.ts as it must be. Rejects when a document does not fit the schema. */
export function generate(): Promise<string>;
