package server

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// thinker is a slow policy. It thinks until it is let go on, and then plans as FIFO does.
type thinker struct {
	begun chan *place.View // it has begun to think
	goOn  chan struct{}
	cut   chan struct{} // it was told to stop before
}

func newThinker() *thinker {
	return &thinker{
		begun: make(chan *place.View, 1000),
		goOn:  make(chan struct{}, 1000),
		cut:   make(chan struct{}, 1000),
	}
}

func (*thinker) Name() string { return "thinker" }

func (*thinker) Revises() bool { return false }

func (*thinker) Slow() bool { return true }

func (p *thinker) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

func (p *thinker) Search(v *place.View, enough func() bool) place.Plan {
	p.begun <- v

	for !enough() {
		select {
		case <-p.goOn:
			return ordered.FIFO{}.Plan(v)
		case <-time.After(time.Millisecond):
		}
	}

	p.cut <- struct{}{}

	return place.Plan{}
}

func withThinker(p *thinker) setting {
	return withYard(func(c *yardmaster.Config) { c.Policy = p })
}

func TestTheLoopGoesOnWhileASlowPolicyThinks(t *testing.T) {
	t.Parallel()
	policy := newThinker()
	y := newYard(t, withThinker(policy))
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()

	first := y.submit(c, "run: a")[0].ID

	if v := <-policy.begun; v.Queue.Len() != 1 {
		t.Fatalf("the policy sees %d jobs, want 1", v.Queue.Len())
	}

	// While it thinks, jobs come and go.
	second := y.submit(c, "run: b")[0].ID
	_, err := c.CancelJob(t.Context(), first)
	y.must(err)

	select {
	case <-policy.begun:
		t.Fatal("another plan was begun before the first was there")
	default:
	}

	// Its plan is stale: it starts what was cancelled.
	policy.goOn <- struct{}{}

	v := <-policy.begun
	if items := v.Queue.Items(); len(items) != 1 || items[0].Job != second {
		t.Errorf("the second plan is made for %+v, want %s alone", items, second)
	}

	dropped := allEvents(t, y.admin(), api.EventFilter{Kind: "plan.dropped"})
	if len(dropped) != 1 || dropped[0].Job != first {
		t.Errorf("what was dropped: %+v, want the start of %s", dropped, first)
	}

	policy.goOn <- struct{}{}
	n.awaitRun(second, 1)
}

func TestALoopThatEndsStopsTheSearch(t *testing.T) {
	t.Parallel()
	policy := newThinker()
	y := newYard(t, withThinker(policy))
	y.join("n1")
	y.submit(y.researcher("ada"), "run: a")
	<-policy.begun

	y.cancel()
	<-y.loop.over

	select {
	case <-policy.cut:
	default:
		t.Error("the loop has ended and the policy still thinks")
	}
}

func TestAPlanArrivesAlthoughCommitsFailMeanwhile(t *testing.T) {
	t.Parallel()
	policy := newThinker()
	y := newYard(t, withThinker(policy))
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	first := y.submit(c, "run: a")[0].ID
	<-policy.begun

	y.store.fail(context.DeadlineExceeded)
	submitted := make(chan error, 1)
	go func() {
		_, err := c.Submit(context.Background(), api.SubmitRequest{File: "run: b"}, "")
		submitted <- err
	}()

	eventually(t, "the loop is stuck", func() bool { return y.loop.Stuck() != "" })
	policy.goOn <- struct{}{}
	y.store.mend()

	n.awaitRun(first, 1)
	y.must(<-submitted)
}

func TestAJobThatAQuotaBlocksIsAnsweredWithThat(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	y.do(yardmaster.PutQuota{By: "root", Quota: tenant.Quota{Subject: tenant.Subject{User: "ada"}, GPUs: 4}})

	told := y.submit(c, "run: a\nresources: {gpus: 8}")[0]
	detail, err := c.Job(t.Context(), told.ID)
	y.must(err)

	if told.State != job.Pending || !strings.Contains(told.Reason, "8 needed, 4 left") {
		t.Errorf("the reply is %s: %q, want the quota", told.State, told.Reason)
	}

	if told.Reason != detail.Reason || told.Seq != detail.Seq {
		t.Errorf("the reply says %q (%d), the yard stored %q (%d)", told.Reason, told.Seq, detail.Reason, detail.Seq)
	}
}

func TestTheAPIListsEveryBlocker(t *testing.T) {
	t.Parallel()
	field, _ := reflect.TypeFor[api.Why]().FieldByName("Blocker")

	var want []string
	for _, b := range place.Blockers() {
		want = append(want, string(b))
	}

	if diff := cmp.Diff(want, strings.Split(field.Tag.Get("enum"), ",")); diff != "" {
		t.Errorf("api.Why.Blocker (-place +api):\n%s", diff)
	}
}

// TestADryRunAsksASlowPolicyOutsideTheLoop: the answer is what the policy would do, and the
// loop goes on while it thinks.
func TestADryRunAsksASlowPolicyOutsideTheLoop(t *testing.T) {
	t.Parallel()
	policy := newThinker()
	y := newYard(t, withThinker(policy))
	c := y.researcher("ada")
	y.join("n1")

	type answer struct {
		reply api.SubmitReply
		err   error
	}

	answers := make(chan answer, 1)
	go func() {
		reply, err := c.Submit(context.Background(), api.SubmitRequest{File: "run: a", DryRun: true}, "")
		answers <- answer{reply, err}
	}()

	if v := <-policy.begun; v.Queue.Len() != 1 {
		t.Fatalf("the policy sees %d jobs, want the one of the dry run", v.Queue.Len())
	}

	if page, err := c.Jobs(t.Context(), api.JobFilter{}); err != nil || len(page.Jobs) != 0 {
		t.Errorf("while it thinks there are %+v, %v; want no job", page, err)
	}

	policy.goOn <- struct{}{}

	got := <-answers
	y.must(got.err)

	if w := got.reply.Plan[0].Why; w.Blocker != "none" || w.Start == nil || w.Sentence != "starts on n1 now" {
		t.Errorf("the dry run says %+v, want a start on n1", w)
	}
}
