package yardmaster_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// sight is a snapshot, and its jobs as they were stored then.
type sight struct {
	*yardmaster.Snapshot
	at   time.Time
	jobs []job.Job
}

// look takes a snapshot of a yard whose changes are stored.
func (d *driver) look() *sight {
	s := &sight{Snapshot: d.yard.Snapshot(d.wall()), at: d.wall()}
	for _, j := range yardmaster.JobsInMemory(d.yard) {
		stored, _ := yardmaster.JobOf(d.yard, j)
		s.jobs = append(s.jobs, stored)
	}

	return s
}

// text is everything that the snapshot says of its jobs.
func (s *sight) text() (string, error) {
	explainer := s.Explainer(s.at)

	type answers struct {
		Brief    yardmaster.Brief
		Why      any
		Status   yardmaster.JobStatus
		Position int
	}

	var list []answers
	for i := range s.jobs {
		why, _ := s.Why(s.at, &s.jobs[i], explainer)
		list = append(list, answers{
			s.Brief(s.at, &s.jobs[i], explainer), why, s.Status(s.at, &s.jobs[i], explainer), s.Position(s.at, &s.jobs[i]),
		})
	}

	data, err := json.Marshal(list)

	return string(data), err
}

// TestSnapshotsAreReadBesideTheYard asks snapshots of a yard in which much happens, from another goroutine than the
// yard's and long after they were taken. What the yard changes must not be in them: the race detector would find that,
// and the answers would be others.
func TestSnapshotsAreReadBesideTheYard(t *testing.T) {
	t.Parallel()

	for _, restless := range []bool{false, true} {
		d := newDriver(*seedFlag)
		d.restless, d.store.drops = restless, restless
		d.newYard(yardmaster.State{Incarnation: d.store.incarnation})

		if err := d.open(); err != nil {
			t.Fatal(err)
		}

		type reading struct {
			*sight
			text string
		}

		sights := make(chan *sight, 8)
		var readings []reading // of the goroutine, until it has ended
		var reader sync.WaitGroup
		var failed error

		reader.Go(func() {
			for s := range sights {
				text, err := s.text()
				if err != nil {
					failed = err
				}

				readings = append(readings, reading{s, text})
			}
		})

		for range 150 {
			for range 3 {
				if err := d.act(); err != nil {
					t.Fatal(err)
				}
			}

			if err := d.settle(); err != nil {
				t.Fatal(err)
			}

			sights <- d.look()
		}

		close(sights)
		reader.Wait()

		if failed != nil {
			t.Fatal(failed)
		}

		different := map[string]bool{}
		for i, r := range slices.Backward(readings) {
			if text, err := r.sight.text(); err != nil || text != r.text {
				t.Fatalf("snapshot %d has changed (%v):\n%s\nwas\n%s", i, err, text, r.text)
			}

			different[r.text] = true
		}

		if len(different) < 50 {
			t.Errorf("%d of %d snapshots differ: it tests too little", len(different), len(readings))
		}
	}
}
