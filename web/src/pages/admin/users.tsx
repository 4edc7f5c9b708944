import { useInfiniteQuery } from "@tanstack/react-query";

import { putUser } from "../../api/actions/admin";
import type { Schemas } from "../../api/client";
import { users } from "../../api/queries/admin";
import { Link } from "../../route/link";
import { useUser } from "../../shell/session";
import { ago, count } from "../../ui/format";
import { More } from "../../ui/more";
import { Notice, ProblemNotice } from "../../ui/notice";
import { useNow } from "../../ui/now";
import { Table, type Column } from "../../ui/table";
import styles from "./admin.module.css";
import { Field, Form, Refusal, textOf, useAct } from "./form";

type User = Schemas["User"];
type Change = Schemas["UserRequest"] & { id: string };
type Role = Schemas["UserRequest"]["role"];

const roles: { value: Role; help: string }[] = [
  { value: "researcher", help: "submits jobs and sees their own" },
  { value: "viewer", help: "sees the jobs of their projects" },
  { value: "operator", help: "sees everything, and changes nodes" },
  { value: "admin", help: "does everything" },
];

/** Users are who may use the yard. Only admins see and change them. */
export function Users() {
  const who = useUser();
  if (who.role !== "admin" || who.scope !== "admin") return <NotAllowed role={who.role} scope={who.scope} />;

  return <List me={who.user} />;
}

function NotAllowed({ role, scope }: { role: string; scope: string }) {
  return (
    <Notice title="Users are managed by admins">
      <p>
        {role === "admin"
          ? `You are an admin, but this session has the scope ${scope}: sign in with a token of scope admin.`
          : "Ask an admin to add a user or to change a role. Your own tokens are under Tokens."}
      </p>
    </Notice>
  );
}

function List({ me }: { me: string }) {
  const list = useInfiniteQuery(users);
  const now = useNow();
  const put = useAct(({ id, ...body }: Change) => putUser(id, body), "users", "tokens");
  const all = list.data?.pages.flatMap((p) => p.users) ?? [];

  if (list.error) return <ProblemNotice problem={list.error} onRetry={() => void list.refetch()} />;
  if (list.isPending) return <p className="faint" aria-busy="true">Loading…</p>;

  const change = (u: User, body: Partial<Schemas["UserRequest"]>) => {
    put.mutate({ id: u.id, role: u.role as Role, disabled: u.disabled, ...body });
  };

  const columns: Column<User>[] = [
    { id: "name", name: "User", lead: true, sort: (u) => u.id, cell: (u) => <bdi>{u.id}</bdi> },
    {
      id: "role", name: "Role", lead: true, sort: (u) => u.role,
      cell: (u) => (u.id === me ? u.role : (
        <select
          aria-label={`Role of ${u.id}`}
          value={u.role}
          disabled={put.isPending}
          onChange={(e) => { change(u, { role: e.target.value as Role }); }}
        >
          {roles.map((r) => <option key={r.value} value={r.value}>{r.value}</option>)}
        </select>
      )),
    },
    {
      id: "usage", name: "Recent usage", figure: true, sort: (u) => u.usage,
      cell: (u) => `${(u.usage / 3600).toFixed(1)} GPU-h`,
    },
    { id: "created", name: "Added", sort: (u) => u.created, cell: (u) => ago(u.created, now) },
    {
      id: "state", name: "State", sort: (u) => String(u.disabled),
      cell: (u) => (u.disabled ? <span className={styles.off}>disabled</span> : "active"),
    },
    {
      id: "act", name: "", cell: (u) => (
        <span className={styles.actions}>
          <Link to="admin" query={{ tab: "tokens", owner: u.id }}>Tokens</Link>
          {u.id !== me && (
            <button
              disabled={put.isPending}
              onClick={() => {
                if (u.disabled || confirm(`Disable ${u.id}? Their tokens stop working; their jobs go on.`)) {
                  change(u, { disabled: !u.disabled });
                }
              }}
            >
              {u.disabled ? "Enable" : "Disable"}
            </button>
          )}
        </span>
      ),
    },
  ];

  const off = all.filter((u) => u.disabled).length;

  return (
    <>
      <p>
        {count(all.length, "user")}{list.hasNextPage ? " and more" : ""}
        {off > 0 && `, ${off} disabled`}. Fair share is based on recent usage, which decays with a half-life of a week.
      </p>
      <Form
        title="Add a user"
        action="Add"
        busy={put.isPending}
        problem={put.error}
        onSubmit={(f) => put.mutateAsync({ id: textOf(f, "id"), role: textOf(f, "role") as Role })}
      >
        <Field label="Name" hint="lower-case letters, digits, - and _">
          <input name="id" required maxLength={63} autoComplete="off" />
        </Field>
        <Field label="Role">
          <select name="role">
            {roles.map((r) => <option key={r.value} value={r.value}>{r.value}: {r.help}</option>)}
          </select>
        </Field>
      </Form>
      <p className="faint">A new user signs in with a token that you create for them under Tokens.</p>
      <Refusal problem={put.error} />
      <Table label="Users" columns={columns} rows={all} id={(u) => u.id} sortIn="sort" />
      <More list={list} />
    </>
  );
}
