package agent_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

// gate is a source of data that sends half of it, and the rest when it is let.
func gate(t *testing.T, data string) (url string, let func()) {
	t.Helper()
	open := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))

		if _, err := w.Write([]byte(data[:len(data)/2])); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}

		select {
		case <-open:
			_, _ = w.Write([]byte(data[len(data)/2:]))
		case <-r.Context().Done():
		}
	}))

	t.Cleanup(s.Close)

	return s.URL + "/mri.txt", func() { close(open) }
}

func TestARealProgramFindsItsData(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	cfg := realConfig(t, y)
	stop := launch(t, cfg)
	url, let := gate(t, strings.Repeat("x", 4096))

	local := filepath.Join(t.TempDir(), "labels")
	if err := os.WriteFile(local, []byte("cat\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	as := realAssignment(
		"j1.1",
		`wc -c < "$TRAINYARD_DATA_MRI"; cat "$TRAINYARD_DATA_MY_LABELS"; ls "$TRAINYARD_DATA_DIR"; basename "$TRAINYARD_DATA_MRI"; echo "$A"`,
	)

	as.Launch.Env = map[string]string{"A": "kept"}
	as.Launch.Data = []job.DataRef{{Name: "mri", Source: url, Size: 4096}, {Name: "my-labels", Source: local}}
	y.assign(as)

	y.await("how far the data is", func() bool {
		r, ok := y.last("j1.1")
		return ok && r.State == job.RunPreparing && r.Reason == "fetching dataset mri: 2KB of 4KB"
	})

	stop() // the next agent goes on
	launch(t, cfg)
	let()

	if end := y.awaitState("j1.1", job.RunEnded); end.ExitCode != 0 || end.Cause != job.CauseNone {
		t.Errorf("end %+v", end)
	}

	y.awaitOutput("j1.1")

	y.mu.Lock()

	want := []string{"4096", "cat", "mri", "my-labels", "mri.txt", "kept"}
	if diff := cmp.Diff(want, lines(t, y.logs[rankKey{"j1.1", 0}].data)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}

	y.mu.Unlock()

	y.await("the copy to be told", func() bool {
		last := y.reports[len(y.reports)-1]
		return len(last.Data) == 1 && last.Data[0].Name == "mri" && last.Data[0].Source == url &&
			strings.HasPrefix(last.Data[0].Path, cfg.Dir)
	})

	y.assign()
	holds := filepath.Join(cfg.Dir, "datasets", ".holds")
	y.await("the data to be let go", func() bool {
		list, err := os.ReadDir(holds)
		return err == nil && len(list) == 0
	})

	y.change(func() { y.purge = y.reports[len(y.reports)-1].Data })
	y.await("the data to be gone", func() bool { return len(y.reports[len(y.reports)-1].Data) == 0 })
}

func TestDataThatCannotBeHadEndsTheRun(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	as := assignment("j1.1")
	as.Launch.Data = []job.DataRef{{Name: "mri", Source: s.URL + "/mri"}}
	y.assign(as)
	end := y.awaitState("j1.1", job.RunEnded)

	want := "cannot stage dataset mri on this node: " + s.URL + "/mri answered 404 Not Found"
	if end.Cause != job.CauseDataFailed || end.Reason != want || end.Signalled {
		t.Errorf("end %+v, want cause %s and reason %q", end, job.CauseDataFailed, want)
	}

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if len(rt.starts) > 0 {
		t.Error("it was started without its data")
	}
}

func TestDataLeavesRoomForOtherJobs(t *testing.T) {
	t.Parallel()

	for free, cause := range map[job.Bytes]job.Cause{7_000: job.CauseDataFailed, 9_500: job.CauseNone} {
		y := newYard(t)
		cfg := realConfig(t, y)
		cfg.MinFree.Size = 4_000
		cfg.Free = func(string) (job.Bytes, job.Bytes, error) { return free, 10_000, nil }
		launch(t, cfg)

		url, let := gate(t, strings.Repeat("x", 1000))
		let()

		as := realAssignment("j1.1", "true")
		as.Launch.Data = []job.DataRef{{Name: "mri", Source: url}}
		y.assign(as)

		if end := y.awaitState("j1.1", job.RunEnded); end.Cause != cause {
			t.Errorf("with %d bytes free: end %+v", free, end)
		}
	}
}

func TestARunCanBeStoppedWhileItsDataComes(t *testing.T) {
	t.Parallel()

	for name, stopped := range map[string]bool{"told to stop": true, "not assigned any more": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, rt := newYard(t), newFakeRuntime()
			cfg := config(t, y, rt)
			launch(t, cfg)
			url, _ := gate(t, strings.Repeat("x", 1000))
			as := assignment("j1.1")
			as.Launch.Data = []job.DataRef{{Name: "mri", Source: url}}
			y.assign(as)

			y.await("the data to come", func() bool {
				r, ok := y.last("j1.1")
				return ok && strings.HasPrefix(r.Reason, "fetching")
			})

			if stopped {
				as.Stop = job.StopTerm
				y.assign(as)

				if end := y.awaitState("j1.1", job.RunEnded); !end.Signalled || end.Cause != job.CauseCancelled {
					t.Errorf("end %+v", end)
				}
			} else {
				y.assign()
			}

			holds := filepath.Join(cfg.Dir, "datasets", ".holds")
			y.await("the data to be let go", func() bool {
				list, err := os.ReadDir(holds)
				return err == nil && len(list) == 0
			})

			rt.mu.Lock()
			defer rt.mu.Unlock()

			if len(rt.starts) > 0 {
				t.Error("it was started")
			}
		})
	}
}
