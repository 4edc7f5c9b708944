package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/test/bench/yard"
)

// The short form of the soak: nothing grows with the number of jobs but what the store keeps of them.
func TestNothingGrowsWhileJobsFlow(t *testing.T) {
	t.Parallel()

	if testing.Short() {
		t.Skip("starts a server and agents")
	}

	binary, err := yard.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	var table bytes.Buffer

	o := options{
		binary: binary, env: []string{"GOGC=20"}, // so that what lives is measured often
		warm: extent{jobs: 40}, judged: extent{jobs: 60}, rate: 20, keepFinal: time.Second, patience: 10 * time.Minute,
		clock: clock.Wall{}, out: &table,
	}

	figures, err := soak(t.Context(), &o)
	t.Log(table.String())

	if err != nil {
		t.Fatal(err)
	}

	if figures["soak_jobs"] != 60 || figures["soak_server_goroutines"] <= 0 || figures["soak_agent2_files"] <= 0 {
		t.Errorf("figures = %v", figures)
	}
}

func TestAnythingThatGrowsTooMuchIsNamed(t *testing.T) {
	t.Parallel()

	const jobs = 1000

	processes := []*process{{name: "server"}, {name: "agent1"}}
	before := sample{resident: 100 * mib, live: 20 * mib, goroutines: 30, files: 30, disk: mib, inodes: 100}

	fine := before
	fine.goroutines += 5
	fine.disk += jobs * 4 << 10
	fine.inodes += jobs / 4

	if err := exceeded(judge(processes, []sample{before, before}, []sample{fine, fine}, jobs)); err != nil {
		t.Errorf("growth within bounds: %v", err)
	}

	// The server has the pages of its database in memory, up to a bound, and the agents have none.
	cached := before
	cached.disk += 16 * mib
	cached.resident += 80 * mib // 24 and a quarter of 100, and twice 16 MiB: 81

	if err := exceeded(judge(processes, []sample{before, before}, []sample{cached, before}, 1000*jobs)); err != nil {
		t.Errorf("the cache of the database: %v", err)
	}

	for name, after := range map[string][]sample{
		"more than the database has grown": {grown(&cached, 2*mib, 0), before},
		"more than the cache":              {grown(&cached, 100*mib, 1000*mib), before},
		"of an agent":                      {before, cached},
	} {
		if exceeded(judge(processes, []sample{before, before}, after, 1000*jobs)) == nil {
			t.Errorf("%s: no error", name)
		}
	}

	for name, grow := range map[string]func(*sample){
		"resident memory": func(s *sample) { s.resident += 100 * mib },
		"live heap":       func(s *sample) { s.live += 50 * mib },
		"goroutines":      func(s *sample) { s.goroutines += jobs / 10 },
		"open files":      func(s *sample) { s.files += jobs / 10 },
		"disk":            func(s *sample) { s.disk += jobs * 100 << 10 },
		"inodes":          func(s *sample) { s.inodes += jobs * 2 },
	} {
		for i, p := range processes {
			after := []sample{before, before}
			grow(&after[i])

			err := exceeded(judge(processes, []sample{before, before}, after, jobs))
			if err == nil || !strings.HasPrefix(err.Error(), p.name+": "+name) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s of %s: error %v, want one about it alone", name, p.name, err)
			}
		}
	}
}

// grown is a sample with more resident memory and more on the disk.
func grown(s *sample, resident, disk int64) sample {
	g := *s
	g.resident += resident
	g.disk += disk

	return g
}
