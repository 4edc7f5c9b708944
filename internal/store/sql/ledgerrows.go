package sql

import (
	"encoding/json"
	"fmt"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/ledger"
)

var leaseTable = &table{
	name: "leases", key: "num", guard: true,
	columns: []string{"num", "id", "seq", "state", "owner", "project", "job", "requested", "ended", "doc"},
	fixed:   []string{"num", "id"},
}

func leaseRow(args []any, l *fleet.Lease) ([]any, error) {
	num, ok := l.ID.Number()
	if !ok || int64(num) < 0 {
		return nil, fmt.Errorf("invalid lease id %q", string(l.ID))
	}

	doc, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encode lease %s: %w", l.ID, err)
	}

	return append(
		args,
		int64(num),
		string(l.ID),
		int64(l.Seq),
		string(l.State),
		clean(string(l.Owner)),
		clean(string(l.Project)),
		clean(string(l.Job)),
		micros(l.Requested),
		micros(l.Ended),
		clean(string(doc)),
	), nil
}

func readLease(row scanner) (l fleet.Lease, err error) {
	var doc string
	var skip any
	if err := row.Scan(&skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &doc); err != nil {
		return l, err
	}
	if err := json.Unmarshal([]byte(doc), &l); err != nil {
		return l, fmt.Errorf("decode a lease: %w", err)
	}

	return l, nil
}

var postingTable = &table{
	name: "postings", key: "seq", frozen: true,
	columns: []string{
		"seq", "node", "class", "gpu", "lease", "offer", "from_at", "to_at", "account", "owner", "project", "job", "run",
		"gpus_milli", "node_ms", "gpu_ms", "node_cost", "energy_cost", "energy",
	},
}

func postingRow(args []any, p *ledger.Posting) ([]any, error) {
	return append(
		args,
		int64(p.Seq),
		clean(string(p.Node)),
		string(p.Class),
		clean(p.GPU),
		string(p.Lease),
		clean(p.Offer),
		micros(p.From),
		micros(p.To),
		string(p.Account),
		clean(string(p.Owner)),
		clean(string(p.Project)),
		string(p.Job),
		string(p.Run),
		p.GPUs,
		int64(p.NodeTime),
		int64(p.GPUTime),
		int64(p.NodeCost),
		int64(p.EnergyCost),
		int64(p.Energy),
	), nil
}

func readPosting(row scanner) (p ledger.Posting, err error) {
	err = row.Scan(
		&p.Seq,
		(*string)(&p.Node),
		(*string)(&p.Class),
		&p.GPU,
		(*string)(&p.Lease),
		&p.Offer,
		timeColumn{&p.From},
		timeColumn{&p.To},
		(*string)(&p.Account),
		(*string)(&p.Owner),
		(*string)(&p.Project),
		(*string)(&p.Job),
		(*string)(&p.Run),
		&p.GPUs,
		(*int64)(&p.NodeTime),
		(*int64)(&p.GPUTime),
		(*int64)(&p.NodeCost),
		(*int64)(&p.EnergyCost),
		(*int64)(&p.Energy),
	)

	return p, err
}

var savingTable = &table{
	name: "savings", key: "seq", frozen: true,
	columns: []string{"seq", "at", "job", "owner", "project", "kind", "money", "time_ms", "reason"},
}

func savingRow(args []any, s *ledger.Saving) ([]any, error) {
	return append(
		args,
		int64(s.Seq),
		micros(s.At),
		string(s.Job),
		clean(string(s.Owner)),
		clean(string(s.Project)),
		clean(s.Kind),
		int64(s.Money),
		int64(s.Time),
		clean(s.Reason),
	), nil
}

func readSaving(row scanner) (s ledger.Saving, err error) {
	err = row.Scan(
		&s.Seq,
		timeColumn{&s.At},
		(*string)(&s.Job),
		(*string)(&s.Owner),
		(*string)(&s.Project),
		&s.Kind,
		(*int64)(&s.Money),
		(*int64)(&s.Time),
		&s.Reason,
	)

	return s, err
}

var useTable = &table{
	name: "data_uses", key: "dataset, run, node", frozen: true,
	columns: []string{"dataset", "run", "node", "job", "owner", "cloud", "at", "overridden"},
}

func useRow(args []any, u *dataset.Use) ([]any, error) {
	return append(
		args,
		clean(string(u.Dataset)),
		string(u.Run),
		clean(string(u.Node)),
		string(u.Job),
		clean(string(u.Owner)),
		u.Cloud,
		micros(u.At),
		clean(u.Override),
	), nil
}

func readUse(row scanner) (u dataset.Use, err error) {
	err = row.Scan(
		(*string)(&u.Dataset),
		(*string)(&u.Run),
		(*string)(&u.Node),
		(*string)(&u.Job),
		(*string)(&u.Owner),
		&u.Cloud,
		timeColumn{&u.At},
		&u.Override,
	)

	return u, err
}

// record is a small object that is stored as one JSON text.
type record struct {
	kind, id string
	seq      uint64
	doc      string
}

// The kinds of records.
const (
	datasetKind = "dataset"
	quotaKind   = "quota"
	projectKind = "project"
	memberKind  = "member"
	meterKind   = "meter"
	usageKind   = "usage"
	noticeKind  = "notice"
	shareKind   = "share"
	// decisionKind is what is kept of the decisions about a job until it has ended.
	decisionKind = "decision"
	// observedKind is what was learned of a job until it has ended.
	observedKind = "observed"
	// shortageKind is what was learned of the memory that jobs of a kind need.
	shortageKind = "shortage"
	// besideKind is what was learned of kinds of jobs beside others on a GPU.
	besideKind = "beside"
	// secretKind is a secret of a user or project, encrypted.
	secretKind = "secret"
	// channelKind is where a user or project is notified.
	channelKind = "channel"
	// scheduleKind is what submits jobs again and again.
	scheduleKind = "schedule"
	// reservationKind is nodes that are set aside for a user.
	reservationKind = "reservation"
)

// No guard: most of these records have no sequence number, and the single writer writes them in
// order.
var recordTable = &table{
	name: "records", key: "kind, id",
	columns: []string{"kind", "id", "seq", "doc"},
	fixed:   []string{"kind", "id"},
}

func recordRow(args []any, r *record) ([]any, error) {
	return append(args, r.kind, clean(r.id), int64(r.seq), clean(r.doc)), nil
}

func readRecord(row scanner) (r record, err error) {
	err = row.Scan(&r.kind, &r.id, &r.seq, &r.doc)
	return r, err
}

// recordOf encodes an object as a record.
func recordOf(kind, id string, seq uint64, value any) (*record, error) {
	doc, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", kind, id, err)
	}

	return &record{kind: kind, id: id, seq: seq, doc: string(doc)}, nil
}
