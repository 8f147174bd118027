/** What is the same wherever two processes prove to each other that they know the shared secret, before anything else is said. */
import { ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';

/** Answers of a member that do not change by asking again. */
export const FINAL: ReadonlySet<string> = new Set(['TOKEN_INVALID', 'RUN_UNKNOWN', 'PROTOCOL_VERSION']);
/** From hello to the proof, for who dials. */
export const PROOF_DEADLINE_MS = 5_000;
export const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };
export const WRONG_SECRET = 'the proof of the shared secret is wrong: give every process the same secret';

export function expected(message: Message): MessageOf<'prove'> {
  if (message.type !== 'prove') throw new ProtocolError('BAD_MESSAGE', `${message.type} came before the proof`);
  return message;
}

export function beforeProof(on: { message(message: Message): void; closed(description: string, error: ProtocolError | undefined): void }) {
  const refuse = (_: FrameHeader): never => {
    throw new ProtocolError('HELLO_EXPECTED', 'data came before the proof');
  };
  return {
    payloadFor: refuse,
    data: refuse,
    message: (message: Message) => {
      if (message.type !== 'refused') on.message(message); // it is the error that the connection ends with
    },
    closed: ({ description, error }: { description: string; error?: ProtocolError | undefined }) => on.closed(description, error),
  };
}
