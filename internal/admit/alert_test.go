package admit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// jobOf returns a job of ann's in no project.
func jobOf(j id.Job) admit.Who { return admit.Who{Owner: "ann", Job: j} }

func TestForecast(t *testing.T) {
	t.Parallel()
	evening := time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC) // ten hours before midnight
	for name, c := range map[string]struct {
		before func(*admit.Books)
		want   admit.Course
	}{
		"nothing runs": {
			before: func(b *admit.Books) { b.Spend(evening, jobOf("j1"), 0, 30) },
			want:   admit.Course{Used: 30, Expected: 30},
		},
		"what runs lasts": {
			before: func(b *admit.Books) { b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 4) },
			want:   admit.Course{Expected: 40},
		},
		"one that goes on": {
			before: func(b *admit.Books) { b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 8) },
			want:   admit.Course{Expected: 80, UsedUp: evening.Add(5 * time.Hour)},
		},
		"one of unknown rest and one that ends": {
			before: func(b *admit.Books) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 4)
				b.Commit(jobOf("j1"), admit.Outlay{Money: -1, GPUHours: -1})
				b.Use(evening, jobOf("j2"), fleet.OnDemand, 1, 6)
				b.Commit(jobOf("j2"), admit.Outlay{Money: 12, GPUHours: -1}) // two hours: 20, and then 4 an hour
			},
			want: admit.Course{Expected: 52, UsedUp: evening.Add(7 * time.Hour)},
		},
		"what was spent of it is not expected again": {
			before: func(b *admit.Books) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 6)
				b.Commit(jobOf("j1"), admit.Outlay{Money: 12, GPUHours: -1})
				b.Spend(evening, jobOf("j1"), 0, 9)
			},
			want: admit.Course{Used: 9, Expected: 12},
		},
		"one that takes longer than the day": {
			before: func(b *admit.Books) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 3)
				b.Commit(jobOf("j1"), admit.Outlay{Money: 500, GPUHours: -1})
			},
			want: admit.Course{Expected: 30},
		},
		"one that ended": {
			before: func(b *admit.Books) {
				b.Use(evening, jobOf("j1"), fleet.OnDemand, 1, 8)
				b.Commit(jobOf("j1"), admit.Outlay{Money: 500, GPUHours: -1})
				b.Use(evening, jobOf("j1"), fleet.OnDemand, -1, -8)
				b.Spend(evening, jobOf("j1"), 0, 3)
				b.Done(jobOf("j1"))
			},
			want: admit.Course{Used: 3, Expected: 3},
		},
		"used up already": {
			before: func(b *admit.Books) { b.Spend(evening, jobOf("j1"), 0, 41) },
			want:   admit.Course{Used: 41, Expected: 41, UsedUp: evening},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := booksWith(t, tenant.Limit{Subject: anyone, Money: 40 * dollar, Period: tenant.Day})
			c.before(b)
			c.want.Limit = 40
			all := b.Forecast(evening)
			if len(all) != 1 || all[0].Subject != ann {
				t.Fatalf("the forecast is %+v", all)
			}
			if diff := cmp.Diff(c.want, all[0].Money); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(all[0], b.Standing(evening, ann)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	b := booksWith(t, tenant.Limit{Subject: vision, GPUHours: 10, Period: tenant.Week})
	b.Use(noon, annsJ1, fleet.Local, 2, 0.5)
	b.Use(noon, annsJ1, fleet.Reserved, 0.5, 1)
	b.Use(noon, annsJ1, fleet.OnDemand, 4, 9)
	b.Nodes(noon, annsJ1, 3)
	b.Spend(noon, annsJ1, 3600, 7)
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	monday := time.Date(2026, 11, 9, 0, 0, 0, 0, time.UTC)
	want := admit.Standing{Subject: ann, Local: 2, Reserved: 0.5, OnDemand: 4, Nodes: 3, Hourly: 10.5, Begin: month, Ends: month.AddDate(0, 1, 0),
		Money: admit.Course{Used: 7, Expected: 7 + 10.5*15.5*24}, GPUHours: admit.Course{Used: 1, Expected: 1 + 6.5*15.5*24}}
	if diff := cmp.Diff(want, b.Standing(noon, ann)); diff != "" {
		t.Error("of who is not limited:", diff)
	}
	limit, _ := b.Of(vision)
	want.Subject, want.Limit, want.Begin, want.Ends = vision, limit, monday, monday.AddDate(0, 0, 7)
	want.Money.Expected = 7 + 10.5*12
	want.GPUHours = admit.Course{Limit: 10, Used: 1, Expected: 1 + 6.5*12, UsedUp: noon.Add(4984615384615)}
	if diff := cmp.Diff(want, b.Standing(noon, vision)); diff != "" {
		t.Error("of a project:", diff)
	}
	if diff := cmp.Diff(admit.Standing{Subject: tenant.Subject{User: "bob"}, Begin: month, Ends: month.AddDate(0, 1, 0)}, b.Standing(noon, tenant.Subject{User: "bob"})); diff != "" {
		t.Error("of who has never come:", diff)
	}
}

// TestAlertsTellOnce goes through the life of a limit, step by step.
func TestAlertsTellOnce(t *testing.T) {
	t.Parallel()
	b := admit.New()
	limit := tenant.Limit{Subject: ann, Money: 40 * dollar, At: tenant.LimitStop}
	put := func(change func(*tenant.Limit)) func() {
		return func() {
			change(&limit)
			if err := b.Put(limit); err != nil {
				t.Error(err)
			}
		}
	}
	now := noon
	spend := func(cost float64) func() { return func() { b.Spend(now, jobOf("j1"), 0, cost) } }
	nothing := func() {}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a limit is set", put(func(*tenant.Limit) {}), nil},
		{"little is spent", spend(31.99), nil},
		{"a job begins", func() { b.Use(now, jobOf("j1"), fleet.OnDemand, 1, 1) }, []string{
			"forecast warn: ann has used $31.99 of $40 this month; at the present rate it is used up on 15 Nov at 20:00 UTC, before it starts anew on 1 Dec; what runs now would bring it to $403.99"}},
		{"again", nothing, nil},
		{"four fifths", spend(0.5), []string{"near warn: ann has used $32.49 of $40 this month (81 %); it starts anew on 1 Dec"}},
		{"a little more", spend(0.5), nil},
		{"all of it", spend(7.13), []string{
			"used_up stop: ann has used $40.12 of $40 this month; what runs saves itself and stops, and nothing new starts; it starts anew on 1 Dec; an admin can raise it with: trainyard limit set user/ann --money $60"}},
		{"more than all", spend(1), nil},
		{"other numbers are changed", put(func(l *tenant.Limit) { l.GPUs = 3 }), nil},
		{"at the limit something else is done", put(func(l *tenant.Limit) { l.At = tenant.LimitDowngrade }), []string{
			"used_up downgrade: ann has used $41.12 of $40 this month; what runs on hired nodes (GPUs: 1) saves itself and goes on where no rent is paid; it starts anew on 1 Dec; an admin can raise it with: trainyard limit set user/ann --money $60"}},
		{"the job ends", func() { b.Use(now, jobOf("j1"), fleet.OnDemand, -1, -1) }, nil},
		{"the limit is raised a little", put(func(l *tenant.Limit) { l.Money = 45 * dollar; l.At = tenant.LimitAsk }), []string{
			"free warn: ann has used $41.12 of $45 this month; ann may go on",
			"near warn: ann has used $41.12 of $45 this month (91 %); it starts anew on 1 Dec"}},
		{"it is used up again", spend(3.88), []string{
			"used_up ask: ann has used $45 of $45 this month; what runs goes on, and nothing new starts; it starts anew on 1 Dec; an admin can raise it with: trainyard limit set user/ann --money $68"}},
		{"a correction", spend(-1), []string{"free warn: ann has used $44 of $45 this month; ann may go on"}},
		{"and once more", spend(1), []string{
			"used_up ask: ann has used $45 of $45 this month; what runs goes on, and nothing new starts; it starts anew on 1 Dec; an admin can raise it with: trainyard limit set user/ann --money $68"}},
		{"a new month", func() { now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) }, []string{"free warn: ann may go on: a new month has begun, with $0 of $45 used"}},
		{"all at once", func() { now = now.Add(time.Hour); spend(50)() }, []string{
			"used_up ask: ann has used $50 of $45 this month; what runs goes on, and nothing new starts; it starts anew on 1 Jan 2027; an admin can raise it with: trainyard limit set user/ann --money $68"}},
		{"the limit only warns", put(func(l *tenant.Limit) { l.At = tenant.LimitWarn }), []string{
			"free warn: ann has used $50 of $45 this month; ann may go on: the limit only warns now",
			"used_up warn: ann has used $50 of $45 this month; all goes on; it starts anew on 1 Jan 2027; an admin can raise it with: trainyard limit set user/ann --money $68"}},
		{"a new year, and nothing was held", func() { now = now.AddDate(0, 1, 0) }, nil}, // 1 Jan
		{"GPU-hours too", put(func(l *tenant.Limit) { l.GPUHours, l.At, l.WarnAt = 2, tenant.LimitDowngrade, 0.5 }), nil},
		{"half of them", func() { b.Spend(now, jobOf("j1"), 4000, 0) }, []string{"near warn: ann has used 1.1 of 2 GPU-hours this month (55 %); it starts anew on 1 Feb"}},
		{"all of them", func() { b.Spend(now, jobOf("j1"), 4000, 0) }, []string{
			"used_up downgrade: ann has used 2.2 of 2 GPU-hours this month; from now on jobs run only where no rent is paid; it starts anew on 1 Feb; an admin can raise it with: trainyard limit set user/ann --gpu-hours 3"}},
		{"the limit goes", func() { b.Remove(ann) }, []string{"free warn: ann may go on: GPU-hours are no longer limited"}},
		{"nothing is left to tell", nothing, nil},
	} {
		step.do()
		if diff := cmp.Diff(step.want, told(b.Alerts(now))); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
		held := b.Allow(now, jobOf("j1"), 0, 0)
		for _, a := range b.Told() {
			if want := held.Hold != "" || held.NoRent; a.Held != want {
				t.Errorf("%s: people think that it is held: %t, and it is: %t", step.what, a.Held, want)
			}
		}
	}
}

// told returns alerts as text.
func told(all []admit.Alert) []string {
	var out []string
	for _, a := range all {
		out = append(out, string(a.Kind)+" "+string(a.Action)+": "+a.Sentence)
	}
	return out
}

func TestALimitForEachTellsOfEveryone(t *testing.T) {
	t.Parallel()
	b := booksWith(t, tenant.Limit{Subject: anyone, Money: 10 * dollar}, tenant.Limit{Subject: anyPro, Money: 15 * dollar})
	for _, u := range []id.User{"cyd", "ann", "bob"} {
		b.Spend(noon, admit.Who{Owner: u, Project: "vision", Job: "j1"}, 0, 8)
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
	b := admit.New()
	two, ten := jobOf("j2"), jobOf("j10")
	b.Use(noon, two, fleet.OnDemand, 1, 2)
	b.Use(noon, ten, fleet.OnDemand, 1, 2)
	outlay := admit.Outlay{Money: 25, GPUHours: -1, Budget: 40 * dollar, Spent: 10}
	b.Commit(two, outlay)
	b.Commit(ten, admit.Outlay{Money: 25, GPUHours: -1, Budget: 20 * dollar, Spent: 10})
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"one will need too much", func() {}, []string{
			"forecast warn: j10 has used $10 of its budget of $20; it is expected to need $35 in all, and at the present rate the budget is used up on 15 Nov at 17:00 UTC"}},
		{"it is told once", func() {}, nil},
		{"the other has nearly used it up", func() { b.Spend(noon, two, 0, 23) }, []string{"near warn: j2 has used $33 of its budget of $40 (82 %)"}},
		{"and then has", func() { b.Spend(noon, two, 0, 7); b.Spend(noon, ten, 0, 10.5) }, []string{
			"used_up stop: j2 has used $40 of its budget of $40; it saves itself and stops; submit it again with a higher budget to go on",
			"used_up stop: j10 has used $20.50 of its budget of $20; it saves itself and stops; submit it again with a higher budget to go on"}},
		{"the budget is raised", func() { outlay.Budget, outlay.Spent = 60*dollar, 40; b.Commit(two, outlay) }, []string{
			"free warn: j2 has used $40 of its budget of $60; j2 may go on",
			"forecast warn: j2 has used $40 of its budget of $60; it is expected to need $65 in all, and at the present rate the budget is used up on 15 Nov at 22:00 UTC"}},
		{"the other is without one", func() { b.Commit(ten, admit.Outlay{Money: -1, GPUHours: -1}) }, []string{"free warn: j10 may go on: money is no longer limited"}},
		{"both end", func() {
			for _, w := range []admit.Who{two, ten} {
				b.Use(noon, w, fleet.OnDemand, -1, -2)
				b.Done(w)
			}
		}, nil},
	} {
		step.do()
		if diff := cmp.Diff(step.want, told(b.Alerts(noon))); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}
	if left := b.Told(); len(left) > 0 {
		t.Errorf("of jobs that have ended is kept: %+v", left)
	}
}

func TestChangedListsWhatMustBeWrittenDown(t *testing.T) {
	t.Parallel()
	b := booksWith(t, tenant.Limit{Subject: ann, Money: 10 * dollar})
	b.Spend(noon, jobOf("j1"), 60, 9)
	b.Commit(jobOf("j1"), admit.Outlay{Money: -1, GPUHours: -1, Budget: 9 * dollar, Spent: 9})
	b.Alerts(noon)
	day := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	totals, said := b.Changed()
	wantTotals := []admit.Total{
		{Subject: ann, Period: tenant.Day, Begin: day, GPUSeconds: 60, Money: 9},
		{Subject: ann, Period: tenant.Week, Begin: day.AddDate(0, 0, -6), GPUSeconds: 60, Money: 9},
		{Subject: ann, Period: tenant.Month, Begin: day.AddDate(0, 0, -14), GPUSeconds: 60, Money: 9},
	}
	wantSaid := []admit.Told{
		{Subject: ann, Measure: admit.Money, Mark: "$10 a month, ask, warned at 0.8", Begin: day.AddDate(0, 0, -14), Near: true},
		{Job: "j1", Measure: admit.Money, Mark: "the job's budget of $9", Near: true, UsedUp: true, Held: true},
	}
	if diff := cmp.Diff(wantTotals, totals) + cmp.Diff(wantSaid, said); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(b.Totals(), totals) + cmp.Diff(b.Told(), said); diff != "" {
		t.Error("Totals and Told list something else:", diff)
	}
	b.Allow(noon, jobOf("j1"), 0, 0)
	if totals, said = b.Changed(); len(totals) > 0 || len(said) > 0 {
		t.Errorf("nothing changed, and is to be written down: %+v %+v", totals, said)
	}
	b.Done(jobOf("j1"))
	if totals, said = b.Changed(); len(totals) > 0 || len(said) != 1 || said[0].Job != "j1" || said[0].Said() {
		t.Errorf("the job ended, and is to be written down: %+v %+v", totals, said)
	}
	b.Spend(noon.AddDate(0, 0, 1), jobOf("j2"), 0, 0.5) // Monday
	totals, _ = b.Changed()
	if len(totals) != 3 || totals[0].Money != 0.5 || totals[1].Money != 0.5 || totals[2].Money != 9.5 {
		t.Errorf("after a day: %+v", totals)
	}
}
