import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { policies } from "../../api/queries/admin";
import { Link } from "../../route/link";
import { ProblemNotice } from "../../ui/notice";
import { Table, type Column } from "../../ui/table";

/** Policy is by which rule jobs are placed, with its parameters. */
export function Policy() {
  const list = useQuery(policies);
  if (list.error) return <ProblemNotice problem={list.error} onRetry={() => void list.refetch()} />;
  if (!list.data) return <p className="faint" aria-busy="true">Loading…</p>;

  const { policy } = list.data;
  const [name, ...values] = policy.split(":");
  const set = new Map(values.map((v) => [v.slice(0, v.indexOf("=")), v.slice(v.indexOf("=") + 1)]));
  const current = list.data.policies.find((p) => p.name === name);

  const params: Column<Schemas["PolicyParam"]>[] = [
    { id: "name", name: "Parameter", lead: true, cell: (p) => <code>{p.name}</code> },
    {
      id: "value", name: "Value", lead: true,
      cell: (p) => {
        const value = set.get(p.name);

        return value === undefined ? <>{p.standard} <span className="faint">default</span></> : <b>{value}</b>;
      },
    },
    { id: "help", name: "Meaning", cell: (p) => p.help },
  ];

  const others: Column<Schemas["PolicyText"]>[] = [
    {
      id: "name", name: "Policy", lead: true,
      cell: (p) => <>{p.name}{p.name === name && <span className="faint"> in force</span>}</>,
    },
    { id: "rule", name: "Rule", cell: (p) => p.rule },
    {
      id: "try", name: "", cell: (p) => (p.name === name ? null : (
        <Link to="whatif" query={{ policy: p.name }} aria-label={`Try ${p.name} in What-if`}>Try</Link>
      )),
    },
  ];

  return (
    <>
      <p>
        <b>{policy}</b> is in force{current ? `: ${current.rule}` : ""}. It is set in the configuration of the server (
        <code>policy</code>) and changes when that starts anew; <Link to="whatif">What-if</Link> shows what another one
        would do with the jobs that are here now.
      </p>
      {current && current.params.length > 0 && (
        <>
          <h2>Parameters</h2>
          <Table label="Parameters of the policy" columns={params} rows={current.params} id={(p) => p.name} />
        </>
      )}
      <h2>All policies</h2>
      <Table label="Policies" columns={others} rows={list.data.policies} id={(p) => p.name} />
    </>
  );
}
