import { useQuery } from "@tanstack/react-query";

import { readiness, serverInfo } from "../../api/queries/admin";
import { duration } from "../../ui/format";
import { useNow } from "../../ui/now";
import { Tabs } from "../../ui/tabs";
import { Limits } from "./limits";
import { Policy } from "./policy";
import { Providers } from "./providers";
import { Server } from "./server";
import { Tokens } from "./tokens";
import { Users } from "./users";

/** Admin is who may use the yard and with what, what limits them, and how the server is set up. */
export function Admin() {
  return (
    <>
      <Headline />
      <Tabs
        name="tab"
        tabs={[
          { id: "users", title: "Users", view: () => <Users /> },
          { id: "tokens", title: "Tokens", view: () => <Tokens /> },
          { id: "limits", title: "Quotas and budgets", view: () => <Limits /> },
          { id: "providers", title: "Providers", view: () => <Providers /> },
          { id: "policy", title: "Policy", view: () => <Policy /> },
          { id: "server", title: "Server and storage", view: () => <Server /> },
        ]}
      />
    </>
  );
}

/** Headline says in a sentence how the server is. */
function Headline() {
  const info = useQuery(serverInfo);
  const ready = useQuery(readiness);
  const now = useNow();
  if (!info.data) return <h1>Administration</h1>;

  const up = duration(Math.max(0, now - Date.parse(info.data.started)) / 1000);
  const policy = info.data.policy.split(":")[0];
  const fault = ready.data && !ready.data.ready ? `, but it is not ready: ${ready.data.text}` : "";

  return <h1>The server has been up for {up}, version {info.data.version}, with policy {policy}{fault}</h1>;
}
