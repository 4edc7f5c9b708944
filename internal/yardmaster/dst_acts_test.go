package yardmaster_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// join adds a node; a great one can run everything that submit asks for.
func (d *driver) join(great bool) error {
	classes := fleet.Classes()
	class := classes[d.rng.IntN(len(classes))]

	inv := fleet.Inventory{
		CPUs:    job.CPUs(1+d.rng.IntN(16)) * 1000,
		Memory:  job.Bytes(8<<d.rng.IntN(5)) << 30,
		Version: "1",
		Shares:  "1",

		Restores:   !d.chance(5), // else its agent is of an earlier version
		SingleUser: d.joins%3 == 2,
	}

	if d.lending {
		inv.Suspends = !d.chance(8)
		inv.Snapshots = &fleet.Snapshots{Suspend: fleet.Ability{OK: true}}
	}

	models := []fleet.GPU{
		{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30},
		{Model: "NVIDIA L4", Memory: 24 << 30},
		{Model: "NVIDIA H100 NVL", Memory: 94 << 30},
	}

	gpus := []int{0, 1, 2, 4, 8}[d.rng.IntN(5)]

	if great {
		class, gpus = classes[d.joins%2], 8
		inv.CPUs, inv.Memory = 64000, 1<<42
		models = models[2:]
		models[0].Memory *= 2 // also for jobs that wait for more memory than they had on any other
	}

	for i := range gpus {
		g := models[d.rng.IntN(len(models))]
		if !d.chance(4) { // mostly all of one kind
			g = models[d.joins%len(models)]
		}

		g.Index, g.UUID = i, fmt.Sprint(d.joins, "/", i)
		inv.GPUs = append(inv.GPUs, g)
	}

	d.joins++
	inv.Address = fmt.Sprint("10.0.0.", d.joins)
	reply, err := d.step(yardmaster.Join{Token: id.Token("join-" + class), Name: fmt.Sprint("n", d.joins), Inventory: inv})
	if err != nil {
		return err
	}

	n, ok := reply.(fleet.Node)
	if !ok {
		return fmt.Errorf("join answered %+v", reply)
	}

	// It is a node only when that is stored; a machine whose join was lost asks again.
	if err := d.settleQuietly(); err != nil {
		return err
	}

	d.agents = append(d.agents, newAgent(n.ID, inv, d.now))

	return nil
}

// settleQuietly stores what there is without a crash.
func (d *driver) settleQuietly() error {
	calm := d.calm
	d.calm = true
	err := d.settle()
	d.calm = calm

	return err
}

// submit hands in a job, a pipeline, something again, or nonsense.
func (d *driver) submit() error {
	m := yardmaster.Submit{Owner: users[d.rng.IntN(len(users))]}
	wantErr := ""
	switch n := d.rng.IntN(20); {
	case n == 0 && len(d.keyed) > 0:
		return d.submitAgain()
	case n == 1:
		m.Jobs, wantErr = []yardmaster.NewJob{{Spec: &job.Spec{Name: "a", Needs: []string{"b"}}}}, "unknown_need"
	case n == 2:
		m.Owner, wantErr = "nobody", "user_disabled"
		m.Jobs = []yardmaster.NewJob{{Spec: d.spec()}}
	case n == 3:
		m.Key, wantErr = "k", "no_jobs"
	case n < 8:
		m.Jobs = d.pipeline()
	case n < 10:
		m.Jobs = []yardmaster.NewJob{{Spec: d.array()}}
	default:
		m.Jobs = []yardmaster.NewJob{{Spec: d.spec()}}
	}

	if wantErr == "" && d.chance(3) {
		m.Key, m.KeyHash = fmt.Sprint("key", d.sent), fmt.Sprint("hash", d.sent)
	}

	reply, err := d.send(m)

	var f *fault.Error
	switch sub, ok := reply.(yardmaster.Submitted); {
	case errors.As(err, &f) && (f.Code == wantErr || f.Code == "user_disabled" || f.Code == "too_many_jobs"):
		return nil
	case err != nil || !ok || wantErr != "" || len(sub.Jobs) != elements(m.Jobs):
		return fmt.Errorf("submit answered %+v, %w", reply, err)
	default:
		d.pending = append(d.pending, submission{m, sub.Jobs})
	}

	return nil
}

// submitAgain repeats a submission that was acknowledged, with its key.
func (d *driver) submitAgain() error {
	s := d.keyed[d.rng.IntN(len(d.keyed))]
	if s.msg.Key == "" {
		return nil
	}
	if _, ok := yardmaster.JobOf(d.yard, s.jobs[0]); !ok {
		return nil // left memory; the server finds it in the store
	}

	wrong := d.chance(4)
	if wrong {
		s.msg.KeyHash = "another"
	}

	reply, err := d.send(s.msg)

	var f *fault.Error
	if errors.As(err, &f) && (f.Code == "user_disabled" || wrong && f.Code == "key_reused") {
		return nil
	}

	sub, ok := reply.(yardmaster.Submitted)
	if err != nil || wrong || !ok || !sub.Replay || sub.Jobs[0] != s.jobs[0] {
		return fmt.Errorf("submitted again as %+v: %+v, %w", s, reply, err)
	}

	return nil
}

func (d *driver) spec() *job.Spec {
	r := d.rng
	if d.lending {
		return &job.Spec{
			Run: "true", Place: job.PlaceAny, Expect: job.Duration(time.Duration(1+r.IntN(60)) * time.Second),
			Resources:  job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}},
			Checkpoint: &job.Checkpoint{Dir: "ckpt"},
		}
	}

	s := &job.Spec{
		Run: "true", Place: job.PlaceAny, Priority: []int{0, 0, 0, 10, 100}[r.IntN(5)], Retry: r.IntN(4),
		Resources: job.Resources{CPUs: job.CPUs(r.IntN(9)) * 500, Nodes: job.Range{Min: 1, Max: 1}},
	}

	res := &s.Resources

	if d.chance(2) {
		n := 1 + r.IntN(4)
		res.GPUs = job.Range{Min: n, Max: n + r.IntN(2)*r.IntN(5)}

		switch r.IntN(6) {
		case 0:
			res.GPU = []job.GPUKind{{Model: "A100"}, {Model: "H100"}}
		case 1:
			res.GPUMemory = job.ByteRange{Min: 40 << 30}
		case 2:
			res.GPUs.Max = 0 // no upper end
		}
	}

	if d.chance(3) {
		res.Memory = job.Bytes(1+r.IntN(8)) << 30
	}

	if d.chance(2) {
		s.Checkpoint = &job.Checkpoint{Dir: "ckpt", Every: job.Duration(r.IntN(3)) * job.Duration(time.Minute)}
	}

	if d.chance(3) {
		s.Speed = job.NewSpeed(float64(1+r.IntN(1000)), time.Duration(r.IntN(20))*time.Second, 0,
			job.Rate{GPUs: 0, PerSecond: 1}, job.Rate{GPUs: 1, PerSecond: 2}, job.Rate{GPUs: 4, PerSecond: 1 + 6*r.Float64()},
			job.Rate{GPUs: 1, Share: 0.5, PerSecond: 1})
	}

	if d.chance(8) {
		n := 2 + r.IntN(2)
		res.Nodes = job.Range{Min: n, Max: n + r.IntN(2)}
	}

	if res.Nodes.Max == 1 && d.chance(4) {
		d.part(res)
	}

	switch r.IntN(10) {
	case 0:
		s.Place = job.PlaceLocal
	case 1:
		s.Place = job.PlaceCloud
	}

	if d.chance(3) {
		s.Expect = job.Duration(time.Duration(1+r.IntN(60)) * time.Second)
	}

	if d.chance(4) {
		s.MaxDuration = job.Duration(time.Duration(5+r.IntN(60)) * time.Second)
	}

	return s
}

// part asks for a part of a GPU.
func (d *driver) part(res *job.Resources) {
	r := d.rng
	res.GPUs, res.GPUMemory = job.Range{Min: 1, Max: 1}, job.ByteRange{Min: job.Bytes(r.IntN(3)*r.IntN(30)) << 30}
	res.GPUShare = float64(1+r.IntN(7)) / 10

	switch r.IntN(4) {
	case 0:
		res.ShareClass, res.ShareLimit = job.ShareGuaranteed, res.GPUShare
	case 1:
		res.ShareClass = job.ShareGuaranteed
	case 2:
		res.ShareClass = job.ShareOpportunistic
	}
}

// array makes a few jobs of one spec, of which mostly only some may run at the same time.
func (d *driver) array() *job.Spec {
	s := d.spec()
	s.Array = &job.Array{Range: job.Steps{Last: d.rng.IntN(8), Step: 1}, Limit: d.rng.IntN(4)}

	return s
}

// elements counts the jobs that a file makes.
func elements(jobs []yardmaster.NewJob) int {
	total := 0
	for i := range jobs {
		total++
		if a := jobs[i].Spec.Array; a != nil {
			total += a.Len() - 1
		}
	}

	return total
}

// pipeline makes jobs that need earlier ones of the same file.
func (d *driver) pipeline() []yardmaster.NewJob {
	jobs := make([]yardmaster.NewJob, 2+d.rng.IntN(4))
	for i := range jobs {
		s := d.spec()
		s.Name = fmt.Sprint("step", i)
		for k := range i {
			if d.chance(2) {
				s.Needs = append(s.Needs, fmt.Sprint("step", k))
			}
		}

		if d.chance(6) {
			s.Array = &job.Array{Values: []string{"a", "b", "c"}, Limit: d.rng.IntN(3)}
		}

		jobs[i].Spec = s
	}

	return jobs
}

// people cancel, kill, pause, edit and resume.
func (d *driver) people() error {
	j := id.NewJob(uint64(d.rng.IntN(100_000)))
	if jobs := yardmaster.JobsInMemory(d.yard); len(jobs) > 0 && !d.chance(20) {
		j = jobs[d.rng.IntN(len(jobs))]
	}

	var m yardmaster.Message

	switch d.rng.IntN(8) {
	case 0:
		m = yardmaster.Cancel{Job: j, By: "ada"}
		d.cancelled[j] = true
	case 1:
		m = yardmaster.Cancel{Job: j, By: "ada", Kill: true}
		d.cancelled[j] = true
	case 2, 3:
		m = yardmaster.Pause{Job: j, By: "ada"}
	case 4:
		m = yardmaster.Edit{Job: j, By: "ada", Set: []string{"priority=0", fmt.Sprintf("expect=%ds", 1+d.rng.IntN(90))}}
	default:
		m = yardmaster.Resume{Job: j, By: "ada"}
	}

	before, known := yardmaster.JobOf(d.yard, j)

	reply, err := d.send(m)
	if _, edits := m.(yardmaster.Edit); edits && fault.KindOf(err) == fault.Invalid {
		return nil // some specs of these jobs could not have been written in a job file
	}

	switch kind := fault.KindOf(err); {
	case !known && kind != fault.NotFound, known && kind != "" && kind != fault.Conflict:
		return fmt.Errorf("%T of a job that is %q: %+v, %w", m, before.State, reply, err)
	case known && before.State.Final() && kind != fault.Conflict:
		return fmt.Errorf("%T of a job that has ended: %+v, %w", m, reply, err)
	}

	return nil
}

// answer accepts and dismisses questions, open ones and others. An option that is gone is refused; whatever is accepted
// twice is there once.
func (d *driver) answer() error {
	open := yardmaster.OpenQuestions(d.yard)
	if len(open) == 0 {
		return nil
	}

	q := open[d.rng.IntN(len(open))]
	o := q.Options[d.rng.IntN(len(q.Options))]

	var m yardmaster.Message = yardmaster.Accept{Question: q.ID, Option: o.ID, By: "ada"}

	switch {
	case d.chance(5):
		m = yardmaster.Dismiss{Question: q.ID, By: "ada"}
	case d.chance(10):
		m = yardmaster.Accept{Question: q.ID, Option: "nonsense", By: "ada"}
	case o.Action.Verb == inbox.Cancel:
		d.cancelled[q.Job] = true
	}

	_, err := d.send(m)
	if err := refused(err, fault.Conflict, fault.Invalid); err != nil {
		return fmt.Errorf("%+v: %w", m, err)
	}

	if err == nil {
		if _, err := d.send(m); fault.KindOf(err) != fault.NotFound {
			return fmt.Errorf("%+v twice: %w", m, err)
		}
	}

	return nil
}

// forge reports runs that are old, unknown or on another node.
func (d *driver) forge() error {
	a := d.agents[d.rng.IntN(len(d.agents))]
	if a.gone || !a.up {
		return nil
	}

	causes := []job.Cause{job.CauseNone, job.CauseCancelled, job.CauseUserCode, job.CauseNodeLost, "nonsense"}
	states := append(job.RunStates(), "nonsense", "")

	m := yardmaster.NodeReport{Node: a.node, Restores: true, Foreign: append([]int{-1, 64, 1 << 40}, a.foreign...)}
	for range 1 + d.rng.IntN(4) {
		rep := yardmaster.RankReport{
			Run: id.NewRun(id.NewJob(d.rng.Uint64N(d.store.lastJob+2)), 1+d.rng.IntN(4)), Rank: d.rng.IntN(7) - 2,
			State: states[d.rng.IntN(len(states))], Cause: causes[d.rng.IntN(len(causes))],
		}

		if _, live := d.store.orders[fmt.Sprintf("%s/%d", rep.Run, rep.Rank)]; live && d.hosts(a.node, rep) {
			continue
		}

		m.Ranks = append(m.Ranks, rep)
	}

	_, err := d.send(m)

	return refused(err, fault.Denied) // taken out, and not told yet
}

// hosts reports whether the yard may have given this rank to the node.
func (d *driver) hosts(n id.Node, rep yardmaster.RankReport) bool {
	return slices.ContainsFunc(
		d.yard.Orders(),
		func(o yardmaster.Order) bool { return o.Run == rep.Run && o.Rank == rep.Rank && o.Node == n },
	)
}

// operate drains, opens, removes and adds nodes, and changes their hardware.
func (d *driver) operate() error {
	a := d.agents[d.rng.IntN(len(d.agents))]

	switch d.rng.IntN(8) {
	case 0:
		_, err := d.send(yardmaster.Cordon{Node: a.node, By: "root", On: true, Stop: d.chance(2)})
		return refused(err, fault.NotFound)
	case 1, 2, 3:
		_, err := d.send(yardmaster.Cordon{Node: a.node, By: "root"})
		return refused(err, fault.NotFound)
	case 4:
		_, err := d.send(yardmaster.RemoveNode{Node: a.node, By: "root"})
		return refused(err, fault.NotFound, fault.Conflict)
	case 5:
		if len(d.alive()) < 8 {
			return d.join(false)
		}
	case 6:
		a.foreign = nil
		if d.chance(2) && len(a.inv.GPUs) > 0 {
			a.foreign = []int{d.rng.IntN(len(a.inv.GPUs))}
		}
	case 7:
		a.inv.Version = fmt.Sprint(d.sent)
		a.inv.GPUs = slices.Clone(a.inv.GPUs)
		for i := range a.inv.GPUs {
			a.inv.GPUs[i].Error = ""
			if d.chance(8) {
				a.inv.GPUs[i].Error = "Xid 79"
			}
		}

		if d.chance(4) {
			a.inv.Memory /= 2
		}
	}

	return nil
}

// refused lets errors of these kinds pass.
func refused(err error, kinds ...fault.Kind) error {
	if slices.Contains(kinds, fault.KindOf(err)) {
		return nil
	}

	return err
}

// alive returns the agents that are still nodes.
func (d *driver) alive() []*agent {
	return slices.DeleteFunc(slices.Clone(d.agents), func(a *agent) bool { return a.gone })
}

// outage takes a node off the net or brings it back; sometimes all its
// processes die. Now and then time passes quickly, so that silence counts.
func (d *driver) outage() error {
	for _, a := range d.agents {
		switch {
		case a.gone:
		case !a.up && d.chance(3):
			a.up = true
		case a.up && d.chance(6):
			a.up = false
			if d.chance(2) {
				a.crash(d.now)
			}
		}
	}

	if !d.chance(4) {
		return nil
	}

	for range 8 + d.rng.IntN(40) { // a while in which the yard listens and only some are heard
		if err := d.tick(10 * time.Second); err != nil {
			return err
		}

		for _, a := range d.agents {
			if err := d.heartbeat(a); err != nil {
				return err
			}
		}

		if err := d.settle(); err != nil {
			return err
		}
	}

	return nil
}

// account changes users and tokens.
func (d *driver) account() error {
	u := users[d.rng.IntN(len(users))]

	switch d.rng.IntN(5) {
	case 0:
		_, err := d.step(yardmaster.PutUser{User: u, Role: tenant.Researcher, Disabled: true, By: "root"})
		return err
	case 1, 2:
		_, err := d.step(yardmaster.PutUser{User: u, Role: tenant.Researcher, By: "root"})
		return err
	case 3:
		if _, err := d.send(
			yardmaster.PutUser{User: "root", Role: tenant.Researcher, By: "root"},
		); fault.KindOf(err) != fault.Conflict {
			return fmt.Errorf("the last admin could be made a researcher: %w", err)
		}
	case 4:
		t := tenant.Token{
			ID:      id.Token(fmt.Sprint("t", d.sent)),
			Kind:    tenant.AccessToken,
			Owner:   u,
			Expires: d.wall().Add(time.Hour),
		}

		if _, err := d.step(yardmaster.AddToken{Token: t, By: string(u)}); err != nil {
			return err
		}
		if _, err := d.send(yardmaster.Join{Token: t.ID, Name: "x"}); fault.KindOf(err) != fault.Unknown {
			return fmt.Errorf("joined with an access token: %w", err)
		}

		_, err := d.step(yardmaster.RevokeToken{Token: t.ID, By: string(u)})

		return err
	}

	return nil
}

// comeToRest ends all faults and expects every job to end.
func (d *driver) comeToRest() error {
	d.calm = true
	for _, u := range users {
		if _, err := d.step(yardmaster.PutUser{User: u, Role: tenant.Researcher, By: "root"}); err != nil {
			return err
		}
	}

	for range 8 {
		if err := d.join(true); err != nil {
			return err
		}
	}

	for _, a := range d.alive() {
		a.up, a.foreign = true, nil
		for i := range a.inv.GPUs {
			a.inv.GPUs[i].Error = ""
		}

		if _, err := d.send(yardmaster.Cordon{Node: a.node, By: "root"}); refused(err, fault.NotFound) != nil {
			return err
		}
	}

	for _, j := range yardmaster.JobsInMemory(d.yard) {
		if _, err := d.send(yardmaster.Resume{Job: j, By: "root"}); refused(err, fault.Conflict) != nil {
			return err
		}
	}

	const most = 6 * 3600 / 4
	for range most {
		if err := d.tick(4 * time.Second); err != nil {
			return err
		}

		for _, a := range d.agents {
			if err := d.heartbeat(a); err != nil {
				return err
			}
		}

		if err := d.settle(); err != nil {
			return err
		}
		if !slices.ContainsFunc(yardmaster.JobsInMemory(d.yard), d.unfinished) {
			return nil
		}
	}

	for _, j := range yardmaster.JobsInMemory(d.yard) {
		if d.unfinished(j) {
			r, _ := yardmaster.JobOf(d.yard, j)
			why, _ := d.yard.Why(d.wall(), j)
			return fmt.Errorf("job %s never ended: %+v, why: %+v", j, r, why)
		}
	}

	return nil
}

// unfinished reports whether a job has not ended; one that was being paused is resumed.
func (d *driver) unfinished(j id.Job) bool {
	r, ok := yardmaster.JobOf(d.yard, j)
	if ok && r.State == job.Paused {
		_, _ = d.yard.Step(d.wall(), yardmaster.Resume{Job: j, By: "root"})
	}

	return ok && !r.State.Final()
}
