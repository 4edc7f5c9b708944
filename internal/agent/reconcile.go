package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// startTries is how often a rank that cannot be begun, as on a full disk, is
// tried before it is given back so that it can run elsewhere.
const startTries = 5

// progressEvery is how often the fetching of files is reported.
const progressEvery = 2 * time.Second

// action is what is to be done about one rank.
type action string

const (
	doNothing action = "nothing"
	doStart   action = "start"
	doTerm    action = "term"
	doKill    action = "kill"
	doCancel  action = "cancel" // it never started: report it as stopped
	doForget  action = "forget"
	doAside   action = "set aside" // it belongs to another history of the yard
)

// decide says what is to be done about a rank: want is its assignment, nil if
// it has none; have is what the runtime knows, nil if nothing; delivered says
// that the server has all of its output, metrics and output files; begun that this process gave it to the runtime;
// stray that the yard does not know it, though it may know another one by its name.
func decide(want *api.Assignment, have *rundir.Status, begun, delivered, stray bool) action {
	if have != nil && stray {
		if have.State != job.RunEnded {
			return doKill
		}

		return doAside
	}

	if want == nil {
		switch {
		case have == nil:
			return doNothing
		case have.State != job.RunEnded:
			return doKill
		case delivered:
			return doForget
		}

		return doNothing
	}

	if have != nil && have.State == job.RunEnded {
		return doNothing
	}

	switch {
	case want.Stop == job.StopNone && have != nil && (begun || have.State != job.RunPreparing):
		return doNothing // one that prepares may be that of an agent that died over it
	case want.Stop == job.StopNone:
		return doStart
	case have == nil:
		return doCancel
	case want.Stop == job.StopKill:
		return doKill
	}

	return doTerm
}

// reconcileLoop makes the running ranks match the assigned ones whenever one of the two
// changes.
func (a *Agent) reconcileLoop(ctx context.Context) {
	tries := map[key]int{}

	for failures := 0; ; {
		changed := a.rt.Watch()
		err := a.reconcile(ctx, tries)

		if ctx.Err() != nil {
			return
		}

		a.noteProblem("assignments", err)
		wait := time.Hour

		failures++
		if err != nil {
			wait = job.Backoff(failures, minRetryWait, maxRetryWait)
		} else {
			failures = 0

			if a.files.busy() || a.data.busy() || a.checkpoints.busy() {
				wait = progressEvery
			}
		}

		timeout, cancel := context.WithTimeout(ctx, wait)
		select {
		case <-timeout.Done():
		case <-changed:
		case <-a.reconcileSoon:
		}

		cancel()

		if ctx.Err() != nil {
			return
		}
	}
}

// reconcile does one round. What fails is tried again in the next.
func (a *Agent) reconcile(ctx context.Context, tries map[key]int) error {
	list := a.rt.List()
	have := make(map[key]*rundir.Status, len(list))
	for i := range list {
		have[key{list[i].Run, list[i].Rank}] = &list[i]
	}

	a.updateUploaders(ctx, list)
	a.mu.Lock()
	want := a.assignments
	a.mu.Unlock()
	errs := []error{a.updateSavers(list), a.updateKeepers(list)}
	a.publish(list, want) // the news of an end does not wait for what is started and removed here

	if want.known {
		errs = append(errs, a.results.keepOnly(func(k key, result api.RankReport) bool {
			w, ok := want.ranks[k]
			return ok && sameRun(&w, result.UID, want.incarnation)
		}))

		for _, k := range sortedKeys(want.ranks, have) {
			var assigned *api.Assignment
			if w, ok := want.ranks[k]; ok {
				assigned = &w
			}

			errs = append(errs, a.reconcileRank(ctx, rankState{k, assigned, have[k], want}, tries))
		}

		errs = append(errs, a.data.keepOnly(a.liveRanks(want, have)))
	}

	list = a.rt.List()
	errs = append(errs, a.startGangs(ctx, list, want))
	a.publish(list, want)

	return errors.Join(errs...)
}

// liveRanks names the ranks that run here or are assigned.
func (a *Agent) liveRanks(want assignments, have map[key]*rundir.Status) map[string]bool {
	live := map[string]bool{}
	for k := range want.ranks {
		_, over := a.results.all[k]
		live[nameOf(k)] = !over
	}

	for k, st := range have {
		live[nameOf(k)] = st.State != job.RunEnded
	}

	return live
}

// sortedKeys lists the keys of both, those that are only running first: they
// make room. Those that have ended and may be forgotten come last: nobody waits for that.
func sortedKeys(want map[key]api.Assignment, have map[key]*rundir.Status) []key {
	var all []key
	for k := range want {
		all = append(all, k)
	}

	for k := range have {
		if _, ok := want[k]; !ok {
			all = append(all, k)
		}
	}

	class := func(k key) int {
		if _, ok := want[k]; ok {
			return 1
		}
		if have[k].State == job.RunEnded {
			return 2
		}

		return 0
	}

	slices.SortFunc(all, func(x, y key) int {
		if c := class(x) - class(y); c != 0 {
			return c
		}
		if c := strings.Compare(string(x.run), string(y.run)); c != 0 {
			return c
		}

		return x.rank - y.rank
	})

	return all
}

// rankState is what is known of one rank.
type rankState struct {
	key
	want *api.Assignment // nil if it is not assigned
	have *rundir.Status  // nil if the runtime does not have it
	all  assignments     // the newest, of which it is one
}

// sameRun reports whether a run of this UID is the one that is assigned. A run of an agent that knew no
// UIDs counts as the same as long as the yard was never restored.
func sameRun(want *api.Assignment, uid id.UID, under api.Incarnation) bool {
	if uid == "" {
		return under.Number <= 1
	}

	return uid == want.Launch.UID
}

// reconcileRank does what decide says about one rank.
func (a *Agent) reconcileRank(ctx context.Context, r rankState, tries map[key]int) error {
	k, want, have := r.key, r.want, r.have
	if _, over := a.results.all[k]; over && want != nil {
		return nil
	}

	a.mu.Lock()
	begun := a.startedRanks[k]
	s := a.uploaders[k]
	a.mu.Unlock()

	stray := s != nil && s.unknown.Load() ||
		want != nil && have != nil && !sameRun(want, have.UID, r.all.incarnation)

	delivered := s != nil && s.delivered.Load() && a.metricsDelivered(have) && a.outputs.kept(k)

	switch decide(want, have, begun, delivered, stray) {
	case doStart:
		return a.start(ctx, r, tries)
	case doAside:
		return a.putAside(k, have)
	case doTerm:
		if want.Dump {
			a.gpuShares.quiesce(ctx, k, "dump")
			return a.rt.Stop(k.run, k.rank, job.StopDump)
		}

		return a.rt.Stop(k.run, k.rank, job.StopTerm)
	case doKill:
		return a.rt.Stop(k.run, k.rank, job.StopKill)
	case doCancel:
		return a.recordResult(
			k,
			api.RankReport{
				UID: want.Launch.UID, Cause: job.CauseCancelled, Reason: "stopped on request before it was started",
				Signalled: true,
			},
		)
	case doForget:
		return a.forget(k)
	case doNothing:
		if want != nil && have != nil && have.State == job.RunRunning {
			return a.adjust(ctx, k, want, have)
		}
	}

	return nil
}

// adjust does what an assignment asks of a rank that runs and goes on: to save a checkpoint, or to be suspended.
func (a *Agent) adjust(ctx context.Context, k key, want *api.Assignment, have *rundir.Status) error {
	var errs []error
	if want.Save > 0 {
		a.checkpoints.request(k, want.Save)
		errs = append(errs, a.rt.RequestSave(k.run, k.rank, want.Save))
	}

	if want.Suspend.Number > have.Suspension.Number {
		if want.Suspend.On() {
			a.gpuShares.quiesce(ctx, k, fmt.Sprintf("suspend %d", want.Suspend.Number))
		}

		errs = append(errs, a.rt.Suspend(k.run, k.rank, want.Suspend))
	}

	return errors.Join(errs...)
}

// admit lets a rank pass that this node may start, and records that it will be. One that it may not
// start gets its result here.
func (a *Agent) admit(r rankState) (bool, error) {
	err := a.fence.check(r.key)
	if err == nil && r.want.Adopt {
		err = fault.New(fault.Conflict, "not_here", "run %s was ordered before the yard was restored and is not on this node",
			r.run)
	}

	if err != nil {
		a.log.Warn("run rejected", "run", r.run, "rank", r.rank, "error", err)

		return false, a.recordResult(r.key, api.RankReport{
			UID: r.want.Launch.UID, Cause: job.CauseLaunchFailed, Reason: "rejected by the node: " + err.Error(),
			NewestEpoch: max(a.fence.newest(r.want.Job), r.want.Epoch),
		})
	}

	if a.fence.lost(r.key) {
		return false, a.recordResult(r.key, api.RankReport{
			UID: r.want.Launch.UID, Cause: job.CauseNodeLost, Reason: "the machine was restarted while the run was on it",
		})
	}

	if err := a.fence.recordStart(r.key, r.all.incarnation); err != nil {
		return false, err
	}

	a.mu.Lock()
	a.seen = a.fence.seen()
	a.mu.Unlock()

	return true, nil
}

// start gives a rank to the runtime, if the fence lets it pass and the assignments are as new as
// the contact lease.
func (a *Agent) start(ctx context.Context, r rankState, tries map[key]int) error {
	k, want := r.key, *r.want

	if r.have == nil { // one that the runtime has was let pass before
		passed, err := a.admit(r)
		if err != nil {
			return a.startFailed(k, want.Launch.UID, err, tries)
		}
		if !passed {
			return nil
		}
	}

	if want.SecretsError != "" {
		return a.startFailed(k, want.Launch.UID, fault.New(fault.Invalid, "no_secrets", "%s", want.SecretsError), tries)
	}

	launch, ready, err := a.data.ready(k, want.Launch)
	if err != nil {
		return a.dataFailed(k, want.Launch.UID, err)
	}
	if !ready {
		return nil
	}

	dir, err := a.sharedCheckpoints(ctx, &want)
	if err != nil {
		return a.startFailed(k, want.Launch.UID, err, tries)
	}

	a.starting.Lock()
	defer a.starting.Unlock()

	if len(want.Launch.GPUs) > 0 {
		a.endProbe()
	}

	if a.closing || !a.mayStart(r.all.identity()) {
		return nil // newer assignments, or the first grant of their server, make another round
	}

	spec := rundir.Spec{
		Run:     want.Run,
		Rank:    want.Rank,
		Job:     want.Job,
		Epoch:   want.Epoch,
		Launch:  launch,
		Devices: a.devices(want.Launch.GPUs),
		Fake:    a.fake(want.Launch.GPUs),

		CheckpointDir: dir,
		Secrets:       want.Secrets,
		RegistryAuth:  want.RegistryAuth,
	}

	spec.ExtraEnv, err = a.programEnv(want)
	if err != nil {
		return a.startFailed(k, want.Launch.UID, err, tries)
	}

	spec.ShareLibrary, err = a.gpuShares.libraryFor(&spec)
	if err == nil {
		spec.MPS, err = a.gpuShares.mpsFor(&spec)
	}

	if err != nil {
		return a.startFailed(k, want.Launch.UID, err, tries)
	}

	spec.Visible = a.visible(k, spec.ExtraEnv)
	if spec.ShareLibrary != "" {
		spec.Visible = append(spec.Visible, spec.ShareLibrary)
	}

	if err := a.rt.Start(ctx, spec); err != nil {
		return a.startFailed(k, want.Launch.UID, err, tries)
	}

	a.mu.Lock()
	a.startedRanks[k] = true
	a.mu.Unlock()
	delete(tries, k)

	return nil
}

// startFailed gives a rank up that can never be begun, or not for too long.
func (a *Agent) startFailed(k key, uid id.UID, err error, tries map[key]int) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == "lease_over" {
		return err // the next report renews it
	}

	permanent := f != nil && (f.Kind == fault.Invalid || f.Kind == fault.Conflict)

	tries[k]++
	if !permanent && tries[k] < startTries {
		return fmt.Errorf("start %s rank %d: %w", k.run, k.rank, err)
	}

	delete(tries, k)
	a.log.Error("cannot start run", "run", k.run, "rank", k.rank, "error", err)

	return a.recordResult(k, api.RankReport{UID: uid, Cause: job.CauseLaunchFailed, Reason: err.Error()})
}

// recordResult keeps the end of a rank that the runtime does not have.
func (a *Agent) recordResult(k key, end api.RankReport) error {
	end.Run, end.Rank, end.State, end.Ended = k.run, k.rank, job.RunEnded, a.clk.Now()
	end.Reason = clipReason(end.Reason)

	return a.results.put(end)
}

// clipReason shortens a reason to what the contract allows.
func clipReason(text string) string {
	const maxReason = 2000
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}

	return text
}

// forget drops the record of a rank that the server has all of.
func (a *Agent) forget(k key) error {
	if err := a.fence.recordEnd(k); err != nil {
		return err
	}
	if err := a.rt.Forget(k.run, k.rank); err != nil {
		return fmt.Errorf("forget %s rank %d: %w", k.run, k.rank, err)
	}

	a.drop(k)

	return errors.Join(a.dropSaver(k), a.forgetIntake(k))
}

// putAside keeps what there is of a rank that the yard does not know, apart from all others. The
// fence remembers it: it must not run again, whichever history of the yard asks for it.
func (a *Agent) putAside(k key, have *rundir.Status) error {
	if err := a.fence.recordEnd(k); err != nil {
		return err
	}

	path, err := a.rt.SetAside(k.run, k.rank)
	if err != nil {
		return fmt.Errorf("set %s rank %d aside: %w", k.run, k.rank, err)
	}

	a.log.Warn("run of another history of the yard was set aside",
		"run", k.run, "rank", k.rank, "uid", have.UID, "dir", path)
	a.drop(k)

	a.mu.Lock()
	a.setAside = append(a.setAside, api.SetAsideRun{Run: k.run, UID: have.UID, Rank: k.rank, Path: path})
	a.mu.Unlock()
	notify(a.reportSoon)

	return errors.Join(a.dropSaver(k), a.forgetIntake(k))
}

// drop forgets what this process knows of a rank that the runtime does not have any more.
func (a *Agent) drop(k key) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if s := a.uploaders[k]; s != nil {
		s.cancel()
	}

	delete(a.startedRanks, k)
	delete(a.uploaders, k)
	a.gpuShares.forget(k)
	if k.rank == 0 {
		delete(a.metricsComplete, k.run)
	}
}

// devices names the GPUs of a run by what the driver calls them, since a
// program may count them in another order than the inventory. Declared GPUs
// have no such names.
func (a *Agent) devices(indices []int) []string {
	inv := a.inventory()
	var names []string
	for _, i := range indices {
		if i < 0 || i >= len(inv.GPUs) || inv.GPUs[i].Fake || !strings.HasPrefix(inv.GPUs[i].UUID, "GPU-") {
			return nil
		}

		names = append(names, inv.GPUs[i].UUID)
	}

	return names
}

// fake reports whether some of these GPUs are declared and do not exist.
func (a *Agent) fake(indices []int) bool {
	inv := a.inventory()

	return slices.ContainsFunc(indices, func(i int) bool {
		g := inv.GPU(i)
		return g != nil && g.Fake
	})
}
