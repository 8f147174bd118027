/** Datasets as GraphQL shows them: those of the release and the team's own, in one type. */
import { createUnionType, Field, Float, ID, InputType, Int, ObjectType, registerEnumType } from '@nestjs/graphql';
import { countedAbove } from '../graphql/cost.js';
import { JsonScalar } from '../graphql/json.scalar.js';
import { Node, PageInfo } from '../graphql/node.type.js';
import { Conflict, InvalidInput, LimitReached, NotFound } from '../graphql/result.types.js';
import { DatasetImportState } from '../generated/prisma/enums.js';

registerEnumType(DatasetImportState, {
  name: 'DatasetImportState',
  description: 'How far an import is.',
  valuesMap: {
    PENDING: { description: 'It waits for its turn.' },
    IMPORTING: { description: 'It is read and converted.' },
    READY: { description: 'The dataset has a new version.' },
    FAILED: { description: 'It ended; `reason` says why, and what to do.' },
  },
});

@ObjectType({
  implements: () => [Node],
  description: 'One content of a dataset. It never changes; a run keeps to the version that it began with.',
})
export class DatasetVersion implements Node {
  id!: string;
  @Field({ description: 'SHA-256 of the manifest.' })
  version!: string;
  @Field(() => Float, { description: 'Of all splits.' })
  rows!: number;
  @Field(() => Float, { description: 'Of all shards.' })
  bytes!: number;
  @Field(() => Int, { description: 'Columns of a row.' })
  columnCount!: number;
  @Field({ description: 'Where it came from, in the words of whoever imported it.' })
  source!: string;
  @Field({ description: 'When it was complete.' })
  createdAt!: Date;
  @Field(() => ID, { description: 'The API key that made it.' })
  createdBy!: string;
}

@ObjectType({ implements: () => [Node], description: 'A dataset that runs can name: of the release, or of the team.' })
export class Dataset implements Node {
  id!: string;
  @Field({ description: 'The name that a run spec uses.' })
  name!: string;
  @Field({ description: 'It comes with the release. The others are of the team alone.' })
  isBuiltIn!: boolean;
  @Field({ description: 'A name for people.' })
  title!: string;
  @Field(() => Float, { description: 'Rows of the training split; of the newest version.' })
  trainExamples!: number;
  @Field(() => Float, { description: 'Rows of the split that runs are evaluated on when they name none.' })
  evalExamples!: number;
  @Field(() => JsonScalar, {
    nullable: true,
    description: 'Built-in datasets only: inputs and targets of one example. For other datasets, `features` of the run define them.',
  })
  format!: unknown;
  @Field(() => String, { nullable: true, description: 'Its licence, as far as it is known.' })
  license!: string | null;
  @Field({ description: 'Where it came from.' })
  source!: string;
  @Field(() => Date, { nullable: true, description: 'When its first version was made; null for a built-in one.' })
  createdAt!: Date | null;
  @Field(() => DatasetVersion, { nullable: true, description: 'Null for a built-in one.' })
  newest!: DatasetVersion | null;
}

@ObjectType({ description: 'A dataset and its place in the list.' })
export class DatasetEdge {
  @Field({ description: 'Its place, to be given as `after` or `before`.' })
  cursor!: string;
  @Field(() => Dataset, { complexity: countedAbove, description: 'The dataset.' })
  node!: Dataset;
}

@ObjectType({ description: 'A page of datasets.' })
export class DatasetConnection {
  @Field(() => [DatasetEdge], { complexity: countedAbove, description: 'The datasets of the page, in the order of the list.' })
  edges!: DatasetEdge[];
  @Field(() => PageInfo, { description: 'What there is before and after the page.' })
  pageInfo!: PageInfo;
  @Field(() => Int, { description: 'Datasets in the whole list.' })
  totalCount!: number;
}

@ObjectType({ description: 'The rows of a version that runs train on, or those that they are measured on.' })
export class DatasetSplit {
  @Field({ description: 'train, validation or test.' })
  name!: string;
  @Field(() => Float, { description: 'Its rows.' })
  rows!: number;
  @Field(() => Float, { description: 'Of its shards.' })
  bytes!: number;
  @Field(() => Int, { description: 'Files that its rows lie in.' })
  shards!: number;
  @Field(() => Int, {
    nullable: true,
    description: 'Series, each of rows that follow one another in time; no window has rows of two. Null where rows are not in order.',
  })
  series!: number | null;
}

@ObjectType({ description: 'One column of a version, as the import found it.' })
export class DatasetColumn {
  @Field({ description: 'Unique in the version; features name it so.' })
  name!: string;
  @Field({ description: 'number, category, array, sequence, text or image.' })
  kind!: string;
  @Field(() => String, { nullable: true, description: 'Type of the elements of an array or sequence: F32, I32 or U8.' })
  dtype!: string | null;
  @Field(() => [Int], { nullable: true, description: 'Shape of an array, or of one element of a sequence.' })
  shape!: number[] | null;
  @Field(() => Int, { nullable: true, description: 'Entries of the vocabulary of a category.' })
  vocabularySize!: number | null;
  @Field(() => [String], {
    nullable: true,
    description: 'The first entries of the vocabulary: 100, or fewer where those of all columns shown are long.',
  })
  vocabulary!: string[] | null;
  @Field(() => JsonScalar, {
    description: 'Over the training split, as the manifest has them; counts of a category for the first 100 entries.',
  })
  statistics!: unknown;
}

@ObjectType({ description: 'What a version holds.' })
export class DatasetSchema {
  @Field(() => [DatasetColumn], { complexity: countedAbove, description: 'In the order of the source.' })
  columns!: DatasetColumn[];
  @Field(() => String, { nullable: true, description: 'The default target.' })
  label!: string | null;
  @Field(() => [String], {
    description: 'Classes of the label that no row of the training split has, so nothing can learn them; at most 100.',
  })
  untrainedClasses!: string[];
  @Field(() => [DatasetSplit], {
    complexity: ({ childComplexity }) => 3 * childComplexity,
    description: 'train, and validation or test where there are such rows.',
  })
  splits!: DatasetSplit[];
  @Field({ description: 'Rows lie in the order of the source, so windows over time may be cut from them.' })
  isOrdered!: boolean;
  @Field(() => Float, { description: 'Rows of the source that were left out because values were missing.' })
  droppedRows!: number;
}

@ObjectType({ description: 'A few rows. Texts and lists are cut, an image is a data URL, or null when it is too large to show.' })
export class DatasetPreview {
  @Field(() => [String], { description: 'Names of the columns that are shown.' })
  columns!: string[];
  @Field(() => [JsonScalar], { description: 'One list of values for each row, in the order of the columns.' })
  rows!: unknown[];
}

@ObjectType({ implements: () => [Node], description: 'An import that the api carries out.' })
export class DatasetImport implements Node {
  id!: string;
  @Field({ description: 'The dataset that it makes, or gives a new version.' })
  name!: string;
  @Field(() => DatasetImportState, { description: 'How far it is.' })
  state!: DatasetImportState;
  @Field(() => String, { nullable: true, description: 'Why it failed, what it waits for, or what it warns of.' })
  reason!: string | null;
  @Field(() => Float, { description: 'Rows that were read.' })
  rows!: number;
  @Field(() => Float, { description: 'Bytes of the source that were read.' })
  bytes!: number;
  @Field(() => Float, { nullable: true, description: 'Bytes of the source, if known.' })
  totalBytes!: number | null;
  @Field(() => String, { nullable: true, description: 'Bytes of the shards that it has made.' })
  version!: string | null;
  @Field({ description: 'When it was asked for.' })
  createdAt!: Date;
  @Field(() => Date, { nullable: true, description: 'When it became READY or FAILED.' })
  finishedAt!: Date | null;
}

@InputType({ description: 'How a file becomes a dataset; what is left out is found in the file.' })
export class DatasetImportOptions {
  @Field(() => String, {
    nullable: true,
    description: 'csv, jsonl, parquet, images, …; by the name and the beginning of the file by default.',
  })
  format?: string | null;
  @Field(() => String, { nullable: true, description: 'The column that is the default target.' })
  label?: string | null;
  @Field(() => JsonScalar, { nullable: true, description: 'Kinds of columns by name, where the guess is wrong: {"zip": "category"}.' })
  columns?: unknown;
  @Field(() => [Float], { nullable: true, description: 'Shares of train, validation and test: [0.8, 0.1, 0.1].' })
  split?: number[] | null;
  @Field(() => Boolean, { nullable: true, description: 'Keep the order of the source, and split it in this order.' })
  inOrder?: boolean | null;
  @Field(() => Int, { nullable: true, description: 'Seeds which rows go into which split.' })
  seed?: number | null;
  @Field(() => String, { nullable: true, description: 'Rows with missing values: refuse, drop or fill.' })
  missing?: string | null;
  @Field(() => Boolean, { nullable: true, description: 'The files follow one another: windows go on from one into the next.' })
  oneSeries?: boolean | null;
  @Field(() => String, {
    nullable: true,
    description: 'The sign in front of decimals, . or , where thousands are separated or it is a comma.',
  })
  decimal?: string | null;
  @Field(() => String, { nullable: true, description: 'CSV: what separates columns, one character; found in the file by default.' })
  delimiter?: string | null;
}

@ObjectType({ description: 'It is gone: new runs cannot name it. Its shards are deleted from the data store.' })
export class RemoveDatasetSuccess {
  @Field({ description: 'Of the dataset.' })
  readonly name: string;
  @Field(() => [String], { description: 'That were removed.' })
  readonly versions: readonly string[];
  constructor(name: string, versions: readonly string[]) {
    this.name = name;
    this.versions = versions;
  }
}

@ObjectType({ description: 'The import has begun, or waits for its turn.' })
export class ImportDatasetSuccess {
  @Field(() => DatasetImport, { description: 'The import, to be asked for again until it is READY or FAILED.' })
  readonly import: DatasetImport;
  constructor(made: DatasetImport) {
    this.import = made;
  }
}

export const RemoveDatasetResult = createUnionType({
  name: 'RemoveDatasetResult',
  description: 'What became of removeDataset.',
  types: () => [RemoveDatasetSuccess, NotFound, Conflict] as const,
});
export const ImportDatasetResult = createUnionType({
  name: 'ImportDatasetResult',
  description: 'What became of importDataset.',
  types: () => [ImportDatasetSuccess, InvalidInput, NotFound, Conflict, LimitReached] as const,
});
