package agent_test

import (
	"fmt"
	"os"
	"sort"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/api"
	"trainyard/internal/id"
)

func TestZZReal(t *testing.T) {
	y := newYard(t)
	cfg := realConfig(t, y)
	stop := launch(t, cfg)
	defer stop()
	P := "/tmp/h5/dvenv/bin/python /tmp/h5/real/"
	wheel, _ := os.ReadFile("/tmp/x.whl")
	_ = wheel
	cmds := []string{"SLOW=0.3 " + P + "hf.py", P + "lit.py", P + "ker.py 1", P + "tq.py", P + "wb.py", "SLOW=0.05 " + P + "hf.py tensorboard", P + "mlc.py"}
	for i, c := range cmds {
		run := id.Run(fmt.Sprintf("j%d.1", i+1))
		as := realAssignment(run, c)
		if i == 6 {
			as.Launch.Metrics = []job.MetricRule{{MLflow: true}}
		}
		y.assign(as)
		for k := 0; k < 1200; k++ {
			time.Sleep(100 * time.Millisecond)
			y.mu.Lock()
			r, ok := y.last(run)
			y.mu.Unlock()
			if ok && r.State == job.RunEnded {
				break
			}
		}
		time.Sleep(3 * time.Second)
		y.mu.Lock()
		names := map[string]string{}
		var done, total *float64
		for _, rep := range y.measured {
			for _, r := range rep.Runs {
				if r.Run != run {
					continue
				}
				if r.Done != nil { done = r.Done }
				if r.Total != nil { total = r.Total }
				for _, s := range r.Series {
					cs := y.curve(run, s.Name, 0)
					l, _ := cs.Last()
					names[s.Name] = fmt.Sprintf("%d points, last %g=%.4g  [%s]", len(cs.Points), l.Step, l.Value, cs.Source)
				}
			}
		}
		rr, _ := y.last(run)
		y.mu.Unlock()
		fmt.Println("=====", c, rr.ExitCode, rr.Reason)
		if done != nil { fmt.Print("done ", *done) }
		if total != nil { fmt.Print(" total ", *total) }
		fmt.Println()
		var ns []string
		for n := range names { ns = append(ns, n) }
		sort.Strings(ns)
		for _, n := range ns { fmt.Println("  ", n, names[n]) }
	}
	_ = api.Capability
}
