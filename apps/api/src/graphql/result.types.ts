/** What can go wrong in one operation, as members of its result union. REST turns the same objects into problem documents. */
import { Field, Float, ObjectType } from '@nestjs/graphql';
import type { LimitExceeded } from '@paceline/control-plane';
import type { SpecIssue } from '@paceline/spec';

@ObjectType({ description: 'What is wrong with one field of an input.' })
export class FieldIssue {
  @Field({ description: 'The field in the words of the input, for example `strategy.servers`.' })
  path!: string;
  @Field({ description: 'What is wrong and what would be right, for people.' })
  message!: string;
}

@ObjectType({ description: 'The input is wrong; every issue names its field. Nothing was changed.' })
export class InvalidInput {
  @Field({ description: 'INVALID_INPUT' })
  readonly code: string = 'INVALID_INPUT';
  @Field({ description: 'All issues in one line, for people.' })
  readonly message: string;
  @Field(() => [FieldIssue], { description: 'What is wrong, field by field.' })
  readonly issues: FieldIssue[];

  constructor(issues: readonly SpecIssue[]) {
    this.issues = [...issues];
    this.message = issues
      .map(({ path, message }) => `${path}: ${message}`)
      .join('; ')
      .slice(0, 2000);
  }
}

@ObjectType({ description: 'It does not exist, or it belongs to another team.' })
export class NotFound {
  @Field({ description: 'NOT_FOUND' })
  readonly code: string = 'NOT_FOUND';
  @Field({ description: 'What there is not, for people.' })
  readonly message: string;

  constructor(what: string) {
    this.message = `There is no ${what}.`;
  }
}

@ObjectType({ description: 'The team has as much of something as it may have. Nothing was changed.' })
export class LimitReached {
  @Field({ description: 'LIMIT_REACHED' })
  readonly code: string = 'LIMIT_REACHED';
  @Field({ description: 'Which limit it is and what was asked, for people.' })
  readonly message: string;
  @Field({ description: 'A field of TeamLimits.' })
  readonly limit: string;
  @Field(() => Float, { description: 'What the team may have.' })
  readonly most: number;
  @Field(() => Float, { description: 'What the team has now.' })
  readonly used: number;
  @Field(() => Float, { description: 'What was asked for in addition.' })
  readonly asked: number;

  constructor({ message, limit, most, used, asked }: LimitExceeded) {
    this.message = message;
    this.limit = limit;
    this.most = most;
    this.used = used;
    this.asked = asked;
  }
}

@ObjectType({
  description:
    'The input is right but contradicts what is there: a name taken, a run already over, an idempotency key used for something else.',
})
export class Conflict {
  @Field({ description: 'CONFLICT' })
  readonly code: string = 'CONFLICT';
  @Field({ description: 'What it contradicts, for people.' })
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }
}
