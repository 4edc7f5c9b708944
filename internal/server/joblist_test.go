package server

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// listed returns a queued job as a list shows it.
func listed(number uint64) listedJob {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	return listedJob{
		stored: &job.Job{
			ID: id.NewJob(number), Seq: 7, Owner: "ada", State: job.Pending, Submitted: at, Since: at,
			Spec: &job.Spec{Name: "train <a> & b", Resources: job.Resources{CPUs: 1000}},
		},
		brief:    &yardmaster.Brief{WaitReason: "4 GPUs needed, 2 free", Blocker: place.BlockResources},
		forecast: &job.Forecast{At: at, Basis: job.BasisHistory},
	}
}

// TestPagesAreWrittenAsTheFrameworkWould: also with jobs that were encoded before.
func TestPagesAreWrittenAsTheFrameworkWould(t *testing.T) {
	t.Parallel()

	var encoded encodedJobs

	known := listed(1)
	stored := listed(2)
	stored.brief, stored.forecast = nil, nil

	counts := []api.JobCount{{Status: job.StatusOf(job.Pending, ""), Jobs: 2}}
	for i, page := range []*jobPage{
		{},
		{jobs: []listedJob{known}},
		{jobs: []listedJob{known, stored}, next: "j1"},
		{jobs: []listedJob{stored, known}, next: "a<b/j1", counts: counts},
		{counts: counts},
	} {
		var want bytes.Buffer
		if err := huma.DefaultJSONFormat.Marshal(&want, page.shown()); err != nil {
			t.Fatal(err)
		}

		for range 2 {
			got, err := encoded.page(page)
			if err != nil || string(got) != want.String() {
				t.Errorf("page %d is\n%s\nwant\n%s\n%v", i, got, &want, err)
			}
		}
	}
}

// TestAnEncodedJobIsSentOnlyAsLongAsItIsTheSame changes all that a list shows of a job, one after the other.
func TestAnEncodedJobIsSentOnlyAsLongAsItIsTheSame(t *testing.T) {
	t.Parallel()

	changes := map[string]func(l *listedJob){
		"stored":      func(l *listedJob) { l.stored.Seq++ },
		"forecast":    func(l *listedJob) { l.forecast = &job.Forecast{Basis: job.BasisHistory} },
		"no forecast": func(l *listedJob) { l.forecast = nil },
		"no brief":    func(l *listedJob) { l.brief = nil },
		"work":        func(l *listedJob) { l.brief.Progress = &job.Progress{Work: 10} },
		"done":        func(l *listedJob) { l.brief.Progress = &job.Progress{Done: 5, At: time.Unix(1, 0)} },
	}

	brief := reflect.TypeFor[yardmaster.Brief]()
	for i := range brief.NumField() {
		changes["brief."+brief.Field(i).Name] = func(l *listedJob) {
			field := reflect.ValueOf(l.brief).Elem().Field(i)
			field.Set(another(t, field.Type()))
		}
	}

	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var encoded encodedJobs

			before := listed(1)
			if _, err := encoded.job(&before); err != nil {
				t.Fatal(err)
			}
			if _, same := encoded.get(&before); !same {
				t.Error("it is encoded again although nothing has changed")
			}

			now := listed(1)
			now.forecast = before.forecast

			change(&now)

			if text, same := encoded.get(&now); same {
				t.Errorf("what was encoded before is sent: %s", text)
			}
		})
	}
}

// another returns a value that is not zero.
func another(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()

	v := reflect.New(of).Elem()

	switch of.Kind() {
	case reflect.String:
		v.SetString("another")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v = reflect.MakeSlice(of, 1, 1)
	case reflect.Pointer:
		v = reflect.New(of.Elem())
	default:
		t.Fatalf("%s has no other value", of)
	}

	return v
}

// TestFewEncodedJobsAreKept: and none that is large.
func TestFewEncodedJobsAreKept(t *testing.T) {
	t.Parallel()

	var encoded encodedJobs

	for i := range 5 * maxEncoded {
		l := listed(uint64(i + 1))
		if i%2 == 1 {
			l.brief.WaitReason = strings.Repeat("x", maxEncodedText)
		}

		if _, err := encoded.job(&l); err != nil {
			t.Fatal(err)
		}

		if _, kept := encoded.get(&l); kept != (i%2 == 0) {
			t.Fatalf("job %d is kept: %v", i, kept)
		}
	}

	if n := len(encoded.young) + len(encoded.old); n > 2*maxEncoded {
		t.Errorf("%d jobs are kept", n)
	}
}
