/**
 * How two tasks of a cluster with parameter servers meet: who dials says hello with a nonce, both prove that they know the shared secret (proof.ts), and
 * only then is anything else said. A listener takes one connection of each task at a time.
 */
import type { Clock, Connection } from '@paceline/exchange';
import { ProtocolError } from '@paceline/protocol';
import { ClusterError } from '../errors.js';
import { beforeProof, expected, FINAL, NUMBERS, PROOF_DEADLINE_MS, WRONG_SECRET } from '../greeting.js';
import { Link } from '../link.js';
import { isProof, newNonce, proofOf, type Handshake } from '../proof.js';

export interface Identity {
  readonly self: number;
  /** The names of all tasks, for people. */
  readonly names: readonly string[];
  /** UUID of what all tasks must have in common. */
  readonly group: string;
  readonly secret: string;
  readonly clock: Clock;
}

export interface Arrival {
  readonly from: number;
  readonly link: Link;
}

const OTHER_CLUSTER = 'it has another cluster: give every process the same lists of workers and parameter servers';

/**
 * The greeting of the side that has dialled.
 * @throws ClusterError when the other one refuses this task for good
 * @throws Error when the connection has ended: dial again
 */
export function introduce(connection: Connection, to: number, identity: Identity): Promise<Link> {
  const { self, group, secret, names, clock } = identity;
  const dialNonce = newNonce();
  return new Promise((resolve, reject) => {
    const cancel = clock.after(PROOF_DEADLINE_MS, () => connection.close(new ProtocolError('HELLO_EXPECTED', 'no proof came back')));
    connection.setReceiver(
      beforeProof({
        message: (message) => {
          const { nonce, proof } = expected(message);
          const handshake: Handshake = { group, from: self, to, dialNonce, acceptNonce: nonce };
          cancel();
          if (!isProof(proof, proofOf(secret, 'accepts', handshake))) {
            reject(new ClusterError(`${names[to]!}: ${WRONG_SECRET}`));
            throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
          }
          connection.sendMessage({ type: 'prove', nonce: dialNonce, proof: proofOf(secret, 'dials', handshake) }, NUMBERS);
          resolve(new Link(connection));
        },
        closed: (description, error) => {
          cancel();
          const isFinal = error !== undefined && FINAL.has(error.code);
          reject(
            isFinal ? new ClusterError(`${names[to]!} refuses this process: ${error.detail}`) : new Error(error?.detail ?? description),
          );
        },
      }),
    );
    const hello = { type: 'hello' as const, token: dialNonce, run: group, role: 'member' as const, id: String(self), host: '' };
    connection.sendMessage({ ...hello, seat: self, incarnation: 0, fingerprint: '', layout: '' }, NUMBERS);
  });
}

/**
 * The greeting of the side that listens.
 * @param isFree whether a task may come now
 * @param arrived hears of each task that has proved itself
 */
export function receive(
  connection: Connection,
  { self, group, secret, names, clock }: Identity,
  isFree: (from: number) => boolean,
  arrived: (arrival: Arrival) => void,
): void {
  let handshake: Handshake | undefined;
  const cancel = clock.after(PROOF_DEADLINE_MS, () =>
    connection.close(new ProtocolError('HELLO_EXPECTED', `no proof of the shared secret within ${PROOF_DEADLINE_MS} ms`)),
  );
  const checkFree = (from: number): void => {
    if (from >= names.length || from === self || !isFree(from))
      throw new ProtocolError('SEAT_TAKEN', `another process is ${names[from] ?? `task ${from}`}: every process needs a task of its own`);
  };
  connection.setReceiver(
    beforeProof({
      message: (message) => {
        if (message.type === 'hello') {
          if (handshake) throw new ProtocolError('BAD_MESSAGE', 'a second hello');
          if (message.role !== 'member' || message.run !== group) throw new ProtocolError('RUN_UNKNOWN', OTHER_CLUSTER);
          checkFree(message.seat);
          handshake = { group, from: message.seat, to: self, dialNonce: message.token, acceptNonce: newNonce() };
          return connection.sendMessage(
            { type: 'prove', nonce: handshake.acceptNonce, proof: proofOf(secret, 'accepts', handshake) },
            NUMBERS,
          );
        }
        const { proof } = expected(message);
        if (!handshake || !isProof(proof, proofOf(secret, 'dials', handshake))) throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
        checkFree(handshake.from);
        cancel();
        arrived({ from: handshake.from, link: new Link(connection) });
      },
      closed: cancel,
    }),
  );
}
