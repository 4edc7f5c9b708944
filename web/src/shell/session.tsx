import { useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState, type ReactNode } from "react";

import { mayPass, onSignedOut, Problem, request, tryAgainAfter, type Whoami } from "../api/client";
import { whoami } from "../api/queries";
import { ProblemNotice } from "../ui/notice";
import { SignIn } from "./signin";

const Session = createContext<Whoami | undefined>(undefined);

/** useUser returns who is signed in. Pages are only shown to somebody who is. */
export function useUser(): Whoami {
  const who = useContext(Session);
  if (!who) throw new Error("useUser outside of a session");

  return who;
}

/** useMayChange reports whether somebody may change jobs: viewers, and sessions of tokens to read, only look. */
export function useMayChange(): boolean {
  const { role, scope } = useUser();

  return role !== "viewer" && scope !== "read";
}

/** The code of a link that signs in. It is after the #, which is sent to no server, and leaves the address at once. */
function takeCode(): string {
  const code = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  if (code !== "") history.replaceState(null, "", location.pathname + location.search);

  return code;
}

/** SessionGate shows its children to who is signed in, and the page to sign in to everybody else. */
export function SessionGate({ children }: { children: ReactNode }) {
  const cache = useQueryClient();
  const [code] = useState(takeCode);
  const [linkProblem, setLinkProblem] = useState<Problem>();
  const [trying, setTrying] = useState(code !== "");
  const who = useQuery({
    ...whoami,
    enabled: !trying,
    retry: false,
    refetchInterval: (q) => (mayPass(q.state.error) ? tryAgainAfter : false),
  });

  useEffect(() => {
    if (code === "") return;

    request("post", "/api/v1/session", { body: { code } })
      .then((me) => { cache.setQueryData(whoami.queryKey, me); })
      .catch((p: unknown) => { if (p instanceof Problem) setLinkProblem(p); })
      .finally(() => { setTrying(false); });
  }, [code, cache]);

  useEffect(
    () =>
      onSignedOut(() => {
        if (!cache.getQueryData(whoami.queryKey)) return;

        void cache.resetQueries({ queryKey: whoami.queryKey });
        cache.removeQueries({ predicate: (q) => q.queryKey[0] !== "whoami" }); // it is not for the next user
      }),
    [cache],
  );

  if (who.data) return <Session.Provider value={who.data}>{children}</Session.Provider>;
  if (trying || who.isPending) return <Connecting />;
  if (who.error.status !== 401) {
    return (
      <main className="alone">
        <h1>Trainyard</h1>
        <ProblemNotice problem={who.error} onRetry={() => void who.refetch()} />
      </main>
    );
  }

  return <SignIn problem={linkProblem} onSignedIn={(me) => { cache.setQueryData(whoami.queryKey, me); }} />;
}

/** What is shown until it is known who looks: on a slow link that takes a while. */
function Connecting() {
  return (
    <main className="alone" aria-busy="true">
      <h1>Trainyard</h1>
      <p className="faint" role="status">Connecting…</p>
    </main>
  );
}

/** Ends the session of this browser, or all of the user. */
export async function signOut(everywhere: boolean): Promise<void> {
  if (everywhere) await request("delete", "/api/v1/sessions");
  else await request("delete", "/api/v1/session");

  location.reload();
}
