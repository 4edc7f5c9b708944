package server

import (
	"fmt"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// shown is a time as the store keeps it, so that the same thing reads the same
// from memory and from the store.
func shown(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// timeOrNil leaves out a time that has not come.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}

	u := shown(t)

	return &u
}

func toJob(j *job.Job) api.Job {
	out := api.Job{
		ID:        j.ID,
		Seq:       j.Seq,
		Owner:     j.Owner,
		Project:   j.Project,
		State:     j.State,
		Status:    j.Status(),
		Cause:     j.Cause,
		Reason:    j.Reason,
		Submitted: shown(j.Submitted),
		Since:     shown(j.Since),
		Started:   timeOrNil(j.Started),
		Ended:     timeOrNil(j.Ended),
		Epoch:     j.Epoch,
		Needs:     j.Needs,
		Pipeline:  j.Pipeline,
		Cost:      float64(j.Cost),
		Ran:       ranOf(j),
	}

	if j.Reference != (job.Reference{}) {
		out.ExpectOn = &api.Reference{GPU: j.Reference.GPU, TFLOPS: j.Reference.TFLOPS}
	}

	if value, _, ok := j.Element(); ok {
		index := j.Index
		out.Array, out.Index, out.Value = j.Array, &index, value
	}

	if j.Spec != nil {
		addSpec(&out, j.Spec)
		out.NoCheckpoint = j.Spec.Checkpoint == nil && !j.State.Final()
	}

	if j.Done > 0 || out.Work > 0 {
		out.SetDone(j.Done)
	}

	if j.State.Final() && j.Epoch > 0 {
		code := j.ExitCode
		out.ExitCode = &code
	}

	return out
}

// ranOf returns how long the ended runs of a job ran. Of jobs that ended before this was recorded only the first
// start and the end are known.
func ranOf(j *job.Job) job.Duration {
	if j.Ran == 0 && j.State.Final() && !j.Started.IsZero() {
		return duration(j.Ended.Sub(j.Started))
	}

	return duration(j.Ran)
}

// duration is a duration as it is shown, in milliseconds.
func duration(d time.Duration) job.Duration {
	return job.Duration(max(d, 0).Truncate(time.Millisecond))
}

// addSpec shows what a job asks for.
func addSpec(out *api.Job, s *job.Spec) {
	out.Name, out.Priority, out.Resources, out.LateCost = s.Name, s.Priority, resourcesText(&s.Resources), s.LateCost
	if s.Deadline != nil {
		out.Deadline = timeOrNil(*s.Deadline)
	}

	out.Budget, out.Expect = s.Budget, s.Expect
	if s.Speed != nil {
		out.Work = s.Speed.Work
	}
}

// addBrief shows what is not stored: where a live job runs, what it has cost with what
// is not posted yet, and how far it has come by now in place of what its ended runs did.
func addBrief(out *api.Job, b *yardmaster.Brief) {
	out.Nodes, out.FakeGPUs, out.Cost = b.Nodes, b.FakeGPUs, max(out.Cost, float64(b.Cost))
	out.Ran = max(out.Ran, duration(b.Ran))
	out.Remarks = b.Remarks

	if b.WaitReason != "" && out.State.Waiting() && b.Blocker != place.BlockNone {
		out.Reason = b.WaitReason
	}

	if b.Doing != "" && !out.State.Final() {
		out.Reason = strings.TrimPrefix(out.Reason+"; "+b.Doing, "; ")
	}

	if p := b.Progress; p != nil {
		out.Work, out.Done, out.Percent = p.Work, nil, nil
		if !p.At.IsZero() {
			out.SetDone(p.Done)
		}
	}
}

// resourcesText writes the resources a job requests: "2 nodes of 8× A100 80GB".
func resourcesText(r *job.Resources) string {
	var parts []string

	if r.GPUs.Min > 0 || r.GPUs.Max > 0 {
		parts = append(parts, gpusText(r))
	}

	if len(parts) == 0 || r.CPUs > 1000 {
		cpus := r.CPUs.String() + " CPUs"
		if r.CPUs == 1000 {
			cpus = "1 CPU"
		}

		parts = append(parts, cpus)
	}

	if r.Memory > 0 {
		parts = append(parts, humanize.Size(r.Memory))
	}

	text := strings.Join(parts, ", ")
	if r.Nodes.Min > 1 || r.Nodes.Max > 1 {
		text = fmt.Sprintf("%s nodes of %s", r.Nodes, text)
	}

	return text
}

// gpusText writes the GPUs of one node: "1..4× A100 80GB or H100", "2 GPUs with at least 24 GB".
func gpusText(r *job.Resources) string {
	kinds := make([]string, len(r.GPU))
	for i, kind := range r.GPU {
		kinds[i] = humanize.GPU(kind.Model, kind.Memory)
	}

	text := r.GPUs.String() + "× " + humanize.Or(kinds...)
	if len(kinds) == 0 {
		text = r.GPUs.String() + " " + humanize.Plural(max(r.GPUs.Min, r.GPUs.Max), "GPU")
	}

	if r.GPUShare > 0 && r.GPUShare < 1 {
		return partText(r, kinds)
	}

	switch memory := r.GPUMemory; {
	case memory == (job.ByteRange{}):
		return text
	case memory.Max == 0:
		return text + " with at least " + humanize.Size(memory.Min)
	default:
		return text + " with " + humanize.Size(memory.Min) + " to " + humanize.Size(memory.Max)
	}
}

// partText writes the part of a GPU that a job requests: "50% of 1× A100 with 20 GB of its memory".
func partText(r *job.Resources, kinds []string) string {
	text := humanize.Percent(r.GPUShare) + " of 1 GPU"
	if len(kinds) > 0 {
		text = humanize.Percent(r.GPUShare) + " of 1× " + humanize.Or(kinds...)
	}

	if r.GPUMemory.Min > 0 {
		text += " with " + humanize.Size(r.GPUMemory.Min) + " of its memory"
	}

	if r.ShareMPS {
		text += " through MPS"
	}

	return text
}

func toRun(r *job.Run) api.Run {
	out := api.Run{ID: r.ID, Epoch: r.Epoch, State: r.State, Cause: r.Cause, Reason: r.Reason, Ordered: shown(r.Ordered),
		Started: timeOrNil(r.Started), Ended: timeOrNil(r.Ended), Ranks: make([]api.Rank, len(r.Ranks))}
	if k := r.FailedRank(); r.State == job.RunEnded && k != nil {
		out.FailedRank = &k.Rank
	}

	for i := range r.Ranks {
		k := &r.Ranks[i]
		out.Ranks[i] = api.Rank{
			Rank:   k.Rank,
			Node:   k.Node,
			GPUs:   k.GPUs,
			Share:  k.Share,
			State:  k.State,
			Signal: k.Signal,
			Cause:  k.Cause,
			Reason: k.Reason,

			PassedEnv: strings.Fields(k.PassedEnv),
			Digest:    k.Digest,
		}

		if k.State == job.RunEnded {
			code := k.ExitCode
			out.Ranks[i].ExitCode = &code
		}
	}

	return out
}

func toWhy(w *yardmaster.WhyReport) *api.Why {
	out := &api.Why{
		Blocker:  string(w.Blocker),
		Sentence: w.Sentence,
		Position: w.Position,
		Start:    timeOrNil(w.Start),
		Remedies: place.Texts(w.Remedies),

		NotBefore: timeOrNil(w.NotBefore),
	}

	for i := range w.Holders {
		h := &w.Holders[i]
		out.Holders = append(
			out.Holders,
			api.Holder{
				Job:   h.Job,
				Owner: h.Owner,
				Node:  w.Nodes[i],
				GPUs:  len(fleet.Indices(h.GPUs)),
				CPUs:  h.CPUs,
				Until: timeOrNil(h.Ends),
			},
		)
	}

	return out
}

// toChanges returns the remedies that are edits of a job.
func toChanges(remedies []place.Remedy, asked *job.Resources) []api.Change {
	var list []api.Change

	for i := range remedies {
		r := &remedies[i]
		if set := r.Edits(asked); len(set) > 0 {
			list = append(list, api.Change{Text: r.Text, Set: set, RoomNow: r.RoomNow})
		}
	}

	return list
}

func toUser(u *tenant.User, usage float64) api.User {
	return api.User{
		ID: u.ID, Number: u.Number, Role: u.Role, Disabled: u.Disabled, Created: shown(u.Created), Usage: usage,
		MaxPriority: u.MaxPriority,
	}
}

func (s *Server) toToken(t *tenant.Token) api.Token {
	return api.Token{
		ID:       t.ID,
		Kind:     t.Kind,
		Owner:    t.Owner,
		Scope:    t.Scope,
		Note:     t.Note,
		Class:    t.Class,
		Pool:     t.Pool,
		UsesLeft: t.UsesLeft,
		Created:  shown(t.Created),
		Expires:  shown(t.Expires),
		Revoked:  t.Revoked,
		LastUsed: s.used.get(t.ID),
		Parent:   t.Parent,
		Session:  t.Session,
	}
}

func toEvent(e *yardmaster.Event) api.Event {
	return api.Event{
		Seq:    e.Seq,
		At:     shown(e.At),
		Kind:   e.Kind,
		Actor:  e.Actor,
		Owner:  e.Owner,
		Job:    e.Job,
		Run:    e.Run,
		Node:   e.Node,
		Lease:  e.Lease,
		From:   e.From,
		To:     e.To,
		Reason: e.Reason,

		Token:     e.Token,
		Address:   e.Address,
		Count:     e.Count,
		Question:  e.Question,
		Hold:      e.Hold,
		NotBefore: timeOrNil(e.NotBefore),
	}
}
