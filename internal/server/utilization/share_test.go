package utilization

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// sharingKit is a kit with a run that has half of GPU 1, and the notes for its owner.
func sharingKit(t *testing.T) (*kit, *[]yardmaster.NoteShare) {
	t.Helper()

	k := newKit(t)
	k.orders = []yardmaster.Order{{Run: "j1.1", Node: "n1", Launch: job.Launch{GPUs: []int{1}, Share: 0.5}}}

	var notes []yardmaster.NoteShare

	k.Note = collect(&notes)

	return k, &notes
}

// collect returns what takes notes into a list.
func collect(into *[]yardmaster.NoteShare) func(context.Context, yardmaster.NoteShare) error {
	return func(_ context.Context, n yardmaster.NoteShare) error {
		*into = append(*into, n)

		return nil
	}
}

// had reports that a run has had, wanted and been entitled to so many seconds of its GPU so far.
func (k *kit) had(second int, held, demanded, entitled float64, change func(*job.ShareUse)) {
	k.Helper()
	u := &job.ShareUse{Mode: "token", Held: held, Demanded: demanded, Entitled: entitled, Cap: 10 << 30, Memory: 4 << 30}
	if change != nil {
		change(u)
	}

	k.report("j1.1", 0, second, job.Use{Share: u}, job.RunRunning)
	k.Deliver(k.Context())
}

func TestAJobThatGetsLessThanItsShareIsReportedOnce(t *testing.T) {
	t.Parallel()
	k, notes := sharingKit(t)

	// It wants all of the time and gets 30 % of it from the 10th second on.
	k.had(0, 0, 0, 0, nil)
	k.had(10, 5, 10, 5, nil)

	for i, want := range []int{0, 1, 1, 1} {
		k.had(15+5*i, 6.5+1.5*float64(i), 15+5*float64(i), 7.5+2.5*float64(i), nil)

		if len(*notes) != want {
			t.Fatalf("after %d s with too little: %d notes, want %d", 5+5*i, len(*notes), want)
		}
	}

	note := (*notes)[0]
	if note.Kind != yardmaster.ShareShort || note.Run != "j1.1" || note.Node != "n1" ||
		note.Reason != "got less than its share of 50% of GPU 1 of n1 for 10s: 2s are missing, and it has 30% now" {
		t.Errorf("%+v", note)
	}

	if u := k.ShareOf("j1"); u == nil || u.ShortSince == nil || !u.ShortSince.Equal(begun.Add(10*time.Second)) ||
		u.Got != 0.3 || u.Wanted != 1 || u.Memory != 4<<30 {
		t.Errorf("it is shown as %+v", u)
	}

	// It gets its share again, and then too little once more.
	k.had(40, 16, 40, 20, nil)
	if u := k.ShareOf("j1"); u.ShortSince != nil || u.Got != 0.5 {
		t.Errorf("after it recovered: %+v", u)
	}

	k.had(60, 17, 60, 30, nil)
	if len(*notes) != 2 {
		t.Errorf("%d notes after the second time, want 2", len(*notes))
	}
}

func TestALittleLessThanItsShareIsItsShare(t *testing.T) {
	t.Parallel()
	k, notes := sharingKit(t)
	k.had(0, 0, 0, 0, nil)

	for i := range 20 {
		held := 2.45 * float64(i+1) // 98 % of what it may have
		k.had(5*(i+1), held, 5*float64(i+1), 2.5*float64(i+1), nil)
	}

	// An agent that was started again counts from 0.
	k.had(105, 0.1, 0.2, 0.1, nil)
	k.had(110, 0.1, 0.2, 0.1, nil) // and a job that wants nothing lacks nothing

	if len(*notes) != 0 {
		t.Errorf("%+v", *notes)
	}

	if u := k.ShareOf("j1"); u.Got != 0 || u.Wanted != 0 {
		t.Errorf("an idle job is shown as %+v", u)
	}
}

func TestRefusedMemoryAndRemovedLibrariesAreReported(t *testing.T) {
	t.Parallel()
	k, notes := sharingKit(t)
	k.had(0, 0, 0, 0, nil)

	for i := range 5 {
		k.had(5*(i+1), 0, 0, 0, func(u *job.ShareUse) { u.Denials = i })
	}

	if len(*notes) != 1 || (*notes)[0].Reason != "ran out of the 10 GB of memory of GPU 1 of n1 that the job may have" {
		t.Fatalf("%+v", *notes)
	}

	k.had(2000, 0, 0, 0, func(u *job.ShareUse) { u.Denials = 9 })
	k.had(2005, 0, 0, 0, func(u *job.ShareUse) { u.Denials, u.Bypassed = 9, 1 })
	k.had(2010, 0, 0, 0, func(u *job.ShareUse) { u.Denials, u.Bypassed = 9, 1 })

	if len(*notes) != 3 || (*notes)[1].Kind != yardmaster.ShareDenied || (*notes)[2].Kind != yardmaster.ShareBypassed ||
		!strings.Contains((*notes)[2].Reason, "not held to its share of 50% of GPU 1 of n1: 1 process of it") {
		t.Errorf("%+v", *notes)
	}
}

func TestAnOpportunisticJobIsPromisedNothing(t *testing.T) {
	t.Parallel()
	k, notes := sharingKit(t)
	k.orders[0].Launch.ShareClass = job.ShareOpportunistic

	for i := range 5 { // it wants the GPU all the time, and never gets it
		k.had(10*i, 0, 10*float64(i), 5*float64(i), nil)
	}

	if len(*notes) != 0 || k.ShareOf("j1").ShortSince != nil {
		t.Errorf("%+v, shown as %+v", *notes, k.ShareOf("j1"))
	}
}

// A program allocates most of its memory at once, often before it is measured for the first time.
func TestMemoryThatIsRefusedBeforeTheFirstMeasurementIsReported(t *testing.T) {
	t.Parallel()
	k, notes := sharingKit(t)

	for i := range 3 {
		k.had(5*i, 0, 0, 0, func(u *job.ShareUse) { u.Denials = 2 })
	}

	if len(*notes) != 1 || (*notes)[0].Kind != yardmaster.ShareDenied {
		t.Errorf("%+v", *notes)
	}
}

// TestReportsDoNotWaitForEvents lets the yard take long to store an event: reports are taken in meanwhile, and the
// owner learns of everything once, in order.
func TestReportsDoNotWaitForEvents(t *testing.T) {
	t.Parallel()
	k, _ := sharingKit(t)

	stored, called := make(chan struct{}), make(chan yardmaster.ShareNote)
	k.Note = func(ctx context.Context, n yardmaster.NoteShare) error {
		select {
		case <-stored:
		case <-time.After(5 * time.Minute):
			t.Error("a report waits for an event")
		}

		select {
		case called <- n.Kind:
		case <-ctx.Done():
		}

		return nil
	}

	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})

	go func() {
		defer close(over)

		k.Recorder.Run(ctx)
	}()

	report := func(second, denials, bypassed int) {
		k.report("j1.1", 0, second, job.Use{Share: &job.ShareUse{Denials: denials, Bypassed: bypassed}}, job.RunRunning)
	}

	report(0, 0, 1)
	report(5, 1, 1)
	report(5000, 2, 1) // the note about the first refusal has not been sent yet
	report(5005, 2, 1)
	close(stored)

	for _, want := range []yardmaster.ShareNote{yardmaster.ShareBypassed, yardmaster.ShareDenied} {
		if got := <-called; got != want {
			t.Errorf("%s is reported, want %s", got, want)
		}
	}

	stop()
	<-over

	if n, waits := k.nextNote(); waits {
		t.Errorf("%+v is left", n)
	}
}

func TestMetricsOfSharedGPUs(t *testing.T) {
	t.Parallel()
	k, _ := sharingKit(t)
	k.orders = append(k.orders, yardmaster.Order{Run: "j2.1", Node: "n1", Launch: job.Launch{GPUs: []int{1}, Share: 0.25}})

	for i := range 2 {
		for run, held := range map[id.Run]float64{"j1.1": 3, "j2.1": 2} {
			u := job.Use{At: begun.Add(time.Duration(10*i) * time.Second), Share: &job.ShareUse{
				Mode: "token", Held: held * float64(i), Demanded: 10 * float64(i), Entitled: 2 * float64(i),
			}}
			if run == "j1.1" { // it gets 3 of its 5 seconds
				u.Share.Entitled = 5 * float64(i)
			} else {
				u.Share.Bypassed = 1
			}

			k.Take(t.Context(), "n1", []api.RankReport{{Run: run, State: job.RunRunning, Use: &u}}, k.orders)
		}
	}

	want := sharedUse{promised: 0.75, got: 0.5, jobs: 2, short: 1, bypassed: 1}
	if all := k.sharedGPUs(); len(all) != 1 || *all[sharedGPU{"n1", 1}] != want {
		t.Errorf("the GPUs are %+v, want %+v", all[sharedGPU{"n1", 1}], want)
	}

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(k.Recorder)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]float64{}

	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}

			got[name] = m.GetGauge().GetValue()
		}
	}

	if want := map[string]float64{
		"trainyard_gpu_share_promised_ratio 1 n1": 0.75,
		"trainyard_gpu_share_got_ratio 1 n1":      0.5,
		"trainyard_gpu_share_jobs 1 n1 all":       2,
		"trainyard_gpu_share_jobs 1 n1 short":     1,
		"trainyard_gpu_share_jobs 1 n1 bypassed":  1,
	}; !maps.Equal(got, want) {
		t.Errorf("the metrics are %v, want %v", got, want)
	}

	// What jobs get through MPS nobody measures, and nobody is said to get nothing.
	u := job.Use{At: begun.Add(time.Minute), Share: &job.ShareUse{Mode: job.ShareModeMPS}}
	k.Take(t.Context(), "n1", []api.RankReport{{Run: "j1.1", State: job.RunRunning, Use: &u}}, k.orders)

	if families, err := registry.Gather(); err != nil || len(families) != 2 {
		t.Errorf("with MPS %d metrics, %v: %v", len(families), err, families)
	}
}

// TestNotesOutliveTheServer stops a server that waits for the yard to take a note, with another one behind it. The next
// server sends both, once.
func TestNotesOutliveTheServer(t *testing.T) {
	t.Parallel()
	k, _ := sharingKit(t)
	asked := make(chan struct{})

	k.Note = func(ctx context.Context, _ yardmaster.NoteShare) error {
		close(asked) // by one note alone
		<-ctx.Done()

		return ctx.Err()
	}

	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})

	go func() {
		defer close(over)

		k.Recorder.Run(ctx)
	}()

	report := func(second, denials, bypassed int) {
		k.report("j1.1", 0, second, job.Use{Share: &job.ShareUse{Denials: denials, Bypassed: bypassed}}, job.RunRunning)
	}

	report(0, 0, 1)
	<-asked
	report(5, 1, 1)
	stop()
	<-over

	// restart replaces the recorder by one of another server, which gets a report in which nothing is new.
	restart := func(second int) (kinds []yardmaster.ShareNote) {
		k.Recorder = k.another(k.Store)

		var notes []yardmaster.NoteShare

		k.Note = collect(&notes)
		report(second, 1, 1)
		k.Deliver(t.Context())
		k.Flush(t.Context())

		for _, n := range notes {
			kinds = append(kinds, n.Kind)
		}

		return kinds
	}

	want := []yardmaster.ShareNote{yardmaster.ShareBypassed, yardmaster.ShareDenied}
	if got := restart(10); !slices.Equal(got, want) {
		t.Errorf("the next server sends %v, want %v", got, want)
	}

	if got := restart(15); len(got) > 0 {
		t.Errorf("the one after it sends %v again", got)
	}
}
