// Package yardview rebuilds a yard from its API: as it is now, and as
// it was when a run was ordered.
//
// What comes out is a yardmaster.State, which the simulator goes on from and which
// a policy can be asked about again. The API does not have everything, and does not
// show everything to everyone: what could not be rebuilt exactly is listed in sentences
// beside the state, never passed over. trainyard simulate --from-yard and trainyard
// replay use it. It changes nothing in the yard and decides nothing.
package yardview

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Source is what is asked of a yard; *api.Client is one.
type Source interface {
	Info(ctx context.Context) (api.Info, error)
	Whoami(ctx context.Context) (api.Whoami, error)
	Nodes(ctx context.Context, p api.Page) (api.NodePage, error)
	Jobs(ctx context.Context, f api.JobFilter) (api.JobPage, error)
	Job(ctx context.Context, j id.Job) (api.JobDetail, error)
	Users(ctx context.Context, p api.Page) (api.UserPage, error)
	Datasets(ctx context.Context, p api.Page) (api.DatasetPage, error)
	Events(ctx context.Context, f api.EventFilter) (api.EventPage, error)
}

var _ Source = (*api.Client)(nil)

// Options say how to read a yard.
type Options struct {
	// Progress is called with how many jobs have been read, of how many; nil if nobody
	// wants to know.
	Progress func(done, total int)
	// MaxJobs is how many jobs may be read; a yard with more is refused. 0 for no limit.
	MaxJobs int
}

// View is a yard as far as it could be seen.
type View struct {
	Now    time.Time
	Policy string // that the server uses
	State  yardmaster.State
	// Jobs holds the API's answers about the visible jobs of the state.
	Jobs map[id.Job]api.JobDetail
	// Strangers are jobs of others: only what they hold is known.
	Strangers []id.Job
	// Gaps says what is not as it really is.
	Gaps []string
}

// pageSize is how much is asked for at once.
const pageSize = 500

// alive are the states of jobs that have not ended.
func alive() []job.State {
	return slices.DeleteFunc(job.States(), job.State.Final)
}

// reader reads a yard.
type reader struct {
	Source
	opts  Options
	view  *View
	admin bool
}

// Live rebuilds the yard as it is now.
func Live(ctx context.Context, s Source, opts Options) (*View, error) {
	r, err := open(ctx, s, opts)
	if err != nil {
		return nil, err
	}

	nodes, err := r.nodes(ctx)
	if err != nil {
		return nil, err
	}

	jobs, err := r.jobs(ctx, api.JobFilter{States: alive()})
	if err != nil {
		return nil, err
	}
	if opts.MaxJobs > 0 && len(jobs) > opts.MaxJobs {
		return nil, fault.New(fault.OverLimit, "too_many_jobs", "the yard has %d running and queued jobs; at most %d can "+
			"be simulated here", len(jobs), opts.MaxJobs).WithRemedy("use trainyard simulate --from-yard")
	}

	details, err := r.details(ctx, jobs)
	if err != nil {
		return nil, err
	}

	paused := 0
	for _, d := range details {
		if d.State == job.Paused {
			paused++
			continue
		}

		if err := r.add(ctx, d); err != nil {
			return nil, err
		}
	}

	if paused > 0 {
		r.gap("%s paused and not included: when they will be resumed is unknown", jobsAre(paused))
	}

	for _, n := range nodes {
		r.view.State.Nodes = append(r.view.State.Nodes, nodeOf(&n))
	}

	r.strangers(nodes)

	if err := r.needs(ctx); err != nil {
		return nil, err
	}
	if err := r.users(ctx); err != nil {
		return nil, err
	}
	if err := r.datasets(ctx); err != nil {
		return nil, err
	}

	r.finish()

	return r.view, nil
}

func open(ctx context.Context, s Source, opts Options) (*reader, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}

	who, err := s.Whoami(ctx)
	if err != nil {
		return nil, err
	}

	r := &reader{Source: s, opts: opts, admin: who.Role == tenant.Admin}
	r.view = &View{
		Now:    info.Now,
		Policy: info.Policy,
		Jobs:   map[id.Job]api.JobDetail{},
		State:  yardmaster.State{Needs: map[id.Job]job.State{}},
	}

	return r, nil
}

// gap notes something that is not as it really is.
func (r *reader) gap(format string, args ...any) {
	r.view.Gaps = append(r.view.Gaps, fmt.Sprintf(format, args...))
}

func jobsAre(n int) string {
	if n == 1 {
		return "1 job is"
	}

	return fmt.Sprintf("%d jobs are", n)
}

// nodes reads all nodes.
func (r *reader) nodes(ctx context.Context) ([]api.Node, error) {
	var all []api.Node
	page := api.Page{Limit: pageSize}
	for {
		p, err := r.Source.Nodes(ctx, page)
		if err != nil {
			return nil, err
		}

		all = append(all, p.Nodes...)
		page.Cursor = p.Next

		if p.Next == "" {
			return all, nil
		}
	}
}

// jobs reads all jobs that a filter lets through, oldest first.
func (r *reader) jobs(ctx context.Context, f api.JobFilter) ([]api.Job, error) {
	var all []api.Job
	f.Limit = pageSize
	for {
		p, err := r.Source.Jobs(ctx, f)
		if err != nil {
			return nil, err
		}

		all = append(all, p.Jobs...)
		f.Cursor = p.Next

		if p.Next == "" {
			slices.Reverse(all)
			return all, nil
		}
	}
}

// tries is how often something is asked that the yard refuses because it was asked
// too much.
const tries = 30

// Job reads a job, and waits a while when the yard was asked too often.
func (r *reader) Job(ctx context.Context, j id.Job) (api.JobDetail, error) {
	for n := 1; ; n++ {
		d, err := r.Source.Job(ctx, j)
		if fault.KindOf(err) != fault.OverLimit || n == tries || !clock.Sleep(ctx, time.Second) {
			return d, err
		}
	}
}

// details reads all that is known about each of the jobs.
func (r *reader) details(ctx context.Context, jobs []api.Job) ([]api.JobDetail, error) {
	all := make([]api.JobDetail, 0, len(jobs))
	for i := range jobs {
		d, err := r.Job(ctx, jobs[i].ID)
		if err != nil {
			return nil, err
		}

		all = append(all, d)

		if r.opts.Progress != nil {
			r.opts.Progress(i+1, len(jobs))
		}
	}

	return all, nil
}

// add puts a job as it is now into the state.
func (r *reader) add(ctx context.Context, d api.JobDetail) error {
	j, err := jobOf(&d)
	if err != nil {
		return err
	}

	if d.Status == job.StatusSuspended {
		if j.Suspended, err = r.suspendedSince(ctx, &d); err != nil {
			return err
		}
	}

	if d.Why != nil && d.Why.Blocker == "backoff" && d.Why.Start != nil {
		j.NotBefore = *d.Why.Start
	}

	r.view.Jobs[d.ID] = d
	r.view.State.Jobs = append(r.view.State.Jobs, j)
	for i := range d.Runs {
		if d.Runs[i].State != job.RunEnded {
			run := runOf(&j, &d.Runs[i])
			suspend(&run, j.Suspended, time.Duration(d.Ran)-j.Ran)
			r.view.State.Runs = append(r.view.State.Runs, run)
		}
	}

	return nil
}

// suspendedSince returns since when the program of a job is suspended in place.
func (r *reader) suspendedSince(ctx context.Context, d *api.JobDetail) (time.Time, error) {
	page, err := r.Events(ctx, api.EventFilter{Job: d.ID, Kind: "run.suspended", Tail: 1})
	if err != nil {
		return time.Time{}, err
	}

	if n := len(page.Events); n > 0 {
		return page.Events[n-1].At, nil
	}

	r.gap("since when %s is suspended is unknown: taken to be since now", d.ID)

	return r.view.Now, nil
}

// suspend describes a run that is suspended in place since a time, after it has worked for so long.
func suspend(run *job.Run, since time.Time, worked time.Duration) {
	if since.IsZero() || len(run.Ranks) != 1 {
		return
	}

	k := &run.Ranks[0]
	k.Suspended, k.Suspension = since, job.Suspension{Number: 1, On: true}
	k.Lent = job.Duration(max(since.Sub(run.Started)-worked, 0))
}

// jobOf converts a job of the API.
func jobOf(d *api.JobDetail) (job.Job, error) {
	j := job.Job{
		ID:        d.ID,
		Seq:       d.Seq,
		Owner:     d.Owner,
		Project:   d.Project,
		Pipeline:  d.Pipeline,
		Array:     d.Array,
		State:     d.State,
		Cause:     d.Cause,
		Reason:    d.Reason,
		Submitted: d.Submitted,
		Since:     d.Since,
		Epoch:     d.Epoch,
		Needs:     d.Needs,
		Spec:      &job.Spec{},
	}

	if d.Index != nil {
		j.Index = *d.Index
	}

	if d.Started != nil {
		j.Started = *d.Started
	}

	if d.Done != nil {
		j.Done = *d.Done
	}

	if d.ExpectOn != nil {
		j.Reference = job.Reference{GPU: d.ExpectOn.GPU, TFLOPS: d.ExpectOn.TFLOPS}
	}

	if n := len(d.Runs); n > 0 && len(d.Runs[n-1].Ranks) > 0 {
		j.Last = d.Runs[n-1].Ranks[0].Node
	}

	for i := range d.Runs {
		if run := &d.Runs[i]; run.Started != nil && run.Ended != nil {
			j.Served += run.Ended.Sub(*run.Started).Seconds() * float64(gpusOf(run))
			j.Ran += run.Ended.Sub(*run.Started)
		}
	}

	if err := json.Unmarshal(d.Spec, j.Spec); err != nil {
		return j, fmt.Errorf("read the spec of job %s: %w", d.ID, err)
	}

	j.Spec.Secrets, j.Spec.RegistryAuth = nil, "" // nobody has them here

	return j, nil
}

func gpusOf(r *api.Run) int {
	n := 0
	for i := range r.Ranks {
		n += len(r.Ranks[i].GPUs)
	}

	return n
}

// runOf converts a run of the API. What each rank holds beside GPUs
// is what the job asks for.
func runOf(j *job.Job, a *api.Run) job.Run {
	r := job.Run{ID: a.ID, Job: j.ID, Epoch: a.Epoch, State: a.State, Cause: a.Cause, Reason: a.Reason, Ordered: a.Ordered}
	if a.Started != nil {
		r.Started = *a.Started
	}

	if j.State == job.Cancelling || j.State == job.Pausing || a.State == job.RunStopping {
		r.Stop, r.StopFor = job.StopTerm, job.CausePreempted
		if j.State == job.Cancelling {
			r.StopFor = job.CauseCancelled
		}
	}

	for i := range a.Ranks {
		k := &a.Ranks[i]
		r.Ranks = append(r.Ranks, job.Rank{
			Rank:    k.Rank,
			Node:    k.Node,
			GPUs:    k.GPUs,
			Share:   k.Share,
			State:   k.State,
			CPUs:    j.Spec.Resources.CPUs,
			Memory:  j.Spec.Resources.Memory,
			Started: r.Started,
		})
	}

	return r
}

// nodeOf converts a node of the API. A GPU that someone outside the
// yard uses is as good as one that does not work.
func nodeOf(a *api.Node) fleet.Node {
	n := fleet.Node{
		ID:       a.ID,
		Class:    a.Class,
		Pool:     a.Pool,
		State:    fleet.Ready,
		Since:    a.Since,
		Reason:   a.Reason,
		Cordoned: a.Cordoned,
		Inventory: fleet.Inventory{
			Address:  a.Address,
			Topology: a.Topology,
			Labels:   a.Labels,
			OS:       a.OS,
			Arch:     a.Arch,
			Version:  a.Version,
			CPUs:     a.CPUs,
			Memory:   a.Memory,
			Disk:     a.Disk,
			Limits:   a.Limits,
			Problem:  a.Problem,
			Shares:   a.Shares,
			MPS:      a.MPS,

			Isolation:  a.Isolation,
			SingleUser: a.SingleUser,
			Snapshots:  a.Snapshots,
			Suspends:   a.Snapshots != nil && a.Snapshots.Suspend.OK,

			Containers:   a.Containers,
			Environments: a.Environments,
			Shared:       a.Shared,
			Secrets:      true, // as of all agents but old ones, which the API does not tell from the others
		},
	}

	if s := fleet.State(a.State); slices.Contains(fleet.States(), s) {
		n.State = s // otherwise a word for a node in order: running, idle, error
	}

	for i := range a.GPUs {
		g := &a.GPUs[i]
		gpu := fleet.GPU{
			Index:  g.Index,
			UUID:   g.UUID,
			Model:  g.Model,
			Memory: g.Memory,
			Driver: g.Driver,
			Fake:   g.Fake,
			Error:  g.Error,
		}

		if g.State == fleet.GPUForeign {
			gpu.Error = "used by a program outside the yard"
		}

		n.Inventory.GPUs = append(n.Inventory.GPUs, gpu)
	}

	return n
}

// strangers puts jobs into the state of which only what they hold can be seen.
func (r *reader) strangers(nodes []api.Node) {
	runs := map[id.Job]*job.Run{}
	var order []id.Job
	for i := range nodes {
		n := &nodes[i]
		cpus, memory := n.CPUs-n.CPUsFree, n.Memory-n.MemFree
		for k := range r.view.State.Runs {
			for _, rank := range r.view.State.Runs[k].Ranks {
				if rank.Node != n.ID || rank.State == job.RunEnded {
					continue
				}

				memory -= rank.Memory
				if !rank.Lends() {
					cpus -= rank.CPUs
				}
			}
		}

		for _, j := range n.Jobs {
			if _, known := r.view.Jobs[j]; known {
				continue
			}

			run := runs[j]
			if run == nil {
				run = &job.Run{
					ID:      id.NewRun(j, 1),
					Job:     j,
					Epoch:   1,
					State:   job.RunRunning,
					Ordered: r.view.Now,
					Started: r.view.Now,
					Reason:  "job of another user",
				}

				runs[j] = run
				order = append(order, j)
			}

			rank := job.Rank{
				Rank:    len(run.Ranks),
				Node:    n.ID,
				State:   job.RunRunning,
				Started: r.view.Now,
				CPUs:    max(cpus, 0),
				Memory:  max(memory, 0),
			}

			cpus, memory = 0, 0 // the first of them stands for all

			for g := range n.GPUs {
				if n.GPUs[g].Job == j {
					rank.GPUs = append(rank.GPUs, n.GPUs[g].Index)
				}
			}

			run.Ranks = append(run.Ranks, rank)
		}
	}

	for _, j := range order {
		run := runs[j]
		r.view.Strangers = append(r.view.Strangers, j)
		r.view.State.Runs = append(r.view.State.Runs, *run)
		r.view.State.Jobs = append(r.view.State.Jobs, job.Job{
			ID:        j,
			Owner:     "others",
			State:     job.Running,
			Epoch:     1,
			Submitted: r.view.Now,
			Since:     r.view.Now,
			Started:   r.view.Now,
			Reason:    "runs",
			Spec: &job.Spec{Run: "unknown", Place: job.PlaceAny, Resources: job.Resources{
				Nodes: job.Range{
					Min: len(run.Ranks),
					Max: len(run.Ranks),
				},
				GPUs: job.Range{Min: len(run.Ranks[0].GPUs), Max: len(run.Ranks[0].GPUs)},
			}},
		})
	}

	if !r.admin {
		r.gap("queued jobs of other users are not visible to you, so your jobs may start later than estimated")
	}
}

// needs looks up the jobs that waiting ones need and that have ended.
func (r *reader) needs(ctx context.Context) error {
	for i := range r.view.State.Jobs {
		for _, n := range r.view.State.Jobs[i].Needs {
			_, known := r.view.Jobs[n]
			if _, asked := r.view.State.Needs[n]; known || asked {
				continue
			}

			d, err := r.Job(ctx, n)
			if err != nil {
				return err
			}

			r.view.State.Needs[n] = d.State
		}
	}

	return nil
}

// datasets reads what jobs may need, and where it is: a job whose dataset is not registered never starts.
func (r *reader) datasets(ctx context.Context) error {
	for page := (api.Page{Limit: pageSize}); ; {
		p, err := r.Source.Datasets(ctx, page)
		if err != nil {
			return err
		}

		for _, d := range p.Datasets {
			set := dataset.Dataset{
				ID: d.ID, Size: d.Size, Rule: cmp.Or(d.Effective, d.Place), Owner: d.Owner, Source: d.Source, Readers: d.Readers,
				Created: d.Created,
			}
			for _, c := range d.Copies {
				set.Copies = append(set.Copies, dataset.Copy{Node: c.Node, Pool: c.Pool, At: c.At, Path: c.Path, Since: d.Created})
			}

			r.view.State.Datasets = append(r.view.State.Datasets, set)
		}

		page.Cursor = p.Next
		if p.Next == "" {
			return nil
		}
	}
}

// users reads the usage of all users, on which fair share is based.
func (r *reader) users(ctx context.Context) error {
	known := map[id.User]bool{}
	if r.admin {
		page := api.Page{Limit: pageSize}
		for {
			p, err := r.Source.Users(ctx, page)
			if err != nil {
				return err
			}

			for _, u := range p.Users {
				known[u.ID] = true
				r.view.State.Users = append(
					r.view.State.Users,
					tenant.User{
						ID: u.ID, Number: u.Number, Role: u.Role, Created: u.Created, Disabled: u.Disabled, Usage: u.Usage,
						UsageAt: r.view.Now,
					},
				)
			}

			page.Cursor = p.Next

			if p.Next == "" {
				break
			}
		}
	} else {
		r.gap("usage of other users is visible to admins only: fair share treats everyone as having used nothing")
	}

	for i := range r.view.State.Jobs {
		if o := r.view.State.Jobs[i].Owner; !known[o] {
			known[o] = true
			r.view.State.Users = append(
				r.view.State.Users,
				tenant.User{ID: o, Role: tenant.Researcher, Created: r.view.Now, UsageAt: r.view.Now},
			)
		}
	}

	return nil
}

// finish puts things into order and finds the greatest numbers.
func (r *reader) finish() {
	s := &r.view.State
	slices.SortFunc(s.Nodes, func(a, b fleet.Node) int { return strings.Compare(string(a.ID), string(b.ID)) })
	slices.SortFunc(s.Jobs, func(a, b job.Job) int { return cmp.Compare(number(a.ID), number(b.ID)) })
	slices.SortFunc(s.Runs, func(a, b job.Run) int { return cmp.Compare(number(a.Job), number(b.Job)) })
	for i := range s.Jobs {
		s.LastJob = max(s.LastJob, number(s.Jobs[i].ID))
	}
}

func number(j id.Job) uint64 {
	n, _ := j.Number()
	return n
}
