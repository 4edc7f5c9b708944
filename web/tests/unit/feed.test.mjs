import assert from "node:assert/strict";
import { after, test } from "node:test";

import { close, load } from "./kit.mjs";

const { Feed } = await load("/src/api/feed.ts");
after(close);

/** Which resources are asked for again after an event. */
function changedBy(t, kind) {
  const asked = [];
  const feed = new Feed({
    isFetching: () => 0,
    invalidateQueries: ({ queryKey }) => { asked.push(...queryKey); },
  });

  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.now() });
  feed.take({ cursor: "", kind: "", data: JSON.stringify({ kind }) });
  t.mock.timers.tick(60_000);
  t.mock.timers.reset();

  return asked;
}

test("jobs and nodes are asked for again when a share is not what it should be", (t) => {
  const asked = changedBy(t, "share.short");
  assert.ok(asked.includes("jobs") && asked.includes("nodes"), asked.join(", "));
  assert.ok(!asked.includes("queue"), "an event about a share changes no queue");
});
