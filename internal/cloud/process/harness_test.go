package process

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/executable"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// TestMain lets the test binary be a machine, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == Subcommand {
		os.Exit(Machine(context.Background(), os.Stderr))
	}

	os.Exit(m.Run())
}

const yard = "yard-1"

// sleeper is an agent that does nothing until it is killed.
const sleeper = "exec sleep 1000"

// program writes a program that is a machine, and whose agent is a shell script.
func program(t *testing.T, agent string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "trainyard")

	text := "#!/bin/sh\nif [ \"$1\" = " + Subcommand + " ]; then exec '" + self + "' \"$@\"; fi\n" + agent + "\n"
	if err := executable.Write(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}

	return path
}

// config is that of a cloud of its own, whose machines end with the test.
func config(t *testing.T, agent string) Config {
	t.Helper()
	cfg := Config{
		Yard:    yard,
		Dir:     t.TempDir(),
		Program: program(t, agent),
		Environ: []string{"TRAINYARD_DATA=/nowhere", "MARK=this"},
		Boot:    time.Millisecond,
		Grace:   5 * time.Second,
		Clock:   clock.Wall{},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}

	t.Cleanup(func() {
		all, err := (&account{dir: cfg.Dir}).machines()
		if err != nil {
			t.Error(err)
		}

		for _, m := range all {
			if err := killAll(m.dir); err != nil {
				t.Error(err)
			}
		}
	})

	return cfg
}

// open makes a provider that is waited for before the test ends.
func open(t *testing.T, cfg Config) *Provider {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		all, err := p.account.machines()
		if err != nil {
			t.Error(err)
		}

		for _, m := range all {
			if err := killAll(m.dir); err != nil {
				t.Error(err)
			}
		}

		p.Wait()
	})

	return p
}

func offer() fleet.Offer {
	return fleet.Offer{Name: "process/a100/here", Provider: "process", Type: "a100", Region: "here", GPU: "A100", GPUs: 8,
		GPUMemory: 80 << 30, CPUs: 16000, Memory: 64 << 30, Hourly: 36_000_000, Fake: true}
}

func spot() fleet.Offer {
	o := offer()
	o.Name, o.Spot = o.Name+"/spot", true
	return o
}

func request(n uint64, o fleet.Offer) cloud.Request {
	lease := id.NewLease(n)
	return cloud.Request{
		Yard:  yard,
		Lease: lease,
		Offer: o,
		Name:  "node-" + string(lease),
		Until: clock.Wall{}.Now().Add(time.Hour),
		Boot:  cloud.Boot{Server: "https://127.0.0.1:1", Token: "tyj_secret", Script: "#!/bin/sh\n"},
	}
}

func create(t *testing.T, p *Provider, r cloud.Request) cloud.Instance {
	t.Helper()
	made, err := p.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}

	return made
}

// await lists until a machine is as it should be.
func await(t *testing.T, p *Provider, instance string, ok func(cloud.Instance) bool) cloud.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	for {
		all, err := p.List(ctx)
		if err != nil {
			t.Fatal(err)
		}

		for _, one := range all {
			if one.ID == instance && ok(one) {
				return one
			}
		}

		if !clock.Sleep(ctx, 20*time.Millisecond) {
			t.Fatalf("waited in vain; the list is %+v; it says: %s", all, said(p, instance))
		}
	}
}

// said is what a machine and its agent printed.
func said(p *Provider, instance string) string {
	text, err := os.ReadFile(p.account.path(machinesDir, instance, outputFile))
	if err != nil {
		return err.Error()
	}

	return string(text)
}

func up(one cloud.Instance) bool   { return one.State == cloud.Up }
func gone(one cloud.Instance) bool { return one.State == cloud.Gone }

// pidOf is the process of a machine.
func pidOf(t *testing.T, p *Provider, instance string) int {
	t.Helper()
	text, err := os.ReadFile(p.account.path(machinesDir, instance, pidFile))
	if err != nil {
		t.Fatal(err)
	}

	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}

	return pid
}

// processes lists what runs in a machine, asked past the provider: by the marks in the
// environment, and for the machine itself by its arguments.
func processes(t *testing.T, dir string) []int {
	t.Helper()
	all, err := pids()
	if err != nil {
		t.Fatal(err)
	}

	var found []int
	for _, pid := range all {
		environ, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if bytes.Contains(environ, []byte(dir)) || strings.Contains(string(line), dir) {
			found = append(found, pid)
		}
	}

	return found
}

// stepClock is a clock that tests turn on by hand.
type stepClock struct {
	mu  sync.Mutex
	add time.Duration
}

func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clock.Wall{}.Now().Add(c.add)
}

func (c *stepClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.add += d
}

func hours(d time.Duration) job.Duration { return job.Duration(d) }
