package sql

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store/storetest"
	"trainyard/internal/store/storetest/pgtest"
	"trainyard/internal/yardmaster"
)

var benchTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// benchSpec is a job file of usual size: about 600 bytes of JSON.
func benchSpec(n uint64) *job.Spec {
	return &job.Spec{
		Name: fmt.Sprintf("resnet50-cifar-%d", n), Workdir: ".", Setup: "pip install -r requirements.txt",
		Run:       fmt.Sprintf("python train.py --lr 0.1 --batch-size 128 --epochs 90 --seed %d --output results/%d", n, n),
		Framework: "pytorch", Model: &job.Model{Kind: "cnn", Task: "vision", Params: 25.6e6},
		Params: map[string]any{"lr": 0.1, "batch_size": 128.0, "seed": float64(n)}, Data: []string{"cifar10"},
		Resources: job.Resources{
			GPUs: job.Range{Min: 1, Max: 1}, GPU: []job.GPUKind{{Model: "A100", Memory: 80 << 30}, {Model: "H100"}},
			Nodes: job.Range{Min: 1, Max: 1}, CPUs: 8000, Memory: 32 << 30,
		},
		Place: job.PlaceAny, Objective: job.ObjectiveTime, Expect: job.Duration(6 * time.Hour),
		MaxDuration: job.Duration(24 * time.Hour), Grace: job.Duration(30 * time.Second), Retry: 3,
		Checkpoint: &job.Checkpoint{Dir: "ckpt", Every: job.Duration(10 * time.Minute)},
		Env:        map[string]string{"OMP_NUM_THREADS": "8"},
	}
}

// submission is what one submitted job brings into a batch.
func submission(b *yardmaster.Batch, n uint64) {
	owner := id.User(fmt.Sprintf("user-%d", n%50))
	at := benchTime.Add(time.Duration(n) * time.Millisecond)
	b.Jobs = append(b.Jobs, job.Job{
		ID: id.NewJob(n), Seq: 1, Owner: owner, Project: "vision", Spec: benchSpec(n), Key: fmt.Sprintf("key-%d", n),
		KeyHash: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", State: job.Pending,
		Reason: "queued", Submitted: at, Since: at,
	})

	b.Events = append(b.Events, yardmaster.Event{
		Seq:    n,
		At:     at,
		Kind:   "job.submitted",
		Actor:  string(owner),
		Owner:  owner,
		Job:    id.NewJob(n),
		To:     "pending",
		Reason: "submitted",
	})
}

// benchURLs are stores that write to the disk before they answer.
func benchURLs(b *testing.B) map[string]func(b *testing.B) string {
	b.Helper()
	urls := map[string]func(b *testing.B) string{
		"sqlite": func(b *testing.B) string {
			b.Helper()
			return filepath.Join(b.TempDir(), "yard.db")
		},
	}

	server, err := pgtest.Start("", true)
	if err != nil {
		b.Log("without PostgreSQL: ", err)
		return urls
	}

	b.Cleanup(func() {
		if err := server.Stop(); err != nil {
			b.Error(err)
		}
	})

	databases := storetest.Databases(server)
	urls["postgres"] = func(b *testing.B) string {
		b.Helper()
		return databases(b)
	}

	return urls
}

// BenchmarkCommit measures durable submissions, so many to a commit.
func BenchmarkCommit(b *testing.B) {
	for engine, url := range benchURLs(b) {
		for _, width := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", engine, width), func(b *testing.B) {
				s := writer(b, url(b), "bench")

				n := uint64(0)
				for b.Loop() {
					batch := &yardmaster.Batch{}
					for range width {
						n++
						submission(batch, n)
					}

					if err := s.Commit(b.Context(), batch); err != nil {
						b.Fatal(err)
					}
				}

				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "jobs/s")
			})
		}
	}
}

// BenchmarkLoad measures a restart: LOAD_FINISHED and LOAD_QUEUED say with how many jobs.
func BenchmarkLoad(b *testing.B) {
	finished, queued := envCount(b, "LOAD_FINISHED", 20_000), envCount(b, "LOAD_QUEUED", 2_000)
	for engine, url := range benchURLs(b) {
		b.Run(engine, func(b *testing.B) {
			address := url(b)
			fillYard(b, address, finished, queued)

			for b.Loop() {
				s := open(b, address)
				state, err := s.Load(b.Context(), benchTime)
				if err != nil {
					b.Fatal(err)
				}

				if len(state.Jobs) != queued {
					b.Fatalf("%d jobs, want %d", len(state.Jobs), queued)
				}
			}
		})
	}
}

func envCount(b *testing.B, name string, otherwise int) int {
	b.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}

	var n int
	if _, err := fmt.Sscan(text, &n); err != nil {
		b.Fatalf("%s: %v", name, err)
	}

	return n
}

// fillYard stores finished jobs, each with a run and two events, and queued ones.
func fillYard(b *testing.B, url string, finished, queued int) {
	b.Helper()
	s := open(b, url)
	if _, err := s.Lead(b.Context(), candidate("fill", time.Minute)); err != nil {
		b.Fatal(err)
	}

	batch := &yardmaster.Batch{}
	for i := range finished + queued {
		n := uint64(i + 1)
		submission(batch, n)

		if i < finished {
			j := &batch.Jobs[len(batch.Jobs)-1]
			j.State, j.Epoch, j.Started, j.Ended = job.Succeeded, 1, benchTime.Add(-2*time.Hour), benchTime.Add(-time.Hour)
			batch.Runs = append(batch.Runs, job.Run{
				ID: id.NewRun(j.ID, 1), Job: j.ID, Epoch: 1, Seq: 1, State: job.RunEnded, Ended: j.Ended,
				Ranks: []job.Rank{{Node: id.Node(fmt.Sprintf("gpu-%d", n%100)), GPUs: []int{0}, State: job.RunEnded}},
			})
		}

		if len(batch.Jobs) == 2000 || i == finished+queued-1 {
			if err := s.Commit(b.Context(), batch); err != nil {
				b.Fatal(err)
			}

			batch = &yardmaster.Batch{}
		}
	}
}
