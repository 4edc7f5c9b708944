package quota_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// jobOf returns a job of ann's in no project.
func jobOf(j id.Job) quota.Payer { return quota.Payer{Owner: "ann", Job: j} }

func TestForecast(t *testing.T) {
	t.Parallel()
	evening := time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC) // ten hours before midnight
	for name, c := range map[string]struct {
		before func(*quota.Tracker)
		want   quota.Projection
	}{
		"nothing runs": {
			before: func(b *quota.Tracker) { b.Spend(evening, evening, jobOf("j1"), 0, 30) },
			want:   quota.Projection{Used: 30, Expected: 30},
		},
		"what runs lasts": {
			before: func(b *quota.Tracker) { b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 4) },
			want:   quota.Projection{Expected: 40},
		},
		"one that goes on": {
			before: func(b *quota.Tracker) { b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 8) },
			want:   quota.Projection{Expected: 80, Exhausted: evening.Add(5 * time.Hour)},
		},
		"one of unknown rest and one that ends": {
			before: func(b *quota.Tracker) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 4)
				b.Commit(jobOf("j1"), quota.Commitment{RemainingCost: -1, RemainingGPUHours: -1})
				b.Use(evening, jobOf("j2"), fleet.OnDemand, 1, 6)
				b.Commit(jobOf("j2"), quota.Commitment{RemainingCost: 12, RemainingGPUHours: -1}) // two hours: 20, and then 4 an hour
			},
			want: quota.Projection{Expected: 52, Exhausted: evening.Add(7 * time.Hour)},
		},
		"what was spent of it is not expected again": {
			before: func(b *quota.Tracker) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 6)
				b.Commit(jobOf("j1"), quota.Commitment{RemainingCost: 12, RemainingGPUHours: -1})
				b.Spend(evening, evening, jobOf("j1"), 0, 9)
			},
			want: quota.Projection{Used: 9, Expected: 12},
		},
		"one that takes longer than the day": {
			before: func(b *quota.Tracker) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 3)
				b.Commit(jobOf("j1"), quota.Commitment{RemainingCost: 500, RemainingGPUHours: -1})
			},
			want: quota.Projection{Expected: 30},
		},
		"one that ended": {
			before: func(b *quota.Tracker) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 8)
				b.Commit(jobOf("j1"), quota.Commitment{RemainingCost: 500, RemainingGPUHours: -1})
				b.Use(evening, jobOf("j1"), fleet.OnDemand, -1, -8)
				b.Spend(evening, evening, jobOf("j1"), 0, 3)
				b.Done(jobOf("j1"))
			},
			want: quota.Projection{Used: 3, Expected: 3},
		},
		"used up already": {
			before: func(b *quota.Tracker) { b.Spend(evening, evening, jobOf("j1"), 0, 41) },
			want:   quota.Projection{Used: 41, Expected: 41, Exhausted: evening},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := trackerWith(t, tenant.Quota{Subject: anyone, Budget: 40 * dollar, Period: tenant.Day})
			c.before(b)
			c.want.Limit = 40

			all := b.Statuses(evening)
			if len(all) != 1 || all[0].Subject != ann {
				t.Fatalf("the forecast is %+v", all)
			}

			if diff := cmp.Diff(c.want, all[0].Cost); diff != "" {
				t.Error(diff)
			}

			if diff := cmp.Diff(all[0], b.Status(evening, ann)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	b := trackerWith(t, tenant.Quota{Subject: vision, GPUHours: 10, Period: tenant.Week})
	b.Use(noon, annsJ1, fleet.Local, 2, 0.5)
	b.Use(noon, annsJ1, fleet.Reserved, 0.5, 1)
	b.Use(noon, annsJ1, fleet.OnDemand, 4, 9)
	b.Nodes(noon, annsJ1, 3)
	b.Spend(noon, noon, annsJ1, 3600, 7)
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	monday := time.Date(2026, 11, 9, 0, 0, 0, 0, time.UTC)

	want := quota.Status{
		Subject:  ann,
		Local:    2,
		Reserved: 0.5,
		OnDemand: 4,
		Nodes:    3,
		Hourly:   10.5,
		Begin:    month,
		End:      month.AddDate(0, 1, 0),
		Cost: quota.Projection{
			Used:     7,
			Expected: 7 + 10.5*15.5*24,
		},
		GPUHours: quota.Projection{Used: 1, Expected: 1 + 6.5*15.5*24},
	}

	if diff := cmp.Diff(want, b.Status(noon, ann)); diff != "" {
		t.Error("of who is not limited:", diff)
	}

	limit, _ := b.Of(vision)
	want.Subject, want.Quota, want.Begin, want.End = vision, limit, monday, monday.AddDate(0, 0, 7)
	want.Cost.Expected = 7 + 10.5*12
	want.GPUHours = quota.Projection{Limit: 10, Used: 1, Expected: 1 + 6.5*12, Exhausted: noon.Add(4984615384615)}
	if diff := cmp.Diff(want, b.Status(noon, vision)); diff != "" {
		t.Error("of a project:", diff)
	}

	if diff := cmp.Diff(
		quota.Status{Subject: tenant.Subject{User: "bob"}, Begin: month, End: month.AddDate(0, 1, 0)},
		b.Status(noon, tenant.Subject{User: "bob"}),
	); diff != "" {
		t.Error("of who has never come:", diff)
	}
}

// TestAlertsTellOnce goes through the life of a limit, step by step.
func TestAlertsTellOnce(t *testing.T) {
	t.Parallel()
	b := quota.New()
	limit := tenant.Quota{Subject: ann, Budget: 40 * dollar, OnExceeded: tenant.ExceededStop}
	put := func(change func(*tenant.Quota)) func() {
		return func() {
			change(&limit)
			if err := b.Put(limit); err != nil {
				t.Error(err)
			}
		}
	}

	now := noon
	spend := func(cost money.Amount) func() { return func() { b.Spend(now, now, jobOf("j1"), 0, cost) } }

	nothing := func() {}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a limit is set", put(func(*tenant.Quota) {}), nil},
		{"little is spent", spend(31.99), nil},
		{"a job begins", func() { b.Use(now, jobOf("j1"), fleet.OnDemand, 1, 1) }, []string{
			"forecast warn: ann has used $31.99 of $40.00 this month; at the current rate it is used up at 20:00 UTC, before it resets on Dec 1; running jobs would bring it to $403.99"}},
		{"again", nothing, nil},
		{"four fifths", spend(0.5), []string{"near warn: ann has used $32.49 of $40.00 this month (81 %); resets on Dec 1"}},
		{"a little more", spend(0.5), nil},
		{"all of it", spend(7.13), []string{
			"used_up stop: ann has used $40.12 of $40.00 this month; running jobs checkpoint and stop, new jobs stay queued; resets on Dec 1; an admin can raise it: trainyard quota set user/ann --budget 60"}},
		{"more than all", spend(1), nil},
		{"other numbers are changed", put(func(l *tenant.Quota) { l.GPUs = 3 }), nil},
		{"at the limit something else is done", put(func(l *tenant.Quota) { l.OnExceeded = tenant.ExceededDowngrade }), []string{
			"used_up downgrade: ann has used $41.12 of $40.00 this month; jobs on on-demand nodes (GPUs: 1) checkpoint and move to local or reserved nodes; resets on Dec 1; an admin can raise it: trainyard quota set user/ann --budget 60"}},
		{"the job ends", func() { b.Use(now, jobOf("j1"), fleet.OnDemand, -1, -1) }, nil},
		{"the limit is raised a little", put(func(l *tenant.Quota) {
			l.Budget = 45 * dollar
			l.OnExceeded = tenant.ExceededAsk
		}), []string{
			"free warn: ann has used $41.12 of $45.00 this month; ann may continue",
			"near warn: ann has used $41.12 of $45.00 this month (91 %); resets on Dec 1"}},
		{"it is used up again", spend(3.88), []string{
			"used_up ask: ann has used $45.00 of $45.00 this month; running jobs continue, new jobs stay queued; resets on Dec 1; an admin can raise it: trainyard quota set user/ann --budget 68"}},
		{"a correction", spend(-1), []string{"free warn: ann has used $44.00 of $45.00 this month; ann may continue"}},
		{"and once more", spend(1), []string{
			"used_up ask: ann has used $45.00 of $45.00 this month; running jobs continue, new jobs stay queued; resets on Dec 1; an admin can raise it: trainyard quota set user/ann --budget 68"}},
		{"a new month", func() { now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) }, []string{"free warn: ann may continue: a new month has begun, $0.00 of $45.00 used"}},
		{"all at once", func() {
			now = now.Add(time.Hour)
			spend(50)()
		}, []string{
			"used_up ask: ann has used $50.00 of $45.00 this month; running jobs continue, new jobs stay queued; resets on Jan 1 2027; an admin can raise it: trainyard quota set user/ann --budget 68"}},
		{"the limit only warns", put(func(l *tenant.Quota) { l.OnExceeded = tenant.ExceededWarn }), []string{
			"free warn: ann has used $50.00 of $45.00 this month; ann may continue: the quota only warns now",
			"used_up warn: ann has used $50.00 of $45.00 this month; jobs continue; resets on Jan 1 2027; an admin can raise it: trainyard quota set user/ann --budget 68"}},
		{"a new year, and nothing was held", func() { now = now.AddDate(0, 1, 0) }, nil}, // 1 Jan
		{"GPU-hours too", put(func(l *tenant.Quota) {
			l.GPUHours = 2
			l.OnExceeded = tenant.ExceededDowngrade
			l.WarnAt = 0.5
		}), nil},
		{"half of them", func() { b.Spend(now, now, jobOf("j1"), 4000, 0) }, []string{"near warn: ann has used 1.1 of 2 GPU-hours this month (55 %); resets on Feb 1"}},
		{"all of them", func() { b.Spend(now, now, jobOf("j1"), 4000, 0) }, []string{
			"used_up downgrade: ann has used 2.2 of 2 GPU-hours this month; from now on jobs run only on local and reserved nodes; resets on Feb 1; an admin can raise it: trainyard quota set user/ann --gpu-hours 3"}},
		{"the limit goes", func() { b.Remove(ann) }, []string{"free warn: ann may continue: the quota of GPU-hours was removed"}},
		{"nothing is left to tell", nothing, nil},
	} {
		step.do()

		if diff := cmp.Diff(step.want, notice(b.Alerts(now))); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}

		held := b.Allow(now, jobOf("j1"), 0, 0)
		for _, a := range b.Notices() {
			if want := held.HoldReason != "" || held.NoProvisioning; a.Held != want {
				t.Errorf("%s: people think that it is held: %t, and it is: %t", step.what, a.Held, want)
			}
		}
	}
}

// notice returns alerts as text.
func notice(all []quota.Alert) []string {
	var out []string
	for _, a := range all {
		out = append(out, string(a.Kind)+" "+string(a.Action)+": "+a.Sentence)
	}

	return out
}

func TestALimitForEachTellsOfEveryone(t *testing.T) {
	t.Parallel()
	b := trackerWith(
		t,
		tenant.Quota{Subject: anyone, Budget: 10 * dollar},
		tenant.Quota{Subject: anyPro, Budget: 15 * dollar},
	)

	for _, u := range []id.User{"cyd", "ann", "bob"} {
		b.Spend(noon, noon, quota.Payer{Owner: u, Project: "vision", Job: "j1"}, 0, 8)
	}

	var got []string
	for _, a := range b.Alerts(noon) {
		got = append(got, a.Subject.String()+" "+string(a.Kind)+" "+string(a.Measure))
	}

	want := []string{"project/vision used_up money", "user/ann near money", "user/bob near money", "user/cyd near money"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBudgetsOfJobs(t *testing.T) {
	t.Parallel()
	b := quota.New()
	two, ten := jobOf("j2"), jobOf("j10")
	b.Use(noon, two, fleet.OnDemand, 1, 2)
	b.Use(noon, ten, fleet.OnDemand, 1, 2)
	outlay := quota.Commitment{RemainingCost: 25, RemainingGPUHours: -1, Budget: 40 * dollar, CostSoFar: 10}
	b.Commit(two, outlay)
	b.Commit(ten, quota.Commitment{RemainingCost: 25, RemainingGPUHours: -1, Budget: 20 * dollar, CostSoFar: 10})

	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"one will need too much", func() {}, []string{
			"forecast warn: j10 has used $10.00 of its budget of $20.00; estimated total cost $35.00; at the current rate the budget is used up at 17:00 UTC"}},
		{"it is told once", func() {}, nil},
		{"the other has nearly used it up", func() { b.Spend(noon, noon, two, 0, 23) }, []string{"near warn: j2 has used $33.00 of its budget of $40.00 (82 %)"}},
		{"and then has", func() {
			b.Spend(noon, noon, two, 0, 7)
			b.Spend(noon, noon, ten, 0, 10.5)
		}, []string{
			"used_up stop: j2 has used $40.00 of its budget of $40.00; it checkpoints and is paused",
			"used_up stop: j10 has used $20.50 of its budget of $20.00; it checkpoints and is paused"}},
		{"the budget is raised", func() {
			outlay.Budget, outlay.CostSoFar = 60*dollar, 40
			b.Commit(two, outlay)
		}, []string{
			"free warn: j2 has used $40.00 of its budget of $60.00; j2 may continue",
			"forecast warn: j2 has used $40.00 of its budget of $60.00; estimated total cost $65.00; at the current rate the budget is used up at 22:00 UTC"}},
		{"the other is without one", func() { b.Commit(ten, quota.Commitment{RemainingCost: -1, RemainingGPUHours: -1}) }, []string{"free warn: j10 may continue: the budget was removed"}},
		{"both end", func() {
			for _, w := range []quota.Payer{two, ten} {
				b.Use(noon, w, fleet.OnDemand, -1, -2)
				b.Done(w)
			}
		}, nil},
	} {
		step.do()

		if diff := cmp.Diff(step.want, notice(b.Alerts(noon))); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}

	if left := b.Notices(); len(left) > 0 {
		t.Errorf("of jobs that have ended is kept: %+v", left)
	}
}

func TestChangedListsWhatMustBeWrittenDown(t *testing.T) {
	t.Parallel()
	b := trackerWith(t, tenant.Quota{Subject: ann, Budget: 10 * dollar})
	b.Spend(noon, noon, jobOf("j1"), 60, 9)
	b.Commit(jobOf("j1"), quota.Commitment{RemainingCost: -1, RemainingGPUHours: -1, Budget: 9 * dollar, CostSoFar: 9})
	b.Alerts(noon)
	day := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	totals, said := b.Changed()

	wantTotals := []quota.Usage{
		{Subject: ann, Period: tenant.Day, Begin: day, GPUSeconds: 60, Cost: 9},
		{Subject: ann, Period: tenant.Week, Begin: day.AddDate(0, 0, -6), GPUSeconds: 60, Cost: 9},
		{Subject: ann, Period: tenant.Month, Begin: day.AddDate(0, 0, -14), GPUSeconds: 60, Cost: 9},
	}

	wantSaid := []quota.Notice{
		{
			Subject: ann,
			Measure: quota.Money,
			Mark:    "$10 a month, ask, warned at 0.8",
			Begin:   day.AddDate(0, 0, -14),
			Near:    true,
		},
		{Job: "j1", Measure: quota.Money, Mark: "the job's budget of $9", Near: true, UsedUp: true, Held: true},
	}

	if diff := cmp.Diff(wantTotals, totals) + cmp.Diff(wantSaid, said); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff(b.Usage(), totals) + cmp.Diff(b.Notices(), said); diff != "" {
		t.Error("Totals and Told list something else:", diff)
	}

	b.Allow(noon, jobOf("j1"), 0, 0)

	totals, said = b.Changed()
	if len(totals) > 0 || len(said) > 0 {
		t.Errorf("nothing changed, and is to be written down: %+v %+v", totals, said)
	}

	b.Done(jobOf("j1"))

	totals, said = b.Changed()
	if len(totals) > 0 || len(said) != 1 || said[0].Job != "j1" || said[0].Sent() {
		t.Errorf("the job ended, and is to be written down: %+v %+v", totals, said)
	}

	b.Spend(noon.AddDate(0, 0, 1), noon.AddDate(0, 0, 1), jobOf("j2"), 0, 0.5) // Monday

	totals, _ = b.Changed()
	if len(totals) != 3 || totals[0].Cost != 0.5 || totals[1].Cost != 0.5 || totals[2].Cost != 9.5 {
		t.Errorf("after a day: %+v", totals)
	}
}
