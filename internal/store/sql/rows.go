package sql

import (
	"encoding/json"
	"fmt"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var nodeTable = &table{
	name:  "nodes",
	key:   "id",
	guard: true,
	columns: []string{
		"id",
		"seq",
		"class",
		"pool",
		"state",
		"since",
		"reason",
		"cordoned",
		"joined",
		"machine_key",
		"inventory",
		"lease",
		"identity",
	},
	fixed: []string{"id"},
}

func nodeRow(args []any, n *fleet.Node) ([]any, error) {
	inventory, err := json.Marshal(n.Inventory)
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", n.ID, err)
	}

	identity, err := json.Marshal(n.Identity)
	if err != nil {
		return nil, fmt.Errorf("encode the identity of node %s: %w", n.ID, err)
	}

	return append(
		args,
		clean(string(n.ID)),
		int64(n.Seq),
		string(n.Class),
		clean(n.Pool),
		string(n.State),
		micros(n.Since),
		clean(n.Reason),
		n.Cordoned,
		micros(n.Joined),
		clean(n.Key),
		string(inventory),
		string(n.Lease),
		string(identity),
	), nil
}

func readNode(row scanner) (fleet.Node, error) {
	var n fleet.Node
	var inventory, identity string
	err := row.Scan((*string)(&n.ID), &n.Seq, (*string)(&n.Class), &n.Pool, (*string)(&n.State), timeColumn{&n.Since},
		&n.Reason, &n.Cordoned, timeColumn{&n.Joined}, &n.Key, &inventory, (*string)(&n.Lease), &identity)
	if err != nil {
		return fleet.Node{}, err
	}
	if err := decodeList(inventory, &n.Inventory); err != nil {
		return fleet.Node{}, fmt.Errorf("decode node %s: %w", n.ID, err)
	}
	if err := decodeList(identity, &n.Identity); err != nil {
		return fleet.Node{}, fmt.Errorf("decode the identity of node %s: %w", n.ID, err)
	}

	return n, nil
}

var userTable = &table{
	name: "users", key: "id", guard: true,
	columns: []string{"id", "seq", "role", "created", "disabled", "gpu_seconds", "gpu_seconds_at", "extras", "number"},
	fixed:   []string{"id"},
}

// userExtras is the JSON of the column extras of a user.
type userExtras struct {
	MaxPriority *int `json:"max_priority,omitempty"`
}

func userRow(args []any, u *tenant.User) ([]any, error) {
	extras, err := encodeExtras(userExtras{u.MaxPriority})
	if err != nil {
		return nil, fmt.Errorf("encode user %s: %w", u.ID, err)
	}

	return append(
		args,
		clean(string(u.ID)),
		int64(u.Seq),
		string(u.Role),
		micros(u.Created),
		u.Disabled,
		u.Usage,
		micros(u.UsageAt),
		extras,
		int64(u.Number),
	), nil
}

// encodeExtras encodes what is only read with its row; "" if it is empty.
func encodeExtras(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil || string(text) == "{}" {
		return "", err
	}

	return clean(string(text)), nil
}

func readUser(row scanner) (tenant.User, error) {
	var u tenant.User
	var extras string
	err := row.Scan(
		(*string)(&u.ID),
		&u.Seq,
		(*string)(&u.Role),
		timeColumn{&u.Created},
		&u.Disabled,
		&u.Usage,
		timeColumn{&u.UsageAt},
		&extras,
		&u.Number,
	)
	if err != nil {
		return tenant.User{}, err
	}

	var more userExtras
	if err := decodeList(extras, &more); err != nil {
		return tenant.User{}, fmt.Errorf("decode user %s: %w", u.ID, err)
	}

	u.MaxPriority = more.MaxPriority

	return u, nil
}

var tokenTable = &table{
	name: "tokens", key: "id", guard: true,
	columns: []string{
		"id",
		"seq",
		"kind",
		"owner",
		"hash",
		"scope",
		"note",
		"class",
		"pool",
		"uses_left",
		"created",
		"expires",
		"revoked",
		"lease",
		"extras",
	},
	fixed: []string{"id"},
}

// tokenExtras is the JSON of the column extras of a token.
type tokenExtras struct {
	Parent  id.Token `json:"parent,omitempty"`
	Login   bool     `json:"login,omitempty"`
	Session bool     `json:"session,omitempty"`
}

func tokenRow(args []any, t *tenant.Token) ([]any, error) {
	extras, err := encodeExtras(tokenExtras{Parent: t.Parent, Login: t.Login, Session: t.Session})
	if err != nil {
		return nil, fmt.Errorf("encode token %s: %w", t.ID, err)
	}

	return append(
		args,
		clean(string(t.ID)),
		int64(t.Seq),
		string(t.Kind),
		clean(string(t.Owner)),
		clean(t.Hash),
		string(t.Scope),
		clean(t.Note),
		clean(t.Class),
		clean(t.Pool),
		int64(t.UsesLeft),
		micros(t.Created),
		micros(t.Expires),
		t.Revoked,
		clean(string(t.Lease)),
		extras,
	), nil
}

func readToken(row scanner) (tenant.Token, error) {
	var t tenant.Token
	var extras string
	err := row.Scan(
		(*string)(&t.ID),
		&t.Seq,
		(*string)(&t.Kind),
		(*string)(&t.Owner),
		&t.Hash,
		(*string)(&t.Scope),
		&t.Note,
		&t.Class,
		&t.Pool,
		&t.UsesLeft,
		timeColumn{&t.Created},
		timeColumn{&t.Expires},
		&t.Revoked,
		(*string)(&t.Lease),
		&extras,
	)
	if err != nil {
		return tenant.Token{}, err
	}

	var more tokenExtras
	if err := decodeList(extras, &more); err != nil {
		return tenant.Token{}, fmt.Errorf("decode token %s: %w", t.ID, err)
	}

	t.Parent, t.Login, t.Session = more.Parent, more.Login, more.Session

	return t, nil
}

var eventTable = &table{
	name:   "events",
	key:    "seq",
	frozen: true,
	columns: []string{
		"seq",
		"at",
		"kind",
		"actor",
		"owner",
		"job",
		"run",
		"node",
		"from_state",
		"to_state",
		"reason",
		"lease",
		"hold",
		"not_before",
		"question",
		"token",
		"address",
		"calls",
	},
}

func eventRow(args []any, e *yardmaster.Event) ([]any, error) {
	return append(
		args,
		int64(e.Seq),
		micros(e.At),
		clean(e.Kind),
		clean(e.Actor),
		clean(string(e.Owner)),
		clean(string(e.Job)),
		clean(string(e.Run)),
		clean(string(e.Node)),
		clean(e.From),
		clean(e.To),
		clean(e.Reason),
		clean(string(e.Lease)),
		clean(string(e.Hold)),
		micros(e.NotBefore),
		clean(string(e.Question)),
		clean(string(e.Token)),
		clean(e.Address),
		int64(e.Count),
	), nil
}

func readEvent(row scanner) (yardmaster.Event, error) {
	var e yardmaster.Event
	err := row.Scan(
		&e.Seq,
		timeColumn{&e.At},
		&e.Kind,
		&e.Actor,
		(*string)(&e.Owner),
		(*string)(&e.Job),
		(*string)(&e.Run),
		(*string)(&e.Node),
		&e.From,
		&e.To,
		&e.Reason,
		(*string)(&e.Lease),
		(*string)(&e.Hold),
		timeColumn{&e.NotBefore},
		(*string)(&e.Question),
		(*string)(&e.Token),
		&e.Address,
		&e.Count,
	)

	return e, err
}

var orderTable = &table{
	name: "orders", key: "order_key",
	columns: []string{"order_key", "run", "job", "epoch", "rank", "node", "stop", "launch"},
	fixed:   []string{"order_key"},
}

// orderContent is the JSON of the column launch: what is only read with the whole order.
type orderContent struct {
	job.Launch
	Dump  bool      `json:"dump,omitempty"`
	Save  int       `json:"save,omitempty"`
	Move  string    `json:"move,omitempty"`
	Keeps []id.Node `json:"keeps,omitempty"`

	Suspend job.SuspendOrder `json:"suspend,omitzero"`
	// Peers and Start are of a run on several nodes.
	Peers []int          `json:"peers,omitempty"`
	Start *job.GangStart `json:"start,omitempty"`
}

func orderRow(args []any, o *yardmaster.Order) ([]any, error) {
	launch, err := json.Marshal(orderContent{o.Launch, o.Dump, o.Save, o.Move, o.Keeps, o.Suspend, o.Peers, o.Start})
	if err != nil {
		return nil, fmt.Errorf("encode order %s: %w", o.Key(), err)
	}

	return append(
		args,
		o.Key(),
		clean(string(o.Run)),
		clean(string(o.Job)),
		int64(o.Epoch),
		int64(o.Rank),
		clean(string(o.Node)),
		string(o.Stop),
		string(launch),
	), nil
}

func readOrder(row scanner) (yardmaster.Order, error) {
	var o yardmaster.Order
	var key, launch string

	err := row.Scan(
		&key,
		(*string)(&o.Run),
		(*string)(&o.Job),
		&o.Epoch,
		&o.Rank,
		(*string)(&o.Node),
		(*string)(&o.Stop),
		&launch,
	)
	if err != nil {
		return yardmaster.Order{}, err
	}

	var content orderContent
	if err := decodeList(launch, &content); err != nil {
		return yardmaster.Order{}, fmt.Errorf("decode order %s: %w", key, err)
	}

	o.Launch, o.Dump, o.Save, o.Move, o.Keeps = content.Launch, content.Dump, content.Save, content.Move, content.Keeps
	o.Suspend, o.Peers, o.Start = content.Suspend, content.Peers, content.Start

	return o, nil
}

// No guard: an agent is admitted for good, and the single writer writes admissions in their order.
var agentTable = &table{
	name: "agents", key: "node",
	columns: []string{"node", "process", "machine", "boot", "folder", "started", "host", "path", "since"},
	fixed:   []string{"node"},
}

func agentRow(args []any, a *fleet.Agent) ([]any, error) {
	return append(
		args,
		clean(string(a.Node)),
		clean(a.Process),
		clean(a.Machine),
		clean(a.Boot),
		clean(a.Folder),
		int64(a.Started),
		clean(a.Host),
		clean(a.Path),
		micros(a.Since),
	), nil
}

func readAgent(row scanner) (a fleet.Agent, err error) {
	err = row.Scan((*string)(&a.Node), &a.Process, &a.Machine, &a.Boot, &a.Folder, (*int64)(&a.Started), &a.Host,
		&a.Path, timeColumn{&a.Since})

	return a, err
}

var pastTable = &table{
	name: "past_runs", key: "num", frozen: true,
	columns: []string{"num", "owner", "program", "gpus", "ran"},
}

func pastRow(args []any, r *queue.PastRun) ([]any, error) {
	return append(
		args,
		int64(r.Number),
		clean(string(r.User)),
		clean(r.Program),
		int64(r.GPUs),
		int64(r.Ran),
	), nil
}

func readPast(row scanner) (r queue.PastRun, err error) {
	err = row.Scan(&r.Number, (*string)(&r.User), &r.Program, &r.GPUs, (*int64)(&r.Ran))

	return r, err
}

var incarnationTable = &table{
	name: "incarnations", key: "num",
	columns: []string{"num", "mark", "began", "settled", "reason", "last_job", "last_lease", "last_event", "last_user"},
	fixed:   []string{"num", "mark", "began", "reason", "last_job", "last_lease", "last_event", "last_user"},
}

func incarnationRow(args []any, i *yardmaster.Incarnation) ([]any, error) {
	return append(
		args,
		int64(i.Number),
		clean(string(i.Mark)),
		micros(i.Began),
		micros(i.Settled),
		clean(i.Reason),
		int64(i.Last.Job),
		int64(i.Last.Lease),
		int64(i.Last.Event),
		int64(i.Last.User),
	), nil
}

func readIncarnation(row scanner) (i yardmaster.Incarnation, err error) {
	err = row.Scan(&i.Number, (*string)(&i.Mark), timeColumn{&i.Began}, timeColumn{&i.Settled}, &i.Reason,
		&i.Last.Job, &i.Last.Lease, &i.Last.Event, &i.Last.User)

	return i, err
}
