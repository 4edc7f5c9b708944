package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/spec"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

type submitInput struct {
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"requests with the same key submit the job only once"`
	Body api.SubmitRequest
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*httpapi.Body[api.SubmitReply], error) {
	who := callerOf(ctx)
	if err := allow(ctx, tenant.SubmitJob, who.User); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	file, err := spec.Parse([]byte(in.Body.File), spec.Options{
		Env: func(k string) (string, bool) {
			v, ok := in.Body.Env[k]
			return v, ok
		}, Params: in.Body.Params, Now: s.Clock.Now(), Location: time.UTC,
	})
	if err != nil {
		return nil, httpapi.ToProblem(err)
	}

	reply := api.SubmitReply{Jobs: []api.Job{}}

	msg := yardmaster.Submit{Owner: who.User, Key: in.Key, Jobs: make([]yardmaster.NewJob, len(file.Jobs))}
	for i := range file.Jobs {
		e := &file.Jobs[i]
		overrideEnv(&e.Spec, in.Body.Env)
		msg.Jobs[i] = yardmaster.NewJob{Spec: &e.Spec, Workdir: in.Body.Workdir}
		msg.Jobs[i].Needed, err = s.neededJobs(ctx, file, &e.Spec)
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		for _, n := range e.Notes {
			if !slices.Contains(reply.Notes, n.Text) {
				reply.Notes = append(reply.Notes, n.Text)
			}
		}
	}

	if in.Body.DryRun {
		reply.Plan, err = s.preview(ctx, who.User, file, msg.Jobs)
		return &httpapi.Body[api.SubmitReply]{Body: reply}, problemOrNil(err)
	}

	if err := s.Reserve.Submissions(); err != nil {
		return nil, s.fail(ctx, err)
	}

	if in.Key != "" {
		msg.KeyHash = hashOf(&in.Body)
		if done, err := s.submittedBefore(ctx, &msg, &reply); done || err != nil {
			return &httpapi.Body[api.SubmitReply]{Body: reply}, problemOrNil(err)
		}
	}

	if in.Body.Workdir != "" {
		if err := s.content.CheckWorkdir(ctx, who.User, in.Body.Workdir); err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	if file.Jobs[0].Spec.Every != "" {
		err := s.addSchedule(ctx, &msg, &reply)
		return &httpapi.Body[api.SubmitReply]{Body: reply}, problemOrNil(err)
	}

	answer, err := s.do(ctx, msg)
	if err != nil {
		return nil, httpapi.ToProblem(err)
	}

	sub, _ := answer.(yardmaster.Submitted)
	if sub.Replay { // another request with the same key came first, and is stored by now
		_, err := s.submittedBefore(ctx, &msg, &reply)
		return &httpapi.Body[api.SubmitReply]{Body: reply}, problemOrNil(err)
	}

	for i := range sub.Stored {
		addSubmitted(&reply, &sub.Stored[i])
	}

	return &httpapi.Body[api.SubmitReply]{Body: reply}, nil
}

// neededJobs looks up the jobs of other files that a job needs.
func (s *Server) neededJobs(ctx context.Context, file *spec.File, of *job.Spec) (map[string]yardmaster.Needed, error) {
	var needed map[string]yardmaster.Needed

	for _, name := range of.Needs {
		inFile := slices.ContainsFunc(file.Jobs, func(e spec.Entry) bool { return e.Spec.Name == name })
		if inFile || !spec.Outside(name) {
			continue
		}

		j, err := s.readJob(ctx, name)
		if fault.KindOf(err) == fault.NotFound {
			return nil, fault.New(fault.Invalid, "unknown_need", "the needed job %s not found", name).WithField("needs").
				WithRemedy("name a job by its id, or the newest of a name as in prep@last; list jobs with: trainyard jobs")
		}
		if err != nil {
			return nil, err
		}

		if needed == nil {
			needed = map[string]yardmaster.Needed{}
		}

		needed[name] = yardmaster.Needed{Job: j.ID, State: j.State}
	}

	return needed, nil
}

func problemOrNil(err error) error {
	if err == nil {
		return nil
	}

	return httpapi.ToProblem(err)
}

// overrideEnv lets values that came with the request stand in for those in the file.
func overrideEnv(s *job.Spec, env map[string]string) {
	for k, v := range env {
		if _, ok := s.Env[k]; ok {
			s.Env[k] = v
		}
	}
}

// hashOf is the digest of a request, to tell a repeated submission from another one.
func hashOf(r *api.SubmitRequest) string {
	text, err := json.Marshal(r)
	if err != nil { // strings and maps of strings always encode
		return err.Error()
	}

	sum := sha256.Sum256(text)

	return hex.EncodeToString(sum[:])
}

// submittedBefore fills the reply if this key was accepted before.
func (s *Server) submittedBefore(ctx context.Context, m *yardmaster.Submit, reply *api.SubmitReply) (bool, error) {
	first, err := s.Store.JobByKey(ctx, m.Owner, m.Key)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if first.KeyHash != m.KeyHash {
		return true, yardmaster.KeyReused(first.ID)
	}

	jobs := []job.Job{first}
	if first.Pipeline != "" {
		jobs, err = s.Store.Pipeline(ctx, first.Pipeline)
		if err != nil {
			return true, err
		}
	}

	reply.Replay = true
	for i := range jobs {
		if jobs[i].Index == 0 {
			addSubmitted(reply, &jobs[i])
		}
	}

	return true, nil
}

// addSubmitted adds a job that was submitted to the answer, or the array of which it is the first.
func addSubmitted(reply *api.SubmitReply, j *job.Job) {
	if j.Array != "" {
		reply.Arrays = append(reply.Arrays, newArray(j))
		return
	}

	reply.Jobs = append(reply.Jobs, toJob(j))
}

// rehearsalTime bounds how long a policy is asked what it would do with the jobs of a file.
const rehearsalTime = 2 * time.Second

// preview says what would happen to the jobs of a file. The loop only copies the yard: a queue is
// made of the copy, and the policy asked, outside it.
func (s *Server) preview(
	ctx context.Context,
	owner id.User,
	file *spec.File,
	submitted []yardmaster.NewJob,
) ([]api.PlannedJob, error) {
	jobs := make([]job.Job, len(file.Jobs))
	for i := range jobs {
		jobs[i] = job.Job{Owner: owner, Spec: &file.Jobs[i].Spec, State: job.Pending, Submitted: s.Clock.Now()}
	}

	foreseen, err := s.seer.Waiting(jobs)
	if err != nil {
		return nil, err
	}

	candidates := make([]yardmaster.Candidate, len(file.Jobs))
	for i := range file.Jobs {
		candidates[i] = yardmaster.Candidate{
			Spec: &file.Jobs[i].Spec, Forecast: foreseen[i], Needed: submitted[i].Needed,
		}
	}

	type outcome struct { // written by the loop, perhaps after we gave up on it
		rehearsal *yardmaster.Rehearsal
		refused   error
	}

	done := &outcome{}
	err = s.query(ctx, func(y *yardmaster.Yard) {
		done.rehearsal, done.refused = y.Rehearse(s.Clock.Now(), owner, candidates)
	})

	switch {
	case err != nil:
		return nil, err
	case done.refused != nil:
		return nil, done.refused
	}

	until := s.Clock.Now().Add(rehearsalTime)
	previews := done.rehearsal.Previews(func() bool { return ctx.Err() != nil || s.Clock.Now().After(until) })
	plan := make([]api.PlannedJob, len(previews))

	for i := range previews {
		v, sp := &previews[i], &file.Jobs[i].Spec
		plan[i] = api.PlannedJob{
			Name:      sp.Name,
			Resources: resourcesText(&sp.Resources),
			Fits:      append([]id.Node{}, v.Fits[:min(len(v.Fits), 20)]...),
			FitCount:  len(v.Fits),
			Why:       toWhy(&yardmaster.WhyReport{Why: v.Why}),
			Options:   toOptions(v.Options),
		}

		if sp.Array != nil {
			plan[i].Elements = sp.Array.Len()
		}
	}

	return plan, nil
}

// toOptions turns a policy's options into those of the API.
func toOptions(list []place.Option) []api.Option {
	out := make([]api.Option, len(list))
	for i, o := range list {
		out[i] = api.Option{
			What:     o.What,
			Class:    string(o.Class),
			Nodes:    o.Nodes,
			Offer:    o.Offer,
			Count:    o.Count,
			Start:    timeOrNil(o.Start),
			Finish:   timeOrNil(o.Finish),
			Earliest: timeOrNil(o.Earliest),
			Latest:   timeOrNil(o.Latest),
			Cost:     float64(o.Cost),
			CostMost: float64(o.CostMost),
			Unpriced: o.Unpriced,
			Basis:    o.Basis,
			Guess:    o.Guess,
			Verdict:  o.Verdict,
		}
	}

	return out
}
