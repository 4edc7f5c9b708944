import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { mayPass, Problem, tryAgainAfter } from "./api/client";
import { SessionGate } from "./shell/session";
import { Shell } from "./shell/shell";
import { applyTheme } from "./ui/theme";
import "./styles/base.css";

applyTheme();

const cache = new QueryClient({
  defaultOptions: {
    mutations: { networkMode: "always" },
    queries: {
      // The yard may be on this very machine, and a browser that says that it is offline reaches it all the same.
      networkMode: "always",
      staleTime: 30_000, // events say what has changed before
      gcTime: 300_000,
      refetchOnWindowFocus: false,
      // What the server refuses it refuses again, unless it was busy.
      retry: (failures, problem) => {
        const refused = problem instanceof Problem && problem.status < 500 && !mayPass(problem);

        return !refused && failures < 2;
      },
      // A problem that passes is not left on the screen until something happens in the yard.
      refetchInterval: (query) => (mayPass(query.state.error) ? tryAgainAfter : false),
    },
  },
});

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no element root");

createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={cache}>
      <SessionGate>
        <Shell />
      </SessionGate>
    </QueryClientProvider>
  </StrictMode>,
);
