package storetest

import (
	"fmt"
	"reflect"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// dayOne is when the samples live. Stores keep microseconds.
var dayOne = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// filler gives every field of a value something of its own, so that a field
// that is not kept is found out, also one that is added later.
type filler struct{ n int }

// fill sets all of v, which must be settable.
func (f *filler) fill(v reflect.Value) {
	f.n++

	switch value := v.Addr().Interface().(type) {
	case *time.Time:
		*value = dayOne.Add(time.Duration(f.n) * time.Second)
		return
	case *job.Duration:
		*value = job.Duration(time.Duration(f.n) * time.Second)
		return
	case *job.Array: // a range or a list
		*value = job.Array{Values: []string{fmt.Sprint("value-", f.n), "0.1"}, Limit: f.n}
		return
	case *job.Speed: // more than its fields: its curves are drawn when it is made
		plain := full[struct {
			Work        float64
			Start, Save time.Duration
			Rates       []job.Rate
		}](f.n)

		*value = *job.NewSpeed(plain.Work, plain.Start.Truncate(time.Millisecond), plain.Save.Truncate(time.Millisecond),
			plain.Rates...)

		return
	}

	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d 'é\"%%", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint64:
		v.SetUint(uint64(f.n))
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 251))
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Interface:
		v.Set(reflect.ValueOf(any(map[string]any{"deep": []any{float64(f.n), "text", true, nil}})))
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.fill(field)
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.SetMapIndex(key, value)
	default:
		panic("the samples cannot fill a " + v.Type().String())
	}
}

// full returns a T with every field set, each to something of its own.
func full[T any](n int) T {
	var value T
	f := &filler{n: n * 1000}
	f.fill(reflect.ValueOf(&value).Elem())

	return value
}

// The samples have all fields set; those whose values are ruled are set by the rules.

func sampleJob(n uint64, state job.State) job.Job {
	j := full[job.Job](int(n))
	j.ID, j.State = id.NewJob(n), state
	j.Needs = []id.Job{id.NewJob(n + 1000), id.NewJob(n + 2000)}
	j.Array, j.Index = "", 0 // elements share a spec, and have tests of their own
	j.Spec = j.Amended.Apply(j.Spec)

	return j
}

func sampleSecret(name string, n int) tenant.Secret {
	s := full[tenant.Secret](n)
	s.Name, s.Subject = name, tenant.Subject{User: "ada"}
	s.Removed, s.Problem = false, ""

	return s
}

func sampleChannel(name string, n int) tenant.Channel {
	c := full[tenant.Channel](n)
	c.Name, c.Subject = name, tenant.Subject{User: "ada"}
	c.Removed = false

	return c
}

func sampleRun(j id.Job, epoch int, state job.RunState, nodes ...id.Node) job.Run {
	r := full[job.Run](epoch)
	r.ID, r.Job, r.Epoch, r.State, r.Stop = id.NewRun(j, epoch), j, epoch, state, job.StopTerm
	rank := r.Ranks[0]

	r.Ranks = nil
	for i, node := range nodes {
		rank.Rank, rank.Node, rank.State = i, node, state
		r.Ranks = append(r.Ranks, rank)
	}

	return r
}

func sampleNode(name id.Node, state fleet.State) fleet.Node {
	n := full[fleet.Node](1)
	n.ID, n.Class, n.State = name, fleet.Reserved, state
	n.Reserved, n.Upcoming = nil, nil // stored on their own

	return n
}

func sampleUser(name id.User) tenant.User {
	u := full[tenant.User](1)
	u.ID = name
	return u
}

func sampleToken(name id.Token, owner id.User, kind tenant.TokenKind) tenant.Token {
	t := full[tenant.Token](1)
	t.ID, t.Owner, t.Kind = name, owner, kind
	return t
}

func sampleEvent(seq uint64) yardmaster.Event {
	e := full[yardmaster.Event](1)
	e.Seq = seq
	return e
}

func sampleQuestion(j id.Job, n int, state inbox.State) inbox.Question {
	q := full[inbox.Question](n)
	q.ID, q.Job, q.State = id.NewQuestion(j, n), j, state
	return q
}

func sampleOrder(j id.Job, rank int) yardmaster.Order {
	o := full[yardmaster.Order](rank + 1)
	o.Adopt = false // not stored
	o.Job, o.Epoch, o.Run, o.Rank, o.Stop = j, 1, id.NewRun(j, 1), rank, job.StopKill

	return o
}

func sampleLease(n uint64, state fleet.LeaseState) fleet.Lease {
	l := full[fleet.Lease](int(n))
	l.ID, l.State = id.NewLease(n), state
	return l
}

func sampleCheckpoint(j id.Job, number int, state checkpoint.State) checkpoint.Checkpoint {
	c := full[checkpoint.Checkpoint](number)
	c.ID, c.Job, c.Number, c.State, c.Seq = id.NewCheckpoint(j, number), j, number, state, 1

	return c
}

// samplePosting is one of an hour, that many hours after dayOne.
func samplePosting(n uint64) ledger.Posting {
	p := full[ledger.Posting](int(n))
	p.Seq, p.Job = n, "j7"
	p.From = dayOne.Truncate(time.Hour).Add(time.Duration(n) * time.Hour)
	p.To = p.From.Add(time.Hour)

	return p
}

// sampleLedger is one of each change of the ledger.
func sampleLedger() ledger.Changes {
	saving := full[ledger.Saving](1)
	saving.At, saving.Decisions = dayOne, 0 // those of sums are not stored

	return ledger.Changes{
		Postings: []ledger.Posting{samplePosting(1)}, Meters: []ledger.State{full[ledger.State](1)},
		Savings: []ledger.Saving{saving}, Decisions: []ledger.JobDecisions{full[ledger.JobDecisions](1)},
	}
}

// plainJob returns a job with little in it, to be filtered by.
func plainJob(n uint64, owner id.User, name string, state job.State) job.Job {
	at := dayOne.Add(time.Duration(n) * time.Minute)
	j := job.Job{
		ID: id.NewJob(n), Seq: 1, Owner: owner, Project: "vision", State: state, Submitted: at, Since: at,
		Spec: &job.Spec{Name: name, Run: "true", Place: job.PlaceAny, Objective: job.ObjectiveTime},
	}

	if state.Final() {
		j.Ended = at
	}

	return j
}
