package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Paging is the part of every list request that says which page.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"40000" doc:"value of next from the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
}

func (s *Server) jobRoutes() {
	huma.Register(
		s.api,
		huma.Operation{
			OperationID:   "submit-jobs",
			Method:        http.MethodPost,
			Path:          "/api/v1/jobs",
			Summary:       "Submit a job file",
			DefaultStatus: http.StatusCreated,
			Security:      byToken,
			MaxBodyBytes:  4 << 20,
			Tags:          []string{"jobs"},
		},
		s.submit,
	)

	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "list-jobs",
			Method:      http.MethodGet,
			Path:        "/api/v1/jobs",
			Summary:     "List jobs, newest or oldest first, or sorted by something else",
			Security:    byToken,
			Tags:        []string{"jobs"},
			Responses:   s.answers(reflect.TypeFor[api.JobPage]()),
		},
		s.listJobs,
	)

	huma.Register(
		s.api,
		huma.Operation{OperationID: "get-job", Method: http.MethodGet, Path: "/api/v1/jobs/{job}", Summary: "Show a job",
			Security: byToken, Tags: []string{"jobs"}},
		s.getJob,
	)

	for _, verb := range []struct {
		name, summary string
		message       func(j id.Job, by id.User) yardmaster.Message
	}{
		{"cancel", "Cancel a job: SIGTERM, then SIGKILL after its grace period",
			func(j id.Job, by id.User) yardmaster.Message { return yardmaster.Cancel{Job: j, By: by} }},
		{"kill", "Kill a job immediately", func(j id.Job,
			by id.User) yardmaster.Message {
			return yardmaster.Cancel{Job: j, By: by, Kill: true}
		}},
		{"pause", "Stop a job until it is resumed",
			func(j id.Job, by id.User) yardmaster.Message { return yardmaster.Pause{Job: j, By: by} }},
		{"save", "Ask a running job to save a checkpoint and to continue",
			func(j id.Job, by id.User) yardmaster.Message { return yardmaster.RequestSave{Job: j, By: by} }},
		{"resume", "Requeue a paused job", func(j id.Job,
			by id.User) yardmaster.Message {
			return yardmaster.Resume{Job: j, By: by}
		}},
	} {
		huma.Register(
			s.api,
			huma.Operation{OperationID: verb.name + "-job", Method: http.MethodPost, Path: "/api/v1/jobs/{job}/" + verb.name,
				Summary: verb.summary, Security: byToken, Tags: []string{"jobs"}},
			s.changeJob(verb.name, verb.message),
		)
	}

	huma.Register(
		s.api,
		huma.Operation{OperationID: "edit-job", Method: http.MethodPost, Path: "/api/v1/jobs/{job}/edit",
			Summary: "Change fields of a queued or paused job", Security: byToken, Tags: []string{"jobs"}},
		s.editJob,
	)
}

// do hands a message to the loop and waits for the answer no longer than is sensible.
func (s *Server) do(ctx context.Context, m yardmaster.Message) (any, error) {
	if origin := originOf(ctx); origin.Actor != "" {
		m = yardmaster.From{Message: m, Origin: origin}
	}

	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()

	return s.Loop.Do(ctx, m)
}

func (s *Server) query(ctx context.Context, fn func(*yardmaster.Yard)) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.Loop.Query(ctx, fn)
}

type listJobsInput struct {
	Paging
	State   []string  `query:"state,explode" maxItems:"30" doc:"only jobs in these states, or with these words as their status: failed, out_of_memory"`
	Owner   string    `query:"owner" maxLength:"63"`
	Project string    `query:"project" maxLength:"63"`
	Name    string    `query:"name" maxLength:"63" doc:"substring of the name"`
	Node    string    `query:"node" maxLength:"63" doc:"only jobs that have or had a run on this node"`
	Array   string    `query:"array" maxLength:"21" doc:"only elements of this array"`
	Single  bool      `query:"single" doc:"only jobs that are not elements of an array"`
	Since   time.Time `query:"since" doc:"only jobs submitted at or after this time"`
	Order   string    `query:"order" enum:"newest,oldest" default:"newest" doc:"which jobs come first, by their submission; without effect if sort is given"`
	Sort    string    `query:"sort" enum:"name,-name,cost,-cost,ended,-ended" doc:"sort by this instead of by submission, with - the greatest first; jobs that have not ended count as the earliest, and costs that are not posted yet do not count"`
	Counts  bool      `query:"counts" doc:"also count all jobs that match, on every page, by their status"`
}

// listJobs answers with a page of jobs as it is sent.
func (s *Server) listJobs(ctx context.Context, in *listJobsInput) (*huma.StreamResponse, error) {
	f, err := jobFilter(ctx, in)
	if err != nil {
		return nil, httpapi.ToProblem(err)
	}

	question, err := json.Marshal(struct {
		store.JobFilter

		Counts bool
	}{f, in.Counts})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	text, err := s.lists.ask(ctx, string(question), func(ctx context.Context) ([]byte, error) {
		page, err := s.readJobs(ctx, f, in.Counts)
		if err != nil {
			return nil, err
		}

		return s.encoded.page(page)
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "application/json")
		send(hc, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
	}}, nil
}

// pageOfJobs reads a page of jobs with what is known of them.
func (s *Server) pageOfJobs(ctx context.Context, in *listJobsInput) (*jobPage, error) {
	f, err := jobFilter(ctx, in)
	if err != nil {
		return nil, httpapi.ToProblem(err)
	}

	page, err := s.readJobs(ctx, f, in.Counts)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return page, nil
}

// jobFilter returns which jobs a caller asks for, as far as they may see them, and one more than they ask for.
func jobFilter(ctx context.Context, in *listJobsInput) (store.JobFilter, error) {
	f := store.JobFilter{
		Owner:   id.User(in.Owner),
		Project: id.Project(in.Project),
		Name:    in.Name,
		Node:    id.Node(in.Node),
		Array:   id.Array(in.Array),
		Single:  in.Single,
		Since:   in.Since,
		Limit:   in.Limit + 1,
		Oldest:  in.Order == "oldest",
	}

	if in.Sort != "" {
		column, descending := strings.CutPrefix(in.Sort, "-")
		f.Sort, f.Oldest = store.JobSort(column), !descending
	}

	if err := confineJobs(ctx, &f); err != nil {
		return f, err
	}

	if err := filterStates(&f, in.State); err != nil {
		return f, err
	}

	return f, turnTo(&f, in.Cursor)
}

// readJobs reads a page of jobs, of which the filter lets one more through.
func (s *Server) readJobs(ctx context.Context, f store.JobFilter, counts bool) (*jobPage, error) {
	jobs, err := s.Store.Jobs(ctx, f)
	if err != nil {
		return nil, err
	}

	page := &jobPage{}
	if counts {
		page.counts, err = s.countJobs(ctx, f)
		if err != nil {
			return nil, err
		}
	}

	if len(jobs) == f.Limit {
		jobs = jobs[:f.Limit-1]
		page.next = cursorOf(&f, &jobs[len(jobs)-1])
	}

	page.jobs = make([]listedJob, len(jobs))
	for i := range jobs {
		page.jobs[i].stored = &jobs[i]
	}

	// A list of what is stored is of use also where nothing else is known: another server leads.
	briefs, err := s.briefs(ctx, jobs)
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		return nil, err
	}

	for i := range briefs {
		page.jobs[i].brief = &briefs[i]
	}

	foreseen, err := s.seer.Waiting(jobs)
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		return nil, err
	}

	for i := range foreseen {
		page.jobs[i].forecast = foreseen[i]
	}

	return page, nil
}

// filterStates chooses jobs by the words that people see of their states.
func filterStates(f *store.JobFilter, words []string) error {
	for _, word := range words {
		word = strings.ToLower(word)
		state, status := job.State(word), job.Status(strings.ToUpper(word))
		isState, isStatus := slices.Contains(job.States(), state), slices.Contains(job.Statuses(), status)
		if !isState && !isStatus {
			return fault.New(fault.Invalid, "unknown_state", "unknown job state %q", word).
				WithField("state").
				WithRemedy("use one of %v", job.StateWords())
		}

		if isState {
			f.States = append(f.States, state)
		}

		if isStatus {
			f.Statuses = append(f.Statuses, status)
		}
	}

	return nil
}

// countJobs counts all jobs that a filter lets through, on whatever page.
func (s *Server) countJobs(ctx context.Context, f store.JobFilter) ([]api.JobCount, error) {
	f.Before, f.After, f.Last = 0, 0, nil
	counted, err := s.Store.CountJobs(ctx, f)
	if err != nil {
		return nil, err
	}

	counts := []api.JobCount{}
	for _, status := range job.Statuses() {
		if n := counted[status]; n > 0 {
			counts = append(counts, api.JobCount{Status: status, Jobs: n})
		}
	}

	return counts, nil
}

// confineJobs keeps a list to the jobs that the caller may see: their own, and those of the projects whose jobs they
// may read.
func confineJobs(ctx context.Context, f *store.JobFilter) error {
	who := callerOf(ctx)

	if who.May(tenant.ReadJob, f.Owner) || f.Project != "" && who.MayIn(tenant.ReadJob, f.Owner, f.Project) {
		return nil
	}

	if f.Owner == "" {
		f.Owner, f.Projects = who.User, who.Sees(tenant.ReadJob)
	}

	return allow(ctx, tenant.ReadJob, f.Owner)
}

func badCursor(c string) error {
	return fault.New(fault.Invalid, "bad_cursor", "invalid cursor %q", c).WithField("cursor").
		WithRemedy("use the cursor of a previous response, or omit it")
}

type jobInput struct {
	Job string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
}

type getJobInput struct {
	Job string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Env bool   `query:"env" doc:"show the values of env, which are masked otherwise; for the owner, with a token of scope submit"`
}

// maskedEnv stands for the value of an environment variable.
const maskedEnv = "***"

// maskEnv returns the spec of a job as others than its owner see it: people write tokens into env.
func maskEnv(s *job.Spec) *job.Spec {
	if s == nil || len(s.Env) == 0 {
		return s
	}

	masked := *s
	masked.Env = make(map[string]string, len(s.Env))
	for name := range s.Env {
		masked.Env[name] = maskedEnv
	}

	return &masked
}

// mayReadEnv refuses to show the values of env to anybody but the owner of the job, who could read them anyway.
func mayReadEnv(ctx context.Context, j *job.Job) error {
	who := callerOf(ctx)

	switch {
	case who.User != j.Owner:
		return fault.New(fault.Denied, "not_allowed", "permission denied: only %s can read the env of job %s", j.Owner, j.ID)
	case !who.Scope.Includes(tenant.ScopeSubmit):
		return fault.New(fault.Denied, "not_allowed", "permission denied: a token of scope %s cannot read the env of jobs",
			who.Scope).WithRemedy("use a token of scope %s", tenant.ScopeSubmit)
	}

	return nil
}

// allowJob answers Denied unless the caller may change a job; phrase is what they want to do.
func allowJob(ctx context.Context, phrase string, j *job.Job) error {
	return allowIn(ctx, phrase, tenant.ChangeJob, j.Owner, j.Project)
}

func (s *Server) getJob(ctx context.Context, in *getJobInput) (*httpapi.Body[api.JobDetail], error) {
	j, err := s.readJob(ctx, in.Job)
	if err == nil && in.Env {
		err = mayReadEnv(ctx, &j)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	runs, err := s.Store.Runs(ctx, j.ID)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	d := api.JobDetail{Job: toJob(&j), Runs: make([]api.Run, len(runs)), Workdir: j.Workdir}
	for i := range runs {
		d.Runs[i] = toRun(&runs[i])
	}

	spec := j.Spec
	if !in.Env {
		spec = maskEnv(spec)
	}

	d.Spec, err = json.Marshal(spec)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	// What is stored is of use also where nothing else is known: another server leads.
	if err := s.addWhy(ctx, &d, &j); err != nil && fault.KindOf(err) != fault.Unavailable {
		return nil, s.fail(ctx, err)
	}

	d.Share, err = s.shareOf(ctx, &j, runs)
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		return nil, s.fail(ctx, err)
	}

	d.Utilization, err = s.utilizationOf(ctx, &j)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	asked, err := s.Store.Questions(ctx, store.QuestionFilter{
		Job: j.ID, States: []inbox.State{inbox.Open}, Limit: len(inbox.Kinds()),
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	for i := range asked {
		d.Questions = append(d.Questions, toQuestion(&asked[i]))
	}

	d.Outputs, err = s.outputsOf(ctx, j.ID)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	if !j.State.Final() {
		made, err := s.seer.Forecast(ctx, &j)
		if err != nil && fault.KindOf(err) != fault.Unavailable {
			return nil, s.fail(ctx, err)
		}

		addForecast(&d.Job, made)
		d.Forecast = api.NewForecast(made)
	}

	return &httpapi.Body[api.JobDetail]{Body: d}, nil
}

// addWhy fills in what is not stored of one job: as lists show it, and why it waits.
func (s *Server) addWhy(ctx context.Context, out *api.JobDetail, j *job.Job) error {
	briefs, err := s.briefs(ctx, []job.Job{*j})
	if err != nil {
		return err
	}

	addBrief(&out.Job, &briefs[0])

	why, waits, err := s.why(ctx, j)
	if waits {
		out.Why = toWhy(&why)
		out.Why.Changes = toChanges(why.Remedies, &j.Spec.Resources)
	}

	return err
}

func (s *Server) changeJob(
	verb string,
	message func(id.Job, id.User) yardmaster.Message,
) func(context.Context, *jobInput) (*httpapi.Body[api.Job], error) {
	return func(ctx context.Context, in *jobInput) (*httpapi.Body[api.Job], error) {
		j, err := s.readJob(ctx, in.Job)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		if err := allowJob(ctx, verb+" jobs", &j); err != nil {
			return nil, httpapi.ToProblem(err)
		}

		answer, err := s.do(ctx, message(j.ID, callerOf(ctx).User))
		if fault.KindOf(err) == fault.NotFound && j.State.Final() {
			err = fault.New(fault.Conflict, "job_state", "job %s has already ended (%s) and cannot be changed", j.ID, j.State)
		}

		if err != nil {
			return nil, s.fail(ctx, err)
		}

		changed, _ := answer.(job.Job)

		return &httpapi.Body[api.Job]{Body: toJob(&changed)}, nil
	}
}

type editInput struct {
	Job  string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Body api.EditRequest
}

// editJob changes fields of a job that does not run. The yardmaster knows best what it is now.
func (s *Server) editJob(ctx context.Context, in *editInput) (*httpapi.Body[api.Job], error) {
	change := s.changeJob("edit", func(j id.Job, by id.User) yardmaster.Message {
		return yardmaster.Edit{Job: j, By: by, Set: in.Body.Set}
	})

	return change(ctx, &jobInput{Job: in.Job})
}

// fail turns an error into an answer and logs it if it is the yard's own fault.
func (s *Server) fail(ctx context.Context, err error) error {
	return httpapi.Fail(ctx, s.Log, err)
}

func parseSeq(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}

	n, err := strconv.ParseUint(cursor, 10, 64)
	if err != nil {
		return 0, badCursor(cursor)
	}

	return n, nil
}
