package agent

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	gather "trainyard/internal/agent/metrics"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

const (
	// pushTimeout bounds one report of metrics; one that takes longer is sent again.
	pushTimeout = 30 * time.Second
	// pushRounds is how many reports are sent one after the other before programs are looked at again.
	pushRounds = 20
	// lastRounds is how often what a run has left is read before others have their turn, liveRounds the same for one that
	// goes on and prints more than is read at once.
	lastRounds = 20
	liveRounds = 4
	// metricsPatience is how long after its end the record of a run is kept for metrics that the server, though it
	// is there, has not taken. Output and end are worth waiting for without limit; the last point of a curve is not.
	metricsPatience = time.Minute
)

// curves are what the agent gathers of the programs' metrics. They belong to the loop that polls them.
type curves struct {
	runs     map[id.Run]*curve
	server   string // the server instance that has the metrics
	failures int
	nextPush time.Time // not before then is anything sent
}

// curve is what is gathered of one run.
type curve struct {
	gatherer *gather.Gatherer
	ended    bool
	complete bool // the run has ended and all of it has been read
	warned   bool // that it has more metrics than are kept
}

// curvesLoop reads the metrics of the runs whose first rank is here, and sends them.
func (a *Agent) curvesLoop(ctx context.Context) {
	var next time.Time // when all runs are looked at again
	for ctx.Err() == nil {
		changed := a.rt.Watch()
		begun := a.clk.Now()
		all := !begun.Before(next)
		if all {
			next = begun.Add(a.cfg.MetricsEvery)
		}

		a.pollCurves(ctx, all)
		a.metrics.pollSeconds.Add(a.clk.Now().Sub(begun).Seconds())
		a.pushCurves(ctx)

		// A change alone is no reason to look at once, but an end is: its record waits for us.
		for !a.someEnded() && ctx.Err() == nil {
			left := next.Sub(a.clk.Now())
			if left <= 0 {
				break
			}

			pause(ctx, left, changed)
			changed = a.rt.Watch()
		}
	}
}

// someEnded reports whether a run has ended that is not noted as such.
func (a *Agent) someEnded() bool { return slices.ContainsFunc(a.rt.List(), a.justEnded) }

// justEnded reports whether the first rank of a run has ended and is not noted as such.
func (a *Agent) justEnded(st rundir.Status) bool {
	c := a.curves.runs[st.Run]
	return st.Rank == 0 && st.State == job.RunEnded && !st.Started.IsZero() && (c == nil || !c.ended)
}

// pollCurves reads what is new of every run, or only of those that have just ended.
func (a *Agent) pollCurves(ctx context.Context, all bool) {
	here := map[id.Run]bool{}

	for _, st := range a.rt.List() {
		if st.Rank != 0 || st.Started.IsZero() || ctx.Err() != nil {
			continue
		}

		here[st.Run] = true
		if !all && !a.justEnded(st) {
			continue
		}

		c := a.curves.runs[st.Run]
		if c == nil {
			var err error
			c, err = a.follow(st)
			if err != nil {
				a.noteProblem(metricsTask(st.Run), err)
			}

			if c == nil {
				continue
			}

			a.curves.runs[st.Run] = c
		}

		if c.complete {
			continue
		}

		c.ended = st.State == job.RunEnded // checked before reading, so that a read after the end gets all that is left
		a.noteProblem(metricsTask(st.Run), a.readCurve(ctx, c))

		if c.gatherer.Dropped() > 0 && !c.warned {
			c.warned = true
			a.log.Warn("run exceeds the limit on metrics", "run", st.Run, "kept", metric.MaxSeries)
		}
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	for run := range a.curves.runs {
		if !here[run] {
			delete(a.curves.runs, run)
			delete(a.problems, metricsTask(run)) // over, though it does not work again
		}
	}

	// A run may have been forgotten while its last report was on its way, and been noted as complete after that.
	maps.DeleteFunc(a.metricsComplete, func(run id.Run, _ bool) bool { return !here[run] })
}

// readCurve reads what is new of a run. Of one that has ended it reads the rest, which may be much.
func (a *Agent) readCurve(ctx context.Context, c *curve) error {
	rounds := liveRounds
	if c.ended {
		rounds = lastRounds
	}

	var errs []error
	for more := true; more && rounds > 0 && ctx.Err() == nil; rounds-- {
		var err error
		more, err = c.gatherer.Poll(a.clk.Now(), c.ended)
		c.complete = c.ended && !more
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// metricsTask names the place of trouble with a run's metrics.
func metricsTask(run id.Run) string { return "metrics of " + string(run) }

// follow begins to gather the metrics of a run. An error beside it says what of it does not work.
func (a *Agent) follow(st rundir.Status) (*curve, error) {
	places, err := a.rt.MetricSources(st.Run, st.Rank)
	if err != nil && st.State != job.RunEnded {
		return nil, err
	}
	if err != nil { // nothing of it will be found later
		g, gerr := gather.New(gather.Run{Run: st.Run, UID: st.UID, Epoch: st.Epoch, Started: st.Started})
		return &curve{gatherer: g, ended: true, complete: true}, errors.Join(err, gerr)
	}

	run := gather.Run{
		Run: st.Run, UID: st.UID, Epoch: st.Epoch, Started: st.Started, Rules: places.Launch.Metrics,
		Roots: []string{places.Work, places.Checkpoints}, SDKFile: places.Metrics,
		Output: func(offset int64) (io.ReadCloser, int64, error) { return a.rt.OpenLog(st.Run, st.Rank, offset) },
	}

	if a.intake != nil {
		run.IntakeFile = a.intake.Received(st.Run, st.Rank)
	}

	g, err := gather.New(run)

	return &curve{gatherer: g}, err
}

// pushCurves sends what is new to the server, in as many reports as that takes.
func (a *Agent) pushCurves(ctx context.Context) {
	c := &a.curves
	if c.failures > 0 && a.clk.Now().Before(c.nextPush) {
		return
	}

	for range pushRounds {
		report, of, points := a.curvesReport()
		if len(report.Runs) == 0 {
			a.noteMetricsComplete()
			return
		}

		err := a.pushReport(ctx, report, of)

		if ctx.Err() != nil {
			return
		}

		a.noteProblem("metrics upload", err)

		if err != nil {
			c.failures++
			c.nextPush = a.clk.Now().Add(job.Backoff(c.failures, minRetryWait, maxRetryWait))
			a.metrics.pushFailures.Inc()

			return
		}

		c.failures = 0
		a.metrics.points.Add(float64(points))
	}
}

// curvesReport makes up the next report, and says of which runs it is.
func (a *Agent) curvesReport() (report api.MetricsReport, of []*curve, points int) {
	remaining := api.MaxMetricPoints
	runs := make([]id.Run, 0, len(a.curves.runs))
	for run := range a.curves.runs {
		runs = append(runs, run)
	}

	slices.Sort(runs)
	for _, run := range runs {
		if remaining <= 0 || len(report.Runs) == api.MaxMetricRuns {
			break
		}

		c := a.curves.runs[run]
		news, any := c.gatherer.Unsent(remaining)
		if !any {
			continue
		}

		for _, s := range news.Series {
			remaining -= len(s.Points)
			points += len(s.Points)
		}

		report.Runs, of = append(report.Runs, news), append(of, c)
	}

	return report, of, points
}

// pushReport sends one report. A restarted server gets everything again.
func (a *Agent) pushReport(ctx context.Context, report api.MetricsReport, of []*curve) error {
	call, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()

	reply, err := a.client.Load().PushMetrics(call, report)
	if fault.KindOf(err) == fault.NotFound {
		err = nil // a server of an older version, which wants none
	}

	if err != nil {
		return err
	}

	for _, c := range of {
		c.gatherer.MarkSent()
	}

	before := a.curves.server

	a.curves.server = reply.Server
	if before != "" && before != reply.Server {
		for _, c := range a.curves.runs {
			c.gatherer.ResendAll()
		}
	}

	return nil
}

// noteMetricsComplete notes which runs are over and have nothing more to tell, so that their records may be dropped.
func (a *Agent) noteMetricsComplete() {
	noted := false
	a.mu.Lock()

	for run, c := range a.curves.runs {
		if c.complete && !a.metricsComplete[run] {
			a.metricsComplete[run], noted = true, true
		}
	}

	a.mu.Unlock()

	if noted {
		notify(a.reconcileSoon)
	}
}

// metricsDelivered reports whether the server has all metrics of a rank, or has not taken them for too long since it
// has been there.
func (a *Agent) metricsDelivered(st *rundir.Status) bool {
	if st == nil || st.Rank != 0 || st.Started.IsZero() {
		return true
	}

	now := a.clk.Now()
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.metricsComplete[st.Run] {
		return true
	}

	there := now.Sub(a.lastContact) <= contactTimeout

	return there && now.Sub(st.Ended) > metricsPatience && now.Sub(a.contactSince) > metricsPatience
}
