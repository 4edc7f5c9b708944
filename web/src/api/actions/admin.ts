// What the page Admin does. Each fails with a Problem that says why it was refused.
import { request, type Schemas } from "../client";

export function putUser(user: string, body: Schemas["UserRequest"]) {
  return request("put", "/api/v1/users/{user}", { path: { user }, body });
}

export function createToken(body: Schemas["TokenRequest"]) {
  return request("post", "/api/v1/tokens", { body });
}

export function revokeToken(token: string) {
  return request("delete", "/api/v1/tokens/{token}", { path: { token } });
}

/** Sets the quota of user/NAME, project/NAME, each/user or each/project. */
export function putQuota(subject: string, body: Schemas["QuotaRequest"]) {
  return request("put", "/api/v1/quotas/{kind}/{name}", { path: pathOf(subject), body });
}

export function removeQuota(subject: string) {
  return request("delete", "/api/v1/quotas/{kind}/{name}", { path: pathOf(subject) });
}

function pathOf(subject: string): { kind: "user" | "project" | "each"; name: string } {
  const [kind, ...name] = subject.split("/");

  return { kind: kind as "user" | "project" | "each", name: name.join("/") };
}
