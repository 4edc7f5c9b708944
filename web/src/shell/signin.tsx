import { useState, type SubmitEvent } from "react";

import { Problem, request, type Whoami } from "../api/client";
import styles from "./signin.module.css";

/** SignIn asks for an access token. A yard that knows its users from elsewhere will have its button here. */
export function SignIn({ problem, onSignedIn }: { problem: Problem | undefined; onSignedIn: (who: Whoami) => void }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState(problem);

  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    setBusy(true);
    setRefused(undefined);

    try {
      onSignedIn(await request("post", "/api/v1/session", { body: { token: token.trim() } }));
    } catch (p) {
      if (p instanceof Problem) setRefused(p);
    } finally {
      setBusy(false);
    }
  };

  return (
    <main className="alone">
      <h1>Trainyard</h1>
      <form className={styles.form} onSubmit={(e) => void submit(e)}>
        <label htmlFor="token">Access token</label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          autoFocus
          required
          placeholder="ty_…"
          value={token}
          aria-describedby="token-help"
          onChange={(e) => { setToken(e.target.value); }}
        />
        <button className="primary" disabled={busy}>{busy ? "Signing in…" : "Sign in"}</button>
      </form>
      {refused && (
        <p role="alert" className={styles.refused}>
          {refused.message}
          {refused.remedy !== "" && <span className="faint">: {refused.remedy}</span>}
        </p>
      )}
      <p id="token-help" className="faint">
        Create one where you are logged in: <code>trainyard tokens create --scope submit</code>. This browser stays
        signed in as long as the token is valid, at most 30 days.
      </p>
    </main>
  );
}
