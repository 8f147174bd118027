/** A GraphQL document with the types of what it asks and gets. The types exist for the compiler only. */
export interface Operation<Result, Variables> {
  readonly name: string;
  readonly text: string;
  readonly '~types'?: { readonly result: Result; readonly variables: Variables };
}
