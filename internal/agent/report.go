package agent

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/contact"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// reportEvery is how often reports are sent before the server has said how often.
const reportEvery = 5 * time.Second

// publish makes up what is reported about the ranks, and reports at once if
// that changed. An end is reported until the server, having taken it, drops the
// assignment.
func (a *Agent) publish(list []rundir.Status, want assignments) {
	var ranks []api.RankReport

	for _, st := range list {
		k := key{st.Run, st.Rank}
		w, assigned := want.ranks[k]

		_, given := a.results.all[k]
		if assigned && !sameRun(&w, st.UID, want.incarnation) {
			continue // of another history
		}
		if given && assigned || st.State == job.RunEnded && want.known && !assigned {
			continue
		}

		report := st.Report()
		report.Suspension.Error = clipReason(report.Suspension.Error)
		// An earlier server does not know the word, and a run that is not assigned may be one that the yard does not know.
		report.Silent = report.Silent && assigned && a.takesSilent.Load()
		if st.State == job.RunPreparing && report.Reason == "" {
			report.Reason = a.files.progress(w.Launch.Workdir)
		}

		if p := a.probes[k]; p != nil {
			report.Probe = p.found.Load()
		}

		a.checkpoints.describe(k, w.Stop, &report)
		a.outputs.describe(k, w.Stop, &report)
		ranks = append(ranks, report)
	}

	for _, report := range a.data.waiting() {
		if !slices.ContainsFunc(list, func(st rundir.Status) bool { return st.Run == report.Run && st.Rank == report.Rank }) {
			report.UID = want.ranks[key{report.Run, report.Rank}].Launch.UID
			ranks = append(ranks, report)
		}
	}

	for k, report := range a.results.all {
		if _, assigned := want.ranks[k]; assigned {
			ranks = append(ranks, report)
		}
	}

	slices.SortFunc(ranks, compareReports)
	a.mu.Lock()
	defer a.mu.Unlock()

	for i := range ranks {
		if wake := a.wakeFor(&ranks[i]); wake != nil {
			notify(wake)
		}
	}

	a.rankReports = ranks
}

// wakeFor says whom to wake for what is reported of a rank next: nobody if that is nothing new. That a rank has
// begun can wait: of a short job the end follows at once. The caller holds a.mu.
func (a *Agent) wakeFor(r *api.RankReport) chan struct{} {
	before := api.RankReport{}
	if i, known := slices.BinarySearchFunc(a.rankReports, *r, compareReports); known {
		before = a.rankReports[i]
	}

	begun := r.State == job.RunPreparing && before.State == "" ||
		r.State == job.RunRunning && (before.State == "" || before.State == job.RunPreparing)

	switch {
	case *r == before:
		return nil
	case begun && r.Reason == "" && r.Suspension == job.Suspension{}:
		return a.reportLater
	}

	return a.reportSoon
}

func compareReports(x, y api.RankReport) int {
	switch {
	case x.Run < y.Run:
		return -1
	case x.Run > y.Run:
		return 1
	}

	return x.Rank - y.Rank
}

// reportLoop sends a report at every change and at least as often as the server wants.
func (a *Agent) reportLoop(ctx context.Context) {
	interval := reportEvery
	failures := 0

	for ctx.Err() == nil {
		reply, err := a.report(ctx)

		if ctx.Err() != nil {
			return
		}

		a.noteProblem("report to the server", err)
		a.leaveIfRefused(err)

		if err != nil {
			a.metrics.reportFailures.Inc()
			failures++

			if a.tryNextServer(err) {
				continue
			}

			clock.Sleep(ctx, min(job.Backoff(failures, minRetryWait, maxRetryWait), interval))

			continue
		}

		failures = 0

		if reply.Interval > 0 {
			interval = time.Duration(reply.Interval)
		}

		a.awaitReport(ctx, interval)
	}
}

// beginDelay is for how long the news that a rank has begun may wait for other news. It is too short for people to
// notice, and longer than a short job takes, which is then reported, and stored by the server, once.
const beginDelay = 25 * time.Millisecond

// awaitReport waits until there is something to report, for at most the interval.
func (a *Agent) awaitReport(ctx context.Context, interval time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, interval)
	defer cancel()

	select {
	case <-waiting.Done():
	case <-a.reportSoon:
	case <-a.reportLater:
		pause(ctx, beginDelay, a.reportSoon)
	}
}

// report sends one report and does what the answer, or its lack, asks for.
func (a *Agent) report(ctx context.Context) (api.ReportReply, error) {
	a.reportSeq++
	r := api.Report{Capability: api.Capability, Boot: a.process.Process, Seq: a.reportSeq}
	inv := a.currentInventory()
	a.mu.Lock()
	ranks, server := a.rankReports, a.assignments.server
	r.Foreign, r.ForeignProcesses = a.foreignProcesses()
	r.SetAside = a.setAside
	r.ReclaimLeft = a.reclaimLeft()
	r.Clock, a.clockOffset = a.clockOffset, nil // a server of an earlier version may be next, and refuse it

	if seen := a.seen; seen.Incarnation.Number > 0 {
		r.Seen = &seen
	}

	if a.acknowledgedInventory == nil || !reflect.DeepEqual(*a.acknowledgedInventory, inv) {
		r.Inventory = &inv
	}

	a.mu.Unlock()
	r.Ranks, r.Data = a.addProgress(ranks, server), a.data.cache.Copies()
	a.addUse(r.Ranks)
	a.activities.add(a.clk.Now(), r.Ranks)

	if a.machine != nil && len(a.fakeGPUs) == 0 {
		r.GPUs = a.machine.Readings()
	}
	call, cancel := context.WithTimeout(ctx, a.memory.grant().ReportTimeout())
	defer cancel()

	renew := a.nodeLease.renewal()

	begun, err := a.cfg.Moment()
	if err != nil {
		return api.ReportReply{}, err
	}

	sent := contact.Moment{Boot: begun.Boot, Since: begun.Since}

	reply, err := a.client.Load().Report(call, r)
	if err != nil {
		if a.nodeLease.endedBy(err) {
			return reply, errors.Join(err, a.nodeLease.expire())
		}

		if ctx.Err() == nil {
			err = errors.Join(err, a.extendContactLease(sent, failureOf(err)))
		}

		return reply, err
	}

	a.markProgressDelivered(r.Ranks, server)
	a.noteSilent(r.Ranks)
	a.takesSilent.Store(reply.Silent)

	err = a.measureClock(begun, &reply)

	now := a.clk.Now()
	a.mu.Lock()

	if now.Sub(a.lastContact) > contactTimeout {
		a.contactSince = now
	}

	a.lastContact, a.acknowledgedRanks = now, r.Ranks
	a.setAside = a.setAside[len(r.SetAside):]
	if r.Inventory != nil {
		a.acknowledgedInventory = r.Inventory
	}

	a.mu.Unlock()

	err = errors.Join(err, a.takeGrant(sent, &reply), renew(reply.LeaseLeft))
	a.releaseGPUs(reply.Release)
	a.data.purge(reply.Purge)
	a.takeShared(reply.Shared)

	if a.streamHangs(generationOf(&reply), now) {
		a.log.Warn("assignment stream is stale, reconnecting")
		a.newStream()
	}

	return reply, err
}

// measureClock finds out by the answer to a report how far the machine's clock is from that of the server.
func (a *Agent) measureClock(sent cloud.Moment, reply *api.ReportReply) error {
	now, err := a.cfg.Moment()
	if err != nil || reply.Time.IsZero() {
		return err
	}

	offset := fleet.MeasureClock(sent.Wall, now.Since-sent.Since, reply.Time)
	a.clockOffset = &offset

	var wrong error
	if skew := offset.Proven(); skew.Abs() > fleet.MaxSkew {
		wrong = fault.New(fault.Conflict, "clock_skew", "the clock of this machine is %s off that of the server",
			skew.Abs().Round(time.Second)).WithRemedy("synchronise the clocks of both with NTP")
	}

	a.noteProblem("comparison of the clocks", wrong)

	return nil
}

// allEndsReported says whether the server has heard of every end.
func (a *Agent) allEndsReported() bool {
	list := a.rt.List()
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, st := range list {
		k := key{st.Run, st.Rank}
		_, assigned := a.assignments.ranks[k]

		acknowledged := slices.ContainsFunc(a.acknowledgedRanks, func(r api.RankReport) bool {
			return r.Run == k.run && r.Rank == k.rank && r.State == job.RunEnded
		})
		if assigned && !acknowledged {
			return false
		}
	}

	return true
}

// inventory returns the newest look at the machine.
func (a *Agent) inventory() fleet.Inventory {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latestScan.Inventory
}
