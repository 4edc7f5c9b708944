package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/agent"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/internal/metric"
)

// measure takes what programs have measured.
func (y *fakeYard) measure(w http.ResponseWriter, r *http.Request) {
	if !y.known(w, r) {
		return
	}

	var req api.MetricsReport
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		panic(http.ErrAbortHandler)
	}

	if err := req.Check(); err != nil {
		y.t.Error(err)
	}

	var server string
	y.change(func() {
		y.measured = append(y.measured, req)
		server = y.serverID
	})

	answer(w, api.MetricsReply{Server: server})
}

// curve is what the yard makes of all it was told of a metric, from the how-manieth report on; call it under the lock.
func (y *fakeYard) curve(run id.Run, name string, from int) *metric.Series {
	s := &metric.Series{Name: name}
	for _, report := range y.measured[from:] {
		for _, r := range report.Runs {
			for _, sp := range r.Series {
				if r.Run != run || sp.Name != name {
					continue
				}

				s.SetSource(1, sp.Source)

				for _, p := range sp.Points {
					s.Add(1, p.Point())
				}
			}
		}
	}

	return s
}

// awaitCurve waits until a metric is as told: "1=5 2=4 from output (lines)".
func (y *fakeYard) awaitCurve(run id.Run, name string, from int, want string) {
	y.t.Helper()
	y.await(name+" of "+string(run)+" to be "+want, func() bool {
		s := y.curve(run, name, from)
		var out []string
		for _, p := range s.Points {
			out = append(out, fmt.Sprintf("%g=%g", p.Step, p.Value))
		}

		return strings.Join(out, " ")+" from "+s.Source == want
	})
}

// measuringConfig is that of an agent that looks at programs' metrics often.
func measuringConfig(t *testing.T, y *fakeYard, rt *fakeRuntime) agent.Config {
	t.Helper()
	rt.work = t.TempDir()
	cfg := config(t, y, rt)
	cfg.MetricsEvery = 20 * time.Millisecond

	return cfg
}

// say prints as a program does.
func (f *fakeRuntime) say(t *testing.T, run id.Run, text string) {
	t.Helper()
	var frames bytes.Buffer
	if err := logs.NewWriter(&frames, 0).Write(logs.Stdout, time.Now(), []byte(text)); err != nil {
		t.Fatal(err)
	}

	f.print(run, frames.String())
}

func TestMetricsReachTheYard(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rt := newFakeRuntime()
	stop := launch(t, measuringConfig(t, y, rt))
	defer stop()

	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	rt.say(t, "j1.1", "step 1/10 loss=5\nstep 2/10 loss=4\n")
	y.awaitCurve("j1.1", "loss", 0, "1=5 2=4 from output (lines)")
	rt.say(t, "j1.1", "step 3/10 loss=nan\n")
	y.await("a value that is no number", func() bool { return y.curve("j1.1", "loss", 0).NonFinite == 1 })

	y.await("how far it is", func() bool {
		for _, report := range y.measured {
			for _, r := range report.Runs {
				if r.Done != nil && *r.Done == 3 && r.Total != nil && *r.Total == 10 {
					return true
				}
			}
		}

		return false
	})
}

func TestAServerThatStartsAnewIsToldEverythingAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rt := newFakeRuntime()
	stop := launch(t, measuringConfig(t, y, rt))
	defer stop()

	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	rt.say(t, "j1.1", "step 1 loss=5\nstep 2 loss=4\n")
	y.awaitCurve("j1.1", "loss", 0, "1=5 2=4 from output (lines)")
	y.restart()
	y.mu.Lock()
	from := len(y.measured)
	y.mu.Unlock()
	rt.say(t, "j1.1", "step 3 loss=3\n")
	y.awaitCurve("j1.1", "loss", from, "1=5 2=4 3=3 from output (lines)")
}

// The record of a run stays until the yard has its last metrics.
func TestTheLastMetricsComeBeforeARunIsForgotten(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rt := newFakeRuntime()
	stop := launch(t, measuringConfig(t, y, rt))
	defer stop()

	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	tries := 0
	y.change(func() {
		y.refuse = func(path string) int {
			if strings.HasSuffix(path, "/metrics") {
				y.change(func() { tries++ })
				return http.StatusServiceUnavailable
			}

			return 0
		}
	})

	rt.say(t, "j1.1", "step 1 loss=5\n")

	rt.change(func() {
		r := rt.ranks[rankKey{"j1.1", 0}]
		r.status.State, r.status.Ended = job.RunEnded, time.Now()
	})

	y.awaitState("j1.1", job.RunEnded)
	y.assign() // the yard has the end, and drops the run

	y.await("all of the output", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && s.final
	})

	y.await("two tries", func() bool { return tries > 1 })
	rt.mu.Lock()
	forgot := len(rt.forgot)
	rt.mu.Unlock()

	if forgot > 0 {
		t.Error("the run was forgotten before the yard had its metrics")
	}

	y.change(func() { y.refuse = nil })
	y.awaitCurve("j1.1", "loss", 0, "1=5 from output (lines)")
	rt.wait(y, "the run to be forgotten", func() bool { return len(rt.forgot) == 1 })
}

// However long the yard was away: a run that ended meanwhile is kept for its last metrics until the yard has them.
func TestTheLastMetricsOfARunThatEndedWhileTheYardWasAway(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rt := newFakeRuntime()
	stop := launch(t, measuringConfig(t, y, rt))
	defer stop()

	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	tries := 0
	y.change(func() {
		y.refuse = func(path string) int {
			if strings.HasSuffix(path, "/metrics") {
				y.change(func() { tries++ })
				return http.StatusServiceUnavailable
			}

			return 0
		}
	})

	rt.say(t, "j1.1", "step 1 loss=5\n")

	rt.change(func() {
		r := rt.ranks[rankKey{"j1.1", 0}]
		r.status.State, r.status.Ended = job.RunEnded, time.Now().Add(-time.Hour)
	})

	y.awaitState("j1.1", job.RunEnded)
	y.assign()

	y.await("all of the output", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && s.final
	})

	y.await("two tries", func() bool { return tries > 1 })
	rt.mu.Lock()
	forgot := len(rt.forgot)
	rt.mu.Unlock()

	if forgot > 0 {
		t.Error("the run was forgotten before the yard had its metrics")
	}

	y.change(func() { y.refuse = nil })
	y.awaitCurve("j1.1", "loss", 0, "1=5 from output (lines)")
	rt.wait(y, "the run to be forgotten", func() bool { return len(rt.forgot) == 1 })
}

// A run may be forgotten while metrics of another are on their way. Nothing stays in memory of either.
func TestNothingIsRememberedOfRunsThatAreForgotten(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rt := newFakeRuntime()
	a, _ := launchAgent(t, measuringConfig(t, y, rt))

	remembers := func(what string, n int) {
		t.Helper()
		limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()

		for a.Remembered()[what] != n {
			if !clock.Sleep(limit, 5*time.Millisecond) {
				t.Fatalf("remembered: %v; want %d %s", a.Remembered(), n, what)
			}
		}
	}

	y.assign(assignment("j1.1"), assignment("j2.1"))
	y.awaitState("j1.1", job.RunRunning)
	y.awaitState("j2.1", job.RunRunning)
	rt.end("j1.1", 0)
	y.awaitState("j1.1", job.RunEnded)
	remembers("complete metrics", 1)

	sent, taken := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() {
		close(sent)
		<-taken
	})

	y.change(func() {
		y.refuse = func(path string) int {
			if strings.HasSuffix(path, "/metrics") {
				hold()
			}

			return 0
		}
	})

	rt.say(t, "j2.1", "step 1 loss=5\n")
	<-sent
	y.assign(assignment("j2.1"))
	rt.wait(y, "the first run to be forgotten", func() bool { return len(rt.forgot) == 1 })
	close(taken)

	y.awaitCurve("j2.1", "loss", 0, "1=5 from output (lines)")
	rt.end("j2.1", 0)
	y.awaitState("j2.1", job.RunEnded)
	y.assign()
	rt.wait(y, "the second run to be forgotten", func() bool { return len(rt.forgot) == 2 })

	for _, what := range slices.Sorted(maps.Keys(a.Remembered())) {
		remembers(what, 0)
	}
}

// A server of an older version does not know metrics, and loses nothing else.
func TestAServerThatWantsNoMetrics(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.change(func() {
		y.refuse = func(path string) int {
			if strings.HasSuffix(path, "/metrics") {
				return http.StatusNotFound
			}

			return 0
		}
	})

	rt := newFakeRuntime()
	stop := launch(t, measuringConfig(t, y, rt))
	defer stop()

	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	rt.say(t, "j1.1", "step 1 loss=5\n")

	rt.change(func() {
		r := rt.ranks[rankKey{"j1.1", 0}]
		r.status.State, r.status.Ended = job.RunEnded, time.Now()
	})

	y.awaitState("j1.1", job.RunEnded)
	y.assign()
	rt.wait(y, "the run to be forgotten", func() bool { return len(rt.forgot) == 1 })
}

func TestProgramsSendMetricsToTheAgent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rt := newFakeRuntime()
	cfg := measuringConfig(t, y, rt)
	stop := launch(t, cfg)
	as := assignment("j1.1")
	as.Launch.Metrics = []job.MetricRule{{MLflow: true}}
	other := assignment("j2.1")
	other.Rank = 1
	y.assign(as, other)
	y.awaitState("j1.1", job.RunRunning)
	y.awaitState("j2.1", job.RunRunning)
	rt.mu.Lock()
	env, none := rt.ranks[rankKey{"j1.1", 0}].spec.ExtraEnv, rt.ranks[rankKey{"j2.1", 1}].spec.ExtraEnv
	rt.mu.Unlock()

	if env["MLFLOW_TRACKING_URI"] == "" || len(none) != 0 {
		t.Errorf("offered %v, and to another rank %v", env, none)
	}

	send := func(body string) {
		t.Helper()

		req, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodPost,
			env["TRAINYARD_METRICS_URL"],
			strings.NewReader(body),
		)
		if err != nil {
			t.Fatal(err)
		}

		req.Header.Set("Authorization", "Bearer "+env["TRAINYARD_METRICS_TOKEN"])

		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}

		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("answered with %d, %v", resp.StatusCode, err)
		}
	}

	send(`{"step": 1, "loss": 5}`)
	y.awaitCurve("j1.1", "loss", 0, "1=5 from sent to the agent")

	// The next agent listens at the same place and knows what was sent before.
	stop()
	y.mu.Lock()
	from := len(y.measured)
	y.mu.Unlock()
	stop = launch(t, cfg)
	defer stop()

	y.awaitCurve("j1.1", "loss", from, "1=5 from sent to the agent")
	send(`{"step": 2, "loss": 4}`)
	y.awaitCurve("j1.1", "loss", from, "1=5 2=4 from sent to the agent")
}

func TestARealProgramIsMeasured(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	cfg := realConfig(t, y)
	cfg.MetricsEvery = 50 * time.Millisecond
	cfg.SDK = agent.SDK{Name: "trainyard-0-py3-none-any.whl", Data: []byte("wheel")}
	stop := launch(t, cfg)
	defer stop()

	as := realAssignment("j1.1", `
echo "step 1/4 loss=5"
printf '{"step": 2, "at": %s, "metrics": {"acc": 0.5}}\n' "$(date +%s)" >> "$TRAINYARD_METRICS_FILE"
mkdir -p logs
printf 'step,val_loss\n1,4\n2,3\n' > logs/metrics.csv
cp "$TRAINYARD_SDK" sdk.whl
echo "target $TRAINYARD_TARGET grace $TRAINYARD_GRACE path $PYTHONPATH"
`)

	most := 0.35
	as.Launch.Target = &job.Target{Metric: "val_loss", AtMost: &most}
	y.assign(as)
	y.awaitCurve("j1.1", "loss", 0, "1=5 from output (lines)")
	y.awaitCurve("j1.1", "acc", 0, "2=0.5 from SDK")
	y.awaitCurve("j1.1", "val_loss", 0, "1=4 2=3 from table (logs/metrics.csv)")
	y.awaitState("j1.1", job.RunEnded)

	y.await("the output", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && s.final
	})

	y.mu.Lock()
	printed := strings.Join(lines(t, y.logs[rankKey{"j1.1", 0}].data), "\n")
	series := y.curve("j1.1", "val_loss", 0)
	y.mu.Unlock()

	want := fmt.Sprintf(
		`target {"metric":"val_loss","at_most":0.35} grace 5 path %s`,
		filepath.Join(cfg.Dir, "sdk", cfg.SDK.Name),
	)

	if !strings.Contains(printed, want) {
		t.Errorf("printed %q, want %q", printed, want)
	}

	now := float64(time.Now().Unix())
	if last, ok := series.Last(); !ok || math.Abs(last.At-now) > 3600 {
		t.Errorf("heard at %f, now is %f", last.At, now)
	}

	if wheel, err := os.ReadFile(filepath.Join(cfg.Dir, "sdk", cfg.SDK.Name)); err != nil || string(wheel) != "wheel" {
		t.Errorf("the wheel holds %q, %v", wheel, err)
	}
}
