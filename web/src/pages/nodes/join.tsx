import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { joinToken, type JoinWish } from "../../api/actions/yard";
import { classes, classOf } from "../../ui/node";
import { count, time } from "../../ui/format";
import { useNow } from "../../ui/now";
import styles from "./nodes.module.css";

const lives = [["1h", "1 hour"], ["8h", "8 hours"], ["24h", "1 day"], ["7d", "7 days"]] as const;

/** Join makes a token with which machines join, and shows the one command for them. */
export function Join({ onClose }: { onClose: () => void }) {
  const [wish, setWish] = useState<JoinWish>({ class: "local", pool: "", uses: 1, ttl: "1h" });
  const make = useMutation({ mutationFn: joinToken });

  return (
    <section className={styles.join} aria-labelledby="join-title">
      <h2 id="join-title">Add a node</h2>
      {make.data ? <Command token={make.data} /> : (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            make.mutate(wish);
          }}
        >
          <label>
            Class{" "}
            <select
              value={wish.class}
              onChange={(e) => { setWish({ ...wish, class: e.target.value as JoinWish["class"] }); }}
            >
              {classes.map((c) => <option key={c} value={c}>{classOf(c)}</option>)}
            </select>
          </label>
          <label>
            Pool{" "}
            <input
              value={wish.pool}
              maxLength={63}
              placeholder="none"
              onChange={(e) => { setWish({ ...wish, pool: e.target.value.trim() }); }}
            />
          </label>
          <label>
            Machines{" "}
            <input
              type="number"
              min={1}
              max={10000}
              required
              value={wish.uses}
              onChange={(e) => { setWish({ ...wish, uses: Number(e.target.value) }); }}
            />
          </label>
          <label>
            Valid for{" "}
            <select value={wish.ttl} onChange={(e) => { setWish({ ...wish, ttl: e.target.value }); }}>
              {lives.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
            </select>
          </label>
          <button className="primary" disabled={make.isPending}>Make the command</button>
          <button type="button" onClick={onClose}>Cancel</button>
        </form>
      )}
      {make.error && <p role="alert" className={styles.refused}>{make.error.message}</p>}
      {make.data && <button onClick={onClose}>Done</button>}
    </section>
  );
}

/** The command to copy. The token is not on the command line of the agent, where others on the machine would see it. */
function Command({ token }: { token: Awaited<ReturnType<typeof joinToken>> }) {
  const now = useNow();
  const [copied, setCopied] = useState("");
  const server = token.servers?.[0] ?? document.baseURI.replace(/\/$/, "");
  const command = `echo ${token.text} | trainyard agent join ${server} --token -`;

  const copy = () => {
    navigator.clipboard.writeText(command)
      .then(() => { setCopied("Copied"); })
      .catch(() => { setCopied("The browser does not allow it: select the command and copy it"); });
  };

  return (
    <>
      <p>
        Run this on the machine, with <code>trainyard</code> installed. It appears in the table when it has joined.
      </p>
      <pre className={styles.command} tabIndex={0} aria-label="Command">{command}</pre>
      <p>
        <button onClick={copy}>Copy</button> <span role="status">{copied}</span>
      </p>
      <p className="faint">
        Shown only once. It lets {count(token.uses_left ?? 1, "machine")} join until {time(token.expires, now)}
        {token.parent && ", and ends when you sign out"}. To revoke it:{" "}
        <code>trainyard tokens revoke {token.id}</code>
      </p>
    </>
  );
}
