/** What a call of the group thread ends with where the members are others now. */

/** Members were lost, and the others go on: what a call was for has not happened, or had happened before. */
export class MembersChanged extends Error {
  override readonly name = 'MembersChanged';
}

/** This process was started again, and the others have gone on without it before it had their state. */
export class NotLetIn extends Error {
  override readonly name = 'NotLetIn';
}
