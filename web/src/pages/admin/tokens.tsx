import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";

import { createToken, revokeToken } from "../../api/actions/admin";
import type { Schemas } from "../../api/client";
import { tokens } from "../../api/queries/admin";
import { useQueryString } from "../../route/route";
import { useUser } from "../../shell/session";
import { CopyButton } from "../../ui/copy";
import { ago, count, time } from "../../ui/format";
import { More } from "../../ui/more";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./admin.module.css";
import { Field, Form, Refusal, textOf, useAct } from "./form";

type Token = Schemas["Token"];
type Kind = Schemas["TokenRequest"]["kind"];
type Scope = NonNullable<Schemas["TokenRequest"]["scope"]>;

const scopes: { value: Scope; help: string }[] = [
  { value: "read", help: "look, change nothing" },
  { value: "submit", help: "submit and change jobs" },
  { value: "tokens", help: "and create tokens" },
  { value: "admin", help: "everything the user may do" },
];

/** Tokens are what programs and browsers show to be let in. */
export function Tokens() {
  const who = useUser();
  const [query, setQuery] = useQueryString();
  const admin = who.role === "admin" && who.scope === "admin";
  const owner = admin ? (query.get("owner") ?? "") : who.user;
  const [fresh, setFresh] = useState<Schemas["NewToken"]>();

  if (who.scope === "read") {
    return (
      <Notice title="This session cannot show tokens">
        <p>It has the scope read. Sign in with a token of scope submit to see yours, of scope tokens to create some.</p>
      </Notice>
    );
  }

  return (
    <>
      {fresh && <Fresh token={fresh} onDone={() => { setFresh(undefined); }} />}
      {who.scope === "tokens" || who.scope === "admin"
        ? <Create me={who.user} admin={admin} owner={owner === "" ? who.user : owner} onCreated={setFresh} />
        : <p className="faint">To create tokens, sign in with a token of scope tokens or admin.</p>}
      {admin && owner !== "" && (
        <p>
          Tokens of <bdi>{owner}</bdi>.{" "}
          <button onClick={() => { setQuery((q) => { q.delete("owner"); }); }}>Show those of everybody</button>
        </p>
      )}
      <List owner={owner} current={who.token} mayRevoke={who.scope === "tokens" || who.scope === "admin"} />
    </>
  );
}

/** Fresh shows a token once. */
function Fresh({ token: t, onDone }: { token: Schemas["NewToken"]; onDone: () => void }) {
  return (
    <section className={styles.fresh} aria-label="New token">
      <p><b>This is the new {t.kind} token of {t.owner}. It is shown only now: copy it.</b></p>
      <p className={styles.secret}>
        <input readOnly value={t.text} aria-label="The token" onFocus={(e) => { e.target.select(); }} />
        <CopyButton text={() => t.text} primary />
        <button onClick={onDone}>Done</button>
      </p>
    </section>
  );
}

function Create({ me, admin, owner, onCreated }: {
  me: string;
  admin: boolean;
  owner: string;
  onCreated: (t: Schemas["NewToken"]) => void;
}) {
  const [kind, setKind] = useState<Kind>("access");
  const create = useAct(createToken, "tokens");
  const submit = async (f: FormData) => {
    const made = await create.mutateAsync({
      kind,
      ttl: textOf(f, "ttl"),
      note: textOf(f, "note"),
      ...(kind === "join" ? { uses: Number(textOf(f, "uses")) } : {
        owner: textOf(f, "owner") === "" ? me : textOf(f, "owner"),
        scope: textOf(f, "scope") as Scope,
      }),
    });
    onCreated(made);
  };

  return (
    <Form title="Create a token" action="Create" busy={create.isPending} problem={create.error} onSubmit={submit}>
      {admin && (
        <Field label="Kind">
          <select value={kind} onChange={(e) => { setKind(e.target.value as Kind); }}>
            <option value="access">access: for a person, a program or a browser</option>
            <option value="bootstrap">bootstrap: for the first login of somebody</option>
            <option value="join">join: for machines that become nodes</option>
          </select>
        </Field>
      )}
      {admin && kind !== "join" && (
        <Field label="Owner">
          <input name="owner" defaultValue={owner} required maxLength={63} autoComplete="off" />
        </Field>
      )}
      {kind !== "join" && (
        <Field label="Scope">
          <select name="scope" defaultValue={kind === "bootstrap" ? "tokens" : "submit"}>
            {scopes.filter((s) => admin || s.value !== "admin").map((s) => (
              <option key={s.value} value={s.value}>{s.value}: {s.help}</option>
            ))}
          </select>
        </Field>
      )}
      {kind === "join" && (
        <Field label="Nodes" hint="how many may join with it">
          <input name="uses" type="number" min={1} max={10_000} defaultValue={1} required />
        </Field>
      )}
      <Field label="Lifetime" hint="e.g. 30d, 12h">
        <input name="ttl" key={kind} defaultValue={kind === "access" ? "30d" : "1h"} required maxLength={20} />
      </Field>
      <Field label="Note" hint="what it is for"><input name="note" maxLength={200} autoComplete="off" /></Field>
    </Form>
  );
}

function List({ owner, current, mayRevoke }: { owner: string; current: string; mayRevoke: boolean }) {
  const [query, setQuery] = useQueryString();
  const list = useInfiniteQuery(tokens(owner));
  const now = useNow();
  const revoke = useAct(revokeToken, "tokens");
  const all = list.data?.pages.flatMap((p) => p.tokens) ?? [];
  const isOver = (t: Token) => t.revoked || Date.parse(t.expires) < now;
  const shown = query.has("ended") ? all : all.filter((t) => !isOver(t));

  if (list.error) return <ProblemNotice problem={list.error} onRetry={() => void list.refetch()} />;
  if (list.isPending) return <p className="faint" aria-busy="true">Loading…</p>;

  const columns: Column<Token>[] = [
    { id: "id", name: "Token", lead: true, cell: (t) => <code>{t.id}</code> },
    { id: "owner", name: "Owner", lead: true, sort: (t) => t.owner, cell: (t) => <bdi>{t.owner}</bdi> },
    { id: "kind", name: "Kind", sort: (t) => t.kind, cell: (t) => (t.session ? "browser" : t.kind) },
    {
      id: "scope", name: "Scope", sort: (t) => t.scope ?? "",
      cell: (t) => t.scope ?? (t.class ? `${t.class} nodes` : ""),
    },
    { id: "note", name: "Note", sort: (t) => t.note ?? "", cell: (t) => <bdi>{t.note}</bdi> },
    {
      id: "used", name: "Last used", sort: (t) => t.last_used ?? "",
      cell: (t) => (t.last_used ? ago(t.last_used, now) : <span className="faint">not since the start</span>),
    },
    {
      id: "expires", name: "Expires", sort: (t) => t.expires,
      cell: (t) => (t.revoked ? <span className={styles.off}>revoked</span> : time(t.expires, now)),
    },
    {
      id: "act", name: "", cell: (t) => {
        if (t.id === current) return <span className="faint">this session</span>;
        if (isOver(t) || !mayRevoke) return null;

        return (
          <button
            aria-label={`Revoke ${t.id}`}
            disabled={revoke.isPending}
            onClick={() => {
              if (confirm(`Revoke ${t.id} of ${t.owner}? It ends at once, with all that was created with it.`)) {
                revoke.mutate(t.id);
              }
            }}
          >
            Revoke
          </button>
        );
      },
    },
  ];

  return (
    <>
      <div className={styles.line}>
        <span>{count(all.filter((t) => !isOver(t)).length, "valid token")}{list.hasNextPage ? " and more" : ""}</span>
        <label>
          <input
            type="checkbox"
            checked={query.has("ended")}
            onChange={(e) => { setQuery((q) => { q.set("ended", e.target.checked ? "1" : ""); }); }}
          />{" "}
          also revoked and expired ones
        </label>
      </div>
      <Refusal problem={revoke.error} />
      <Table label="Tokens" columns={columns} rows={shown} id={(t) => t.id} sortIn="sort" />
      <More list={list} />
    </>
  );
}
