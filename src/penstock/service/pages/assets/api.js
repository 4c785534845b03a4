// Requests to the controller. A session that has ended shows the login page again.

export class Refused extends Error {}

async function ask(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refused("the controller does not answer");
  }
  if (answer.status === 401) {
    location.reload();
    throw new Refused("logged out");
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(found.error || `the controller answered ${answer.status}`);
  return found;
}

export const get = (path, words = {}) => {
  const said = Object.entries(words).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(said).toString();
  return ask("GET", query ? `${path}?${query}` : path);
};
export const post = (path, body) => ask("POST", path, body === undefined ? {} : body);
export const patch = (path, body) => ask("PATCH", path, body);
export const put = (path, body) => ask("PUT", path, body);

export const at = (...parts) => `/v1/${parts.map(encodeURIComponent).join("/")}`;
