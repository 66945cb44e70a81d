// A real authorization server as a peer of the interop tests: oidc-provider, which nobody here wrote.
//
// As it comes, but for what is set below: PKCE (S256) required, refresh tokens always rotate, revocation and
// introspection on, PAR off, its own development pages for sign-in and consent, its own in-memory adapter. Around it,
// never inside it, stand the control paths that the tests use; they and everything else are on loopback only.
//
//     node server.mjs MODULES [pushed]     MODULES: the folder whose node_modules holds oidc-provider
//
// pushed: authorization requests must be pushed (RFC 9126), and clients prove themselves by a key (private_key_jwt),
// which is registered in the place of their secret.
//
// One line of JSON on stdout says that it is ready. SIGTERM ends it.

import { createHash, createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const HOST = '127.0.0.1';
const CONTROL = '/_control/';
const LONGEST_BODY = 64 * 1024;
const FORTNIGHT = 14 * 86400;

const PUSHED = process.argv[3] === 'pushed';
/** Who introspects where no client has a secret. */
const WATCHER = { client_id: 'watcher', client_secret: randomBytes(32).toString('base64url') };

const resolve = createRequire(join(process.argv[2], 'package.json')).resolve;
const { Provider } = await import(pathToFileURL(resolve('oidc-provider')));

const server = createServer();
server.listen(0, HOST);
await once(server, 'listening');
const url = `http://${HOST}:${server.address().port}`;

const provider = new Provider(url, {
  clients: [{ ...WATCHER, grant_types: [], redirect_uris: [], response_types: [] }],
  cookies: { keys: [randomBytes(32).toString('base64url')] },
  features: {
    devInteractions: { enabled: true },
    introspection: { enabled: true },
    pushedAuthorizationRequests: { enabled: PUSHED, requirePushedAuthorizationRequests: PUSHED },
    revocation: { enabled: true },
  },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  jwks: { keys: [signingKey()] },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: {
    AccessToken: 3600,
    AuthorizationCode: 60,
    Grant: FORTNIGHT,
    IdToken: 3600,
    Interaction: FORTNIGHT, // its cookie lives in a browser whose clock a test has moved
    RefreshToken: FORTNIGHT,
    Session: FORTNIGHT,
  },
});
const serve = provider.callback();

function signingKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), alg: 'RS256', kid: 'interop', use: 'sig' };
}

// --- answers that are held back ----------------------------------------------------------------------------------

const armed = new Map(); // path -> { after, times }
const waiting = new Set(); // { path, end }

function taken(path) {
  const stall = armed.get(path);
  if (stall && --stall.times === 0) armed.delete(path);
  return stall;
}

/** Wait until released (true), or until the client has gone (false). */
function hold(path, socket) {
  return new Promise((resolve) => {
    const held = { path, end };
    function end(released) {
      waiting.delete(held);
      socket.off('close', gone);
      resolve(released);
    }
    const gone = () => end(false);
    socket.once('close', gone);
    waiting.add(held);
    if (socket.destroyed) gone();
  });
}

async function served(req, res, path) {
  const stall = taken(path);
  if (stall && !stall.after && !(await hold(path, req.socket))) {
    return; // its client went away before the server acted: lost on its way
  }
  if (stall?.after) {
    // The server ends its answer when it has acted to the end; that end is what waits.
    const end = res.end.bind(res);
    res.end = (...sent) => {
      hold(path, req.socket).then((released) => (released ? end(...sent) : res.destroy()));
      return res;
    };
  }
  serve(req, res);
}

// --- the ledger: every token that was ever issued, by digest -------------------------------------------------------

const secrets = new Map(); // client_id -> secret
const issued = new Map(); // token -> its line
const KINDS = { 'access_token.saved': 'access', 'refresh_token.saved': 'refresh' };

for (const [event, kind] of Object.entries(KINDS)) {
  provider.on(event, (token) => {
    issued.set(token.jti, {
      kind,
      digest: digestOf(token.jti),
      client_id: token.clientId,
      user: token.accountId,
      family: token.grantId,
      created: Date.now(),
      live: true,
    });
  });
}

function digestOf(token) {
  return createHash('sha256').update(token).digest('hex');
}

/** Ask the server itself, over HTTP, with the client's own credentials. */
async function ask(path, clientId, form) {
  if (!secrets.has(clientId)) throw new RangeError('unknown client');
  const asker = PUSHED ? [WATCHER.client_id, WATCHER.client_secret] : [clientId, secrets.get(clientId)];
  const pair = asker.map(encodeURIComponent).join(':');
  return fetch(url + path, {
    method: 'POST',
    headers: { authorization: `Basic ${Buffer.from(pair).toString('base64')}` },
    body: new URLSearchParams(form),
  });
}

async function isActive(clientId, token) {
  const answer = await ask('/token/introspection', clientId, { token });
  if (answer.status !== 200) throw new RangeError(`introspection answered ${answer.status}`);
  return (await answer.json()).active;
}

/** How a client proves itself: by its secret, or by the key that lies in its place. */
function proof(secret) {
  if (!PUSHED) return { client_secret: secret, token_endpoint_auth_method: 'client_secret_basic' };
  const key = createPublicKey(secret).export({ format: 'jwk' });
  return {
    jwks: { keys: [{ ...key, kid: 'client', use: 'sig' }] },
    token_endpoint_auth_method: 'private_key_jwt',
    token_endpoint_auth_signing_alg: key.kty === 'RSA' ? 'RS256' : 'ES256',
  };
}

const control = {
  /** Register, or change, a confidential client of the code flow. */
  async register({ client_id: id, secret, redirect_uris: uris, name }) {
    const metadata = {
      client_id: id,
      client_name: name ?? id,
      ...proof(secret),
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: uris,
      response_types: ['code'],
      scope: 'openid offline_access',
    };
    const client = new provider.Client(metadata); // refuses what it would refuse of any client
    await provider.Client.adapter.upsert(id, client.metadata());
    secrets.set(id, secret);
    return { client_id: id };
  },

  /** Hold the next answers of a path back: after the server has acted, or before. */
  stall({ path, after = true, times = 1 }) {
    if (typeof path !== 'string' || !path.startsWith('/') || typeof after !== 'boolean' || !Number.isInteger(times)) {
      throw new RangeError('a stall is {"path": "/…", "after": true|false, "times": n}');
    }
    armed.delete(path);
    if (times > 0) armed.set(path, { after, times });
    return { armed: path };
  },

  stalled() {
    const paths = [...waiting].map(({ path }) => path);
    return { count: paths.length, paths };
  },

  release() {
    const held = [...waiting];
    held.forEach(({ end }) => end(true));
    return { released: held.length };
  },

  /** The server's own word (RFC 7662) on a token that it issued. */
  async introspect({ token }) {
    const line = issued.get(token);
    return { active: line ? await isActive(line.client_id, token) : false };
  },

  /** A refresh with a token that only the server knows, at its own token endpoint: the newest, or that of a digest. */
  async 'try-refresh'({ client_id: id, digest, username }) {
    const [token, line] = [...issued].findLast(
      ([, each]) =>
        each.kind === 'refresh' &&
        each.client_id === id &&
        each.digest === (digest ?? each.digest) &&
        each.user === (username ?? each.user),
    ) ?? [null, null];
    if (line === null) throw new RangeError('this client never got such a refresh token');
    const answer = await ask('/token', id, { grant_type: 'refresh_token', refresh_token: token });
    const { error = null } = await answer.json();
    return { accepted: answer.status === 200, status: answer.status, error, digest: line.digest };
  },

  /** What was issued, oldest first; `live` is what introspection says. A token that died does not come back. */
  async ledger() {
    const tokens = [];
    for (const [token, line] of issued) {
      if (line.live) line.live = await isActive(line.client_id, token);
      tokens.push(line);
    }
    return { tokens };
  },
};

const READS = new Set(['stalled', 'ledger']);

async function controlled(req, name) {
  const action = Object.hasOwn(control, name) ? control[name] : undefined;
  if (!action || req.method !== (READS.has(name) ? 'GET' : 'POST')) return [404, { error: 'no such control path' }];
  // A page of another origin cannot send this content type unasked.
  if (req.method === 'POST' && req.headers['content-type'] !== 'application/json') {
    return [405, { error: 'POST of application/json only' }];
  }
  try {
    return [200, await action(req.method === 'POST' ? JSON.parse(await bodyOf(req)) : undefined)];
  } catch (fault) {
    return [400, { error: fault.error_description ?? fault.message }];
  }
}

async function bodyOf(req) {
  const parts = [];
  let length = 0;
  for await (const part of req) {
    length += part.length;
    if (length > LONGEST_BODY) throw new RangeError('too long');
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

// --- serving: one log line a request; a query may hold a code or a state, so it is never in it -----------------------

server.on('request', async (req, res) => {
  const path = req.url.split('?', 1)[0];
  const begun = Date.now();
  res.once('close', () => console.error(`oidc-provider ${req.method} ${path} ${res.statusCode} ${Date.now() - begun} ms`));
  if (!path.startsWith(CONTROL)) {
    await served(req, res, path);
    return;
  }
  const [status, content] = await controlled(req, path.slice(CONTROL.length));
  res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(content));
});

process.once('SIGTERM', () => {
  server.close();
  server.closeAllConnections();
});

console.log(JSON.stringify({ ready: 'oidc-provider', url }));
