// Keeps all files of an export, so that the page works offline, and adds the headers that threads need. The export
// writes VERSION and FILES, a hash for each name, above this line. After a new export, the browser installs
// the new service worker. It waits until the page sends the message "take over"; until then, the old files are used.

const CACHE = `${self.registration.scope}#${VERSION}`;
const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
};

self.addEventListener("install", (event) => event.waitUntil(install()));

self.addEventListener("activate", (event) => event.waitUntil(activate()));

self.addEventListener("message", ({ data }) => {
  if (data === "take over") self.skipWaiting();
});

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method === "GET" && url.href.startsWith(self.registration.scope)) event.respondWith(answer(event, url));
});

async function install() {
  const cache = await caches.open(CACHE);
  const missing = [];
  for (const [name, hash] of Object.entries(FILES)) {
    const url = address(name, hash);
    if (await cache.match(url)) continue;
    const old = await caches.match(url); // The same file of an earlier export.
    if (old) await cache.put(url, old);
    else missing.push(url);
  }
  await Promise.all(missing.map((url) => fetchInto(cache, url)));
}

/** Takes a file from the browser's cache, where the page has left it, or from the server. */
async function fetchInto(cache, url) {
  for (const mode of ["default", "reload"]) {
    const response = await fetch(url, { cache: mode });
    if (response.ok && (await hasHash(response.clone(), url.split("?").pop()))) return cache.put(url, response);
  }
  throw new Error(`${url} is missing or belongs to another export.`);
}

async function hasHash(response, expected) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await response.arrayBuffer()));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("").startsWith(expected);
}

async function activate() {
  for (const name of await caches.keys()) {
    if (name.startsWith(`${self.registration.scope}#`) && name !== CACHE) await caches.delete(name);
  }
  await self.clients.claim();
}

async function answer(event, url) {
  const name = url.pathname.slice(new URL(self.registration.scope).pathname.length) || "index.html";
  const cache = await caches.open(CACHE);
  const kept = name in FILES && (await cache.match(address(name, FILES[name])));
  const response = kept || (await fetch(event.request));
  if (response.type === "opaque" || response.type === "opaqueredirect") return response;
  const headers = new Headers(response.headers);
  for (const [header, value] of Object.entries(HEADERS)) headers.set(header, value);
  // The body that is kept is not compressed any more.
  if (kept) headers.delete("Content-Encoding");
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}

function address(name, hash) {
  return new URL(`${name}?${hash}`, self.registration.scope).href;
}
