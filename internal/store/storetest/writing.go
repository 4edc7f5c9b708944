package storetest

import (
	"fmt"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/share"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// forgets checks that past runs and observations of jobs are kept until they are forgotten, in the same commit or in
// another, and that runs come back in the order of their numbers.
func forgets(h *harness) {
	run := func(number uint64) queue.PastRun {
		r := full[queue.PastRun](int(number))
		r.Number = number

		return r
	}
	observed := func(j id.Job) job.Observed {
		o := full[job.Observed](1)
		o.Job = j

		return o
	}

	shortage := func(key string, n int) job.Shortage {
		s := full[job.Shortage](n)
		s.Key = key

		return s
	}

	beside := func(kind string, n int) share.Record {
		r := full[share.Record](n)
		r.Job, r.Beside = kind, "other"

		return r
	}
	key := beside("a", 1)

	s := h.with(
		&yardmaster.Batch{
			Past:      []queue.PastRun{run(10), run(9), run(2)},
			Observed:  []job.Observed{observed("j1"), observed("j2"), observed("j3")},
			Shortages: []job.Shortage{shortage("a", 1), shortage("b", 2)},
			Beside:    []share.Record{beside("a", 1), beside("b", 2)},
		},
		&yardmaster.Batch{
			Past:          []queue.PastRun{run(11)},
			PastForgotten: []uint64{9},
			Observed:      []job.Observed{observed("j3")}, ObservedForgotten: []id.Job{"j3"},
			Shortages: []job.Shortage{shortage("b", 3)}, ShortagesForgotten: []string{"a"},
			Beside: []share.Record{beside("b", 3)}, BesideForgotten: []string{key.Key()},
		},
	)
	state := h.load(s, time.Time{})
	h.same("past runs", state.Past, []queue.PastRun{run(2), run(10), run(11)})
	h.same("observed", state.Observed, []job.Observed{observed("j1"), observed("j2")})
	h.same("shortages", state.Shortages, []job.Shortage{shortage("b", 3)})
	h.same("jobs beside others", state.Beside, []share.Record{beside("b", 3)})

	h.must(s.Commit(h.context(), &yardmaster.Batch{PastForgotten: []uint64{2, 2}, ObservedForgotten: []id.Job{"j1"}}))
	state = h.load(s, time.Time{})
	h.same("past runs", state.Past, []queue.PastRun{run(10), run(11)})
	h.same("observed", state.Observed, []job.Observed{observed("j2")})
}

// replacesAgents checks that one agent is kept for each node: the last, of one commit or of several.
func replacesAgents(h *harness) {
	agent := func(node id.Node, n int) fleet.Agent {
		a := full[fleet.Agent](n)
		a.Node = node

		return a
	}

	s := h.with(
		&yardmaster.Batch{Agents: []fleet.Agent{agent("a", 1), agent("b", 2)}},
		&yardmaster.Batch{Agents: []fleet.Agent{agent("a", 3), agent("a", 4)}},
	)
	h.same("agents", h.load(s, time.Time{}).Agents, []fleet.Agent{agent("a", 4), agent("b", 2)})

	h.must(s.Commit(h.context(), &yardmaster.Batch{Agents: []fleet.Agent{agent("b", 5)}}))
	h.same("agents", h.load(s, time.Time{}).Agents, []fleet.Agent{agent("a", 4), agent("b", 5)})
}

// removesSecrets checks that a secret that was removed is gone, and that one that is set again is there.
func removesSecrets(h *harness) {
	gone := sampleSecret("GONE", 1)
	gone.Removed = true

	s := h.with(
		&yardmaster.Batch{Secrets: []tenant.Secret{sampleSecret("GONE", 1), sampleSecret("KEPT", 2),
			sampleSecret("AGAIN", 3)}},
		&yardmaster.Batch{Secrets: []tenant.Secret{gone}},
	)
	again := sampleSecret("AGAIN", 3)
	again.Removed = true
	h.must(s.Commit(h.context(), &yardmaster.Batch{Secrets: []tenant.Secret{again, sampleSecret("AGAIN", 4)}}))
	h.same("secrets", h.load(s, time.Time{}).Secrets, []tenant.Secret{sampleSecret("AGAIN", 4), sampleSecret("KEPT", 2)})
}

// removesChannels checks that a channel that was removed is gone.
func removesChannels(h *harness) {
	gone := sampleChannel("gone", 1)
	gone.Removed = true

	s := h.with(
		&yardmaster.Batch{Channels: []tenant.Channel{sampleChannel("gone", 1), sampleChannel("kept", 2)}},
		&yardmaster.Batch{Channels: []tenant.Channel{gone}},
	)
	h.same("channels", h.load(s, time.Time{}).Channels, []tenant.Channel{sampleChannel("kept", 2)})
}

func writing() []contract {
	return []contract{
		{"what was committed comes back in every field", keepsEveryField},
		{"every state of every life cycle can be kept", keepsEveryState},
		{"committing again changes nothing", commitsAgain},
		{"of several values in one commit the last stays", keepsTheLast},
		{"an older value does not replace a newer one", refusesOlder},
		{"an event is never changed", keepsEvents},
		{"orders stay open until they are closed", closesOrders},
		{"what is forgotten is gone", forgets},
		{"a node has the agent that was admitted last", replacesAgents},
		{"a secret that was removed is gone", removesSecrets},
		{"a channel that was removed is gone", removesChannels},
		{"many rows go into one commit", commitsMany},
		{"invalid UTF-8 does not stop a commit", keepsStrangeText},
		{"what cannot be stored is an error and leaves nothing behind", refusesBadValues},
	}
}

// everything is a batch with one of each, all fields set.
func everything() *yardmaster.Batch {
	return &yardmaster.Batch{
		Jobs:   []job.Job{sampleJob(7, job.Running)},
		Runs:   []job.Run{sampleRun("j7", 1, job.RunRunning, "gpu-1", "gpu-2")},
		Nodes:  []fleet.Node{sampleNode("gpu-1", fleet.Suspect)},
		Agents: []fleet.Agent{full[fleet.Agent](1)},
		Users:  []tenant.User{sampleUser("ada")},
		Tokens: []tenant.Token{sampleToken("t1", "ada", tenant.AccessToken)},
		Projects: []tenant.Project{
			full[tenant.Project](1),
		},
		Members: []tenant.Member{
			full[tenant.Member](1),
		},
		Events: []yardmaster.Event{sampleEvent(31)},
		Orders: []yardmaster.Order{sampleOrder("j7", 0)},
		Leases: []fleet.Lease{sampleLease(3, fleet.LeaseActive)},
		Quotas: []tenant.Quota{full[tenant.Quota](1)},
		Datasets: []dataset.Dataset{
			full[dataset.Dataset](1),
		},
		Uses:        []dataset.Use{full[dataset.Use](1)},
		Shares:      []queue.Share{full[queue.Share](1)},
		Past:        []queue.PastRun{full[queue.PastRun](1)},
		Observed:    []job.Observed{full[job.Observed](1)},
		Shortages:   []job.Shortage{full[job.Shortage](1)},
		Beside:      []share.Record{full[share.Record](1)},
		Checkpoints: []checkpoint.Checkpoint{sampleCheckpoint("j7", 4, checkpoint.Stored)},
		Ledger:      sampleLedger(),
		Usage:       []quota.Usage{full[quota.Usage](1)},
		Notices:     []quota.Notice{full[quota.Notice](1)},

		Questions: []inbox.Question{sampleQuestion("j7", 2, inbox.Open)},
		Secrets:   []tenant.Secret{sampleSecret("KEY", 1)},
		Channels:  []tenant.Channel{sampleChannel("phone", 1)},
		Schedules: []job.Schedule{full[job.Schedule](1)},

		Reservations: []fleet.Reservation{full[fleet.Reservation](1)},
	}
}

// holds checks that the store holds exactly the batch.
func (h *harness) holds(s store.Store, b *yardmaster.Batch) {
	h.Helper()
	state := h.load(s, time.Time{})
	h.same("jobs", state.Jobs, b.Jobs)
	h.same("runs", state.Runs, b.Runs)
	h.same("nodes", state.Nodes, b.Nodes)
	h.same("agents", state.Agents, b.Agents)
	h.same("users", state.Users, b.Users)
	h.same("tokens", state.Tokens, b.Tokens)
	h.same("projects", state.Projects, b.Projects)
	h.same("members", state.Members, b.Members)
	h.same("orders", state.Orders, b.Orders)
	h.same("leases", state.Leases, b.Leases)
	h.same("limits", state.Quotas, b.Quotas)
	h.same("datasets", state.Datasets, b.Datasets)
	h.same("shares", state.Shares, b.Shares)
	h.same("past runs", state.Past, b.Past)
	h.same("observed", state.Observed, b.Observed)
	h.same("shortages", state.Shortages, b.Shortages)
	h.same("jobs beside others", state.Beside, b.Beside)
	h.same("checkpoints", state.Checkpoints, b.Checkpoints)
	h.same("meters", state.Ledger.Meters, b.Ledger.Meters)
	h.same("decisions", state.Ledger.Decisions, b.Ledger.Decisions)
	h.same("totals", state.Usage, b.Usage)
	h.same("notices", state.Notices, b.Notices)
	h.same("questions", state.Questions, b.Questions)
	h.same("secrets", state.Secrets, b.Secrets)
	h.same("channels", state.Channels, b.Channels)
	h.same("schedules", state.Schedules, b.Schedules)
	h.same("reservations", state.Reservations, b.Reservations)
	h.same("postings", h.postings(s, time.Time{}, time.Time{}), b.Ledger.Postings)

	var savings []ledger.Saving
	h.must(s.Savings(h.context(), store.SavingFilter{}, func(x *ledger.Saving) error {
		savings = append(savings, *x)
		return nil
	}))
	h.same("savings", savings, b.Ledger.Savings)

	for _, u := range b.Uses {
		uses, err := s.Uses(h.context(), u.Dataset, 10)
		h.must(err)
		h.same("uses", uses, []dataset.Use{u})
	}

	events, err := s.Events(h.context(), store.EventFilter{Limit: 1000})
	h.must(err)
	h.same("events", events, b.Events)
}

func keepsEveryField(h *harness) {
	s := h.with(everything())
	h.holds(s, everything())
	ctx := h.context()
	want := everything()
	gotJob, err := s.Job(ctx, "j7")
	h.must(err)
	h.same("job", gotJob, want.Jobs[0])
	gotRun, err := s.Run(ctx, "j7.1")
	h.must(err)
	h.same("run", gotRun, want.Runs[0])
	users, err := s.Users(ctx, "", 10)
	h.must(err)
	h.same("users", users, want.Users)
	tokens, err := s.Tokens(ctx, "", "", 10)
	h.must(err)
	h.same("tokens", tokens, want.Tokens)
	members, err := s.Members(ctx)
	h.must(err)
	h.same("members", members, want.Members)

	// And with nothing set.
	zero := &yardmaster.Batch{
		Jobs: []job.Job{
			{ID: "j8", State: job.Pending},
		},
		Runs: []job.Run{{ID: "j8.1", Job: "j8", Epoch: 1, State: job.RunEnded}},
	}

	h.must(s.Commit(ctx, zero))
	gotJob, err = s.Job(ctx, "j8")
	h.must(err)
	h.same("empty job", gotJob, zero.Jobs[0])
	gotRun, err = s.Run(ctx, "j8.1")
	h.must(err)
	h.same("empty run", gotRun, zero.Runs[0])
}

func keepsEveryState(h *harness) {
	s := h.writer()
	b := &yardmaster.Batch{}
	for i, state := range job.States() {
		b.Jobs = append(b.Jobs, sampleJob(uint64(i+1), state))
	}

	for i, state := range job.RunStates() {
		b.Runs = append(b.Runs, sampleRun("j1", i+1, state))
	}

	for i, state := range fleet.States() {
		for k, class := range fleet.Classes() {
			n := sampleNode(id.Node(fmt.Sprintf("n%d-%d", i, k)), state)
			n.Class = class
			b.Nodes = append(b.Nodes, n)
		}
	}

	for i, kind := range []tenant.TokenKind{tenant.AccessToken, tenant.BootstrapToken, tenant.JoinToken} {
		b.Tokens = append(b.Tokens, sampleToken(id.Token(fmt.Sprintf("t%d", i)), "ada", kind))
	}

	for i, state := range fleet.LeaseStates() {
		b.Leases = append(b.Leases, sampleLease(uint64(i+1), state))
	}

	h.must(s.Commit(h.context(), b))
	state := h.load(s, time.Time{})
	h.same("jobs", state.Jobs, b.Jobs)
	h.same("nodes", state.Nodes, b.Nodes)
	h.same("tokens", state.Tokens, b.Tokens)
	runs, err := s.Runs(h.context(), "j1")
	h.must(err)
	h.same("runs", runs, b.Runs)
}

func commitsAgain(h *harness) {
	s := h.with(everything())
	h.must(s.Commit(h.context(), everything()))
	h.must(s.Commit(h.context(), everything(), everything()))
	h.holds(s, everything())
}

func keepsTheLast(h *harness) {
	first, last := everything(), everything()
	last.Jobs[0].Seq++
	last.Jobs[0].State, last.Jobs[0].Reason, last.Jobs[0].Tried = job.Cancelling, "changed", nil
	last.Runs[0].Seq++
	last.Runs[0].State, last.Runs[0].Ranks = job.RunStopping, last.Runs[0].Ranks[:1]
	last.Nodes[0].Seq++
	last.Nodes[0].Cordoned = false
	last.Users[0].Seq++
	last.Users[0].Usage = -1.5
	last.Tokens[0].Seq++
	last.Tokens[0].UsesLeft = 0
	last.Orders[0].Stop = job.StopNone
	s := h.with(first, last)
	h.holds(s, last)

	within := &yardmaster.Batch{Jobs: []job.Job{sampleJob(9, job.Pending), sampleJob(9, job.Failed)}}
	within.Jobs[1].Seq++
	h.must(s.Commit(h.context(), within))
	got, err := s.Job(h.context(), "j9")
	h.must(err)
	h.same("job changed twice in one batch", got, within.Jobs[1])
}

func refusesOlder(h *harness) {
	newer, older := everything(), everything()
	for _, seq := range []*uint64{&newer.Jobs[0].Seq, &newer.Runs[0].Seq, &newer.Nodes[0].Seq, &newer.Users[0].Seq,
		&newer.Tokens[0].Seq} {
		*seq++
	}

	older.Jobs[0].State, older.Jobs[0].Reason = job.Pending, "stale"
	older.Runs[0].State = job.RunOrdered
	older.Nodes[0].State = fleet.Lost
	older.Users[0].Disabled = false
	older.Tokens[0].Revoked = false
	s := h.with(newer)
	h.must(s.Commit(h.context(), older))
	h.holds(s, newer)
	h.must(s.Commit(h.context(), newer, older))
	h.holds(s, newer)
}

func keepsEvents(h *harness) {
	s := h.with(everything())
	again := sampleEvent(31)
	again.Reason = "rewritten"
	h.must(s.Commit(h.context(), &yardmaster.Batch{Events: []yardmaster.Event{again}}))
	h.holds(s, everything())
}

func closesOrders(h *harness) {
	open := &yardmaster.Batch{Orders: []yardmaster.Order{sampleOrder("j1", 0), sampleOrder("j1", 1), sampleOrder("j2", 0)}}
	s := h.with(open)
	closing := &yardmaster.Batch{Closed: []string{open.Orders[0].Key(), "j9.9/9"}}
	h.must(s.Commit(h.context(), closing))
	h.must(s.Commit(h.context(), closing))
	h.holds(s, &yardmaster.Batch{Orders: open.Orders[1:]})

	// Opened and closed within one commit, and within one batch.
	third := sampleOrder("j3", 0)
	h.must(s.Commit(
		h.context(),
		&yardmaster.Batch{Orders: []yardmaster.Order{third}},
		&yardmaster.Batch{Closed: []string{third.Key()}},
		&yardmaster.Batch{
			Orders: []yardmaster.Order{sampleOrder("j4", 0)},
			Closed: []string{open.Orders[1].Key(), "j4.1/0"},
		},
	))

	h.holds(s, &yardmaster.Batch{Orders: open.Orders[2:]})

	// Closed and opened again within one commit.
	h.must(
		s.Commit(
			h.context(),
			&yardmaster.Batch{Closed: []string{open.Orders[2].Key()}},
			&yardmaster.Batch{Orders: open.Orders[2:]},
		),
	)

	h.holds(s, &yardmaster.Batch{Orders: open.Orders[2:]})

	changed := sampleOrder("j2", 0)
	changed.Stop, changed.Launch.Command = job.StopTerm, "other"
	h.must(s.Commit(h.context(), &yardmaster.Batch{Orders: []yardmaster.Order{changed}}))
	h.holds(s, &yardmaster.Batch{Orders: []yardmaster.Order{changed}})
}

func commitsMany(h *harness) {
	const many = 3001 // more than one statement can take
	b := &yardmaster.Batch{}
	for n := uint64(1); n <= many; n++ {
		b.Jobs = append(b.Jobs, plainJob(n, "ada", "many", job.Pending))
		b.Events = append(b.Events, sampleEvent(n))
		b.Orders = append(b.Orders, sampleOrder(id.NewJob(n), 0))
	}

	s := h.with(b)
	state := h.load(s, time.Time{})
	h.same("jobs", state.Jobs, b.Jobs)
	h.same("last event", state.LastEvent, uint64(many))

	if len(state.Orders) != many {
		h.Errorf("%d orders, want %d", len(state.Orders), many)
	}

	done := &yardmaster.Batch{}
	for i := range b.Orders {
		done.Closed = append(done.Closed, b.Orders[i].Key())
	}

	h.must(s.Commit(h.context(), done))
	h.same("orders", h.load(s, time.Time{}).Orders, []yardmaster.Order(nil))
}

func keepsStrangeText(h *harness) {
	j := plainJob(1, "ada", "strange", job.Failed)
	j.Reason = "it wrote \x00 and \xff\xfe and ☃"
	j.Spec.Run = "printf '\x00\xff'"
	r := sampleRun("j1", 1, job.RunEnded, "gpu-1")
	r.Ranks[0].Reason, r.Reason = j.Reason, j.Reason
	e := sampleEvent(1)
	e.Reason = j.Reason
	s := h.with(&yardmaster.Batch{Jobs: []job.Job{j}, Runs: []job.Run{r}, Events: []yardmaster.Event{e}})
	got, err := s.Job(h.context(), "j1")
	h.must(err)
	const want = "it wrote \uFFFD and \uFFFD and ☃"
	h.same("reason", got.Reason, want)
	events, err := s.Events(h.context(), store.EventFilter{Limit: 10})
	h.must(err)
	h.same("reason of the event", events[0].Reason, want)
}

func refusesBadValues(h *harness) {
	s := h.writer()
	good := everything()
	err := s.Commit(h.context(), good, &yardmaster.Batch{Jobs: []job.Job{{ID: "no-number", State: job.Pending}}})
	h.fails(err, fault.Internal, "bad_value")

	if err := s.Commit(h.context(), good, &yardmaster.Batch{Jobs: []job.Job{{ID: "j8", State: "dreaming"}}}); err == nil {
		h.Error("a state that does not exist was stored")
	} else if kind := fault.KindOf(err); kind != fault.Internal {
		h.Errorf("kind = %s, want %s", kind, fault.Internal)
	}

	h.holds(s, &yardmaster.Batch{})
	h.must(s.Commit(h.context(), good))
	h.holds(s, good)
}
