package process

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func TestTheAgentIsToldWhatTheOfferSays(t *testing.T) {
	t.Parallel()
	p := open(t, config(t, `echo "$@" > args; env > environment; `+sleeper))
	made := create(t, p, request(7, offer()))
	await(t, p, made.ID, up)
	dir := p.account.path(machinesDir, made.ID)
	await(t, p, made.ID, func(cloud.Instance) bool {
		_, err := os.Stat(filepath.Join(dir, "environment"))
		return err == nil
	})

	args := "agent join https://127.0.0.1:1 --config " + dir + "/agent.json --isolation none\n"
	if got := read(t, filepath.Join(dir, "args")); got != args {
		t.Errorf("started with %q, want %q", got, args)
	}

	var got map[string]string
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, agentFile))), &got); err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"token": "tyj_secret", "name": "node-l7", "data": dir + "/data", "address": "127.0.0.1", "fake_gpus": "8xA100:80GB",
		"cpus": "16", "memory": "64GB", "on_lease_end": "exit", "probe": "off",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}

	await(t, p, made.ID, func(cloud.Instance) bool {
		return strings.Contains(read(t, filepath.Join(dir, "environment")), "\nPWD=")
	})

	environment := read(t, filepath.Join(dir, "environment"))
	if strings.Contains(environment, "TRAINYARD_DATA") || !strings.Contains(environment, "MARK=this") ||
		strings.Contains(environment, "tyj_secret") {
		t.Errorf("the agent's environment is\n%s", environment)
	}

	for _, name := range []string{agentFile, userDataFile, recordFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want it to be private", name, info, err)
		}
	}

	if text := read(t, filepath.Join(dir, recordFile)); strings.Contains(text, "secret") {
		t.Errorf("the record holds the token: %s", text)
	}
}

func TestAMachineWithoutGPUsHasNone(t *testing.T) {
	t.Parallel()
	o := fleet.Offer{Name: "process/cpu", Type: "cpu", CPUs: 4000}
	if got := agentSettings(&machine{record: record{Offer: o}}, &cloud.Boot{})["fake_gpus"]; got != "none" {
		t.Errorf("fake_gpus is %q, want none: the host's own must not be offered", got)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	other := func(change func(*fleet.Offer)) fleet.Offer {
		o := offer()
		change(&o)
		return o
	}

	tests := []struct {
		name  string
		cfg   func(*Config)
		have  fleet.Offer
		offer fleet.Offer
		kind  fault.Kind
		code  string
	}{
		{"the account is full", func(c *Config) { c.Quota = 1 }, offer(), offer(), fault.OverLimit, cloud.CodeQuota},
		{"no more of this type", func(c *Config) { c.Capacity = map[string]int{"a100": 1} }, offer(),
			other(func(o *fleet.Offer) { o.Region = "there" }), fault.OverLimit, cloud.CodeCapacity},
		{
			"no more of this type in this region",
			func(c *Config) { c.Capacity = map[string]int{"a100/here": 1} },
			offer(),
			offer(),
			fault.OverLimit,
			cloud.CodeCapacity,
		},
		{"more of this type elsewhere", func(c *Config) { c.Capacity = map[string]int{"a100/here": 1} }, offer(),
			other(func(o *fleet.Offer) { o.Region = "there" }), "", ""},
		{"none at all", func(c *Config) { c.Capacity = map[string]int{"h100": 0} }, offer(),
			other(func(o *fleet.Offer) { o.Type = "h100" }), fault.OverLimit, cloud.CodeCapacity},
		{
			"GPUs without memory",
			func(*Config) {},
			offer(),
			other(func(o *fleet.Offer) { o.GPUMemory = 0 }),
			fault.Invalid,
			"gpus_unclear",
		},
		{
			"GPUs with a name that is none",
			func(*Config) {},
			offer(),
			other(func(o *fleet.Offer) { o.GPU = "A100,8xB" }),
			fault.Invalid,
			"gpus_unclear",
		},
		{
			"too many GPUs",
			func(*Config) {},
			offer(),
			other(func(o *fleet.Offer) { o.GPUs = fleet.MaxGPUs + 1 }),
			fault.Invalid,
			"gpus_unclear",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, sleeper)
			tt.cfg(&cfg)
			p := open(t, cfg)
			first := create(t, p, request(1, tt.have))
			_, err := p.Create(t.Context(), request(2, tt.offer))
			var f *fault.Error
			errors.As(err, &f)
			if tt.kind != "" && (f == nil || f.Kind != tt.kind || f.Code != tt.code) || tt.kind == "" && err != nil {
				t.Fatalf("error %v, want one of kind %q with code %q", err, tt.kind, tt.code)
			}

			if tt.kind != fault.OverLimit || tt.offer.Type != tt.have.Type {
				return
			}

			if err := p.Terminate(t.Context(), first.Region, first.ID); err != nil {
				t.Fatal(err)
			}

			await(t, p, first.ID, gone)
			create(t, p, request(2, tt.offer)) // there is room again
		})
	}
}

func TestMachinesOutliveTheProviderAndAnotherFindsThem(t *testing.T) {
	t.Parallel()
	cfg := config(t, sleeper)
	first := open(t, cfg)
	made := create(t, first, request(1, offer()))
	one := await(t, first, made.ID, up)
	second := open(t, cfg)
	all, err := second.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	one.Billed = all[0].Billed // goes on
	if diff := cmp.Diff([]cloud.Instance{one}, all); diff != "" {
		t.Errorf("the list of another provider (-want +got):\n%s", diff)
	}

	if sid, err := unix.Getsid(pidOf(t, first, made.ID)); err != nil || sid != pidOf(t, first, made.ID) {
		t.Errorf("the machine is in session %d (%v), want one of its own", sid, err)
	}

	if again := create(t, second, request(1, offer())); again.ID != made.ID {
		t.Errorf("the same lease got %s beside %s", again.ID, made.ID)
	}

	if err := second.Terminate(t.Context(), made.Region, made.ID); err != nil {
		t.Fatal(err)
	}

	await(t, first, made.ID, gone)

	if again := create(t, second, request(1, offer())); again.ID != made.ID || again.State != cloud.Gone {
		t.Errorf("the lease of a machine that ended got %+v", again)
	}
}

func TestAMachineBootsForAWhile(t *testing.T) {
	t.Parallel()
	cfg := config(t, sleeper)
	cfg.Boot = time.Hour
	p := open(t, cfg)
	made := create(t, p, request(1, offer()))
	if made.State != cloud.Pending {
		t.Errorf("the machine is %s, want pending", made.State)
	}

	await(t, p, made.ID, func(one cloud.Instance) bool {
		return one.State == cloud.Pending && len(processes(t, p.account.path(machinesDir, one.ID))) == 1
	})

	if err := p.Terminate(t.Context(), made.Region, made.ID); err != nil {
		t.Fatal(err)
	}

	if one := await(t, p, made.ID, gone); one.Why != whyTerminated {
		t.Errorf("it ended by %q", one.Why)
	}
}

// stubborn is an agent that ignores SIGTERM, and so does what it started in a session of its own.
const stubborn = `trap '' TERM; setsid sh -c 'trap "" TERM; touch child; while true; do sleep 0.1; done' & touch agent; while true; do sleep 0.1; done`

func TestTheEndOfAMachineEndsAllThatRunsInIt(t *testing.T) {
	t.Parallel()
	cfg := config(t, stubborn)
	cfg.Grace = 100 * time.Millisecond
	p := open(t, cfg)
	made := create(t, p, request(1, offer()))
	dir := p.account.path(machinesDir, made.ID)
	await(t, p, made.ID, func(cloud.Instance) bool {
		_, err1 := os.Stat(filepath.Join(dir, "agent"))
		_, err2 := os.Stat(filepath.Join(dir, "child"))
		return err1 == nil && err2 == nil
	})

	if err := p.Terminate(t.Context(), made.Region, made.ID); err != nil {
		t.Fatal(err)
	}

	await(t, p, made.ID, gone)

	if left := processes(t, dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestAMachineThatIsKilledIsGoneAndSoIsWhatItLeft(t *testing.T) {
	t.Parallel()
	cfg := config(t, stubborn)
	p := open(t, cfg)
	made := create(t, p, request(1, offer()))
	dir := p.account.path(machinesDir, made.ID)
	await(t, p, made.ID, func(cloud.Instance) bool {
		_, err := os.Stat(filepath.Join(dir, "child"))
		return err == nil
	})

	if err := syscall.Kill(pidOf(t, p, made.ID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	m := &machine{dir: dir}
	for alive := true; alive; {
		var err error
		alive, err = m.alive()
		if err != nil {
			t.Fatal(err)
		}
	}

	all, err := p.List(t.Context()) // the first after its death already says so
	if err != nil || len(all) != 1 || all[0].State != cloud.Gone || all[0].Why != whyCrashed || all[0].Ended.IsZero() {
		t.Errorf("the list is %+v, %v", all, err)
	}

	if left := processes(t, dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestAMachineThatHangsIsKilledWhenItIsToldToEndAgain(t *testing.T) {
	t.Parallel()
	cfg := config(t, sleeper)
	clk := &stepClock{}
	cfg.Clock = clk
	p := open(t, cfg)
	made := create(t, p, request(1, offer()))
	await(t, p, made.ID, up)

	if err := syscall.Kill(pidOf(t, p, made.ID), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	if err := p.Terminate(t.Context(), made.Region, made.ID); err != nil {
		t.Fatal(err)
	}

	await(t, p, made.ID, func(one cloud.Instance) bool { return one.State == cloud.Ending })
	clk.step(time.Minute)

	if err := p.Terminate(t.Context(), made.Region, made.ID); err != nil {
		t.Fatal(err)
	}

	if one := await(t, p, made.ID, gone); one.Why != whyTerminated {
		t.Errorf("it ended by %q", one.Why)
	}
}

func TestTheEndOfTheAgentEndsTheMachine(t *testing.T) {
	t.Parallel()

	for name, agent := range map[string]string{"in order": "exit 0", "killed": "kill -9 $$"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, config(t, agent))
			made := create(t, p, request(1, offer()))
			if one := await(t, p, made.ID, gone); one.Why != whyAgent {
				t.Errorf("it ended by %q", one.Why)
			}
		})
	}
}

func TestAnAgentThatFailsIsStartedAgain(t *testing.T) {
	t.Parallel()
	p := open(t, config(t, `if [ -e tried ]; then `+sleeper+`; fi; touch tried; exit 5`))
	made := create(t, p, request(1, offer()))
	await(t, p, made.ID, func(one cloud.Instance) bool {
		return strings.Contains(said(p, made.ID), "exit status 5") &&
			len(processes(t, p.account.path(machinesDir, made.ID))) == 2
	})
}

func TestASwitchEndsAMachineWhoseAgentDoesNot(t *testing.T) {
	t.Parallel()
	cfg := config(t, sleeper)
	cfg.Slack = time.Millisecond
	p := open(t, cfg)
	r := request(1, offer())
	r.Until = clock.Wall{}.Now().Add(time.Second)
	made := create(t, p, r)
	if one := await(t, p, made.ID, gone); one.Why != whyDeadline {
		t.Errorf("it ended by %q", one.Why)
	}
}

func TestWhatEndsAMachine(t *testing.T) {
	t.Parallel()
	noon := cloud.Moment{Boot: "b1", Since: time.Hour, Wall: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)}
	after := func(d time.Duration) cloud.Moment {
		return cloud.Moment{Boot: noon.Boot, Since: noon.Since + d, Wall: noon.Wall.Add(d)}
	}
	tests := []struct {
		name   string
		file   string // of the agent
		change func(b *box)
		now    cloud.Moment
		want   string
	}{
		{"nothing", "", nil, after(59 * time.Minute), ""},
		{"its time is over, the agent has yet to end it", "", nil, after(64 * time.Minute), ""},
		{"its time is over and its agent does nothing", "", nil, after(65 * time.Minute), whyDeadline},
		{"the yard made it longer", noon.In(2 * time.Hour).String(), nil, after(124 * time.Minute), ""},
		{"longer, and over", noon.In(2 * time.Hour).String(), nil, after(125 * time.Minute), whyDeadline},
		{"the yard made it shorter", noon.In(time.Minute).String(), nil, after(6 * time.Minute), whyDeadline},
		{"what the agent wrote is nonsense", "x", nil, after(64 * time.Minute), ""},
		{"nonsense, and over", "x", nil, after(65 * time.Minute), whyDeadline},
		{
			"the wall clock is set ahead",
			"",
			nil,
			cloud.Moment{Boot: "b1", Since: noon.Since, Wall: noon.Wall.Add(24 * time.Hour)},
			"",
		},
		{"it is taken back", "", func(b *box) { b.ReclaimAt = noon.Wall }, noon, whySpot},
		{"it will be taken back", "", func(b *box) { b.ReclaimAt = noon.Wall.Add(time.Second) }, noon, ""},
		{"its agent ended", "", func(b *box) { b.over = true }, noon, whyAgent},
		{"it was told to", "", func(b *box) { b.shutdown.Store(true) }, noon, whyTerminated},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := &machine{record: record{ID: "m1", Slack: 5 * time.Minute}, dir: filepath.Join(t.TempDir(), "m1")}
			if err := m.write("", nil); err != nil {
				t.Fatal(err)
			}

			agent := filepath.Join(m.dir, dataDir, "agent")
			if err := os.MkdirAll(agent, 0o700); err != nil {
				t.Fatal(err)
			}

			if tt.file != "" {
				if err := os.WriteFile(filepath.Join(agent, cloud.DeadlineFile), []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			b := &box{machine: m, first: noon.In(time.Hour)}
			if tt.change != nil {
				tt.change(b)
			}

			if got := b.end(tt.now); got != tt.want {
				t.Errorf("it ends by %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTheBooksSayWhatAMachineCosts(t *testing.T) {
	t.Parallel()
	o := offer() // $36 an hour is a cent a second
	o.BillingIncrement, o.MinBilling = hours(10*time.Second), hours(time.Minute)
	p := open(t, config(t, sleeper))
	made := create(t, p, request(1, o))
	if one := await(t, p, made.ID, up); math.Abs(float64(one.Billed-0.6)) > 1e-9 {
		t.Errorf("charged %g at once, want the least, which is a minute", one.Billed)
	}

	if err := p.Terminate(t.Context(), made.Region, made.ID); err != nil {
		t.Fatal(err)
	}

	one := await(t, p, made.ID, gone)

	books, err := Log(p.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}

	want := []Entry{
		{Event: EventLaunched, At: made.Launched, Machine: made.ID, Yard: yard, Lease: "l1", Offer: o.Name, Hourly: o.Hourly},
		{
			Event:   EventEnded,
			At:      one.Ended,
			Machine: made.ID,
			Yard:    yard,
			Lease:   "l1",
			Offer:   o.Name,
			Hourly:  o.Hourly,
			Why:     whyTerminated,
			Uptime: one.Ended.Sub(made.Launched).
				Seconds(),
			Billed: o.BilledDuration(hours(one.Ended.Sub(made.Launched))),
			Bill:   one.Billed,
		},
	}

	if diff := cmp.Diff(want, books); diff != "" {
		t.Errorf("books (-want +got):\n%s", diff)
	}

	if math.Abs(float64(one.Billed-0.6)) > 1e-9 || !one.Ended.After(one.Launched) {
		t.Errorf("charged %g for %s", one.Billed, one.Ended.Sub(one.Launched))
	}
}

func TestAMachineIsEnteredOnceInTheBooks(t *testing.T) {
	t.Parallel()
	p := open(t, config(t, sleeper))
	a := p.account
	m := &machine{record: record{ID: "m1", Launched: clock.Wall{}.Now(), Offer: offer()}, dir: a.path(machinesDir, "m1")}
	if err := m.write("", nil); err != nil {
		t.Fatal(err)
	}

	for range 3 { // as if each time the power was cut before the machine's folder says so
		m.ended = nil
		if err := a.end(m, m.Launched.Add(time.Hour), whyCrashed); err != nil {
			t.Fatal(err)
		}
	}

	books, err := Log(p.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}

	if len(books) != 2 || books[0].Event != EventLaunched || books[1].Event != EventEnded || books[1].Bill != 36 {
		t.Errorf("the books say %+v", books)
	}
}

func TestAMachineWhoseStartWasLostIsGoneAndCostsNothing(t *testing.T) {
	t.Parallel()
	p := open(t, config(t, sleeper))
	m := &machine{
		record: record{ID: "m1", Yard: yard, Lease: "l1", Launched: clock.Wall{}.Now(), Offer: offer()},
		dir:    p.account.path(machinesDir, "m1"),
	}

	if err := m.write("", nil); err != nil { // and then who asked for it died
		t.Fatal(err)
	}

	one := await(t, p, "m1", gone)
	if one.Why != whyNeverStarted || one.Billed != 0 {
		t.Errorf("it is shown as %+v", one)
	}
}

func TestAProgramThatIsNotThereIsNoMachine(t *testing.T) {
	t.Parallel()
	cfg := config(t, sleeper)
	cfg.Program = "/nowhere/trainyard"
	p := open(t, cfg)
	if made, err := p.Create(t.Context(), request(1, offer())); err == nil {
		t.Errorf("got %+v", made)
	}

	all, err := p.List(t.Context())
	if err != nil || len(all) != 1 || all[0].State != cloud.Gone || all[0].Billed != 0 {
		t.Errorf("the list is %+v, %v; want one that is gone and costs nothing", all, err)
	}
}

func TestSpotMachinesAreTakenBackByChance(t *testing.T) {
	t.Parallel()
	const rate = 4.0

	var sum time.Duration
	for n := range uint64(2000) {
		one := lifetime(1, n, rate)
		if one != lifetime(1, n, rate) || one < 0 {
			t.Fatalf("machine %d lives for %s", n, one)
		}

		sum += one
	}

	if mean := sum / 2000; mean < 14*time.Minute || mean > 16*time.Minute {
		t.Errorf("four losses an hour give a mean life of %s", mean)
	}

	o := spot()
	o.LossRate = 1e9 // at once
	p := open(t, config(t, sleeper))
	made := create(t, p, request(1, o))
	if one := await(t, p, made.ID, gone); one.Why != whySpot || !one.Spot {
		t.Errorf("it is shown as %+v", one)
	}

	if err := p.TakeBack(t.Context(), create(t, p, request(2, offer())).ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a machine that is not spot is taken back: %v", err)
	}
}

// TestSpotMachinesGetNotice: a machine is told when it is reclaimed, and lives until then.
func TestSpotMachinesGetNotice(t *testing.T) {
	t.Parallel()
	cfg := config(t, sleeper)
	cfg.Notice = time.Hour
	p := open(t, cfg)
	made := create(t, p, request(1, spot()))
	await(t, p, made.ID, up)
	dir := p.account.path(machinesDir, made.ID)

	var settings map[string]string
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, agentFile))), &settings); err != nil {
		t.Fatal(err)
	}

	if got, want := settings["spot_notice"], "file="+filepath.Join(dir, noticeFile); got != want {
		t.Errorf("its agent reads notices from %q, want %q", got, want)
	}

	before := clock.Wall{}.Now()
	for range 2 { // the first notice counts
		if err := p.TakeBack(t.Context(), made.ID); err != nil {
			t.Fatal(err)
		}
	}

	var n notice
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, noticeFile))), &n); err != nil {
		t.Fatal(err)
	}

	if n.Time.Before(before.Add(time.Hour)) || n.Action != "terminate" {
		t.Errorf("the notice is %+v", n)
	}

	await(t, p, made.ID, up)

	text := []byte(`{"action": "terminate", "time": "2026-01-01T00:00:00Z"}`)
	if err := os.WriteFile(filepath.Join(dir, noticeFile), text, 0o600); err != nil { // its time has come
		t.Fatal(err)
	}

	if one := await(t, p, made.ID, gone); one.Why != whySpot {
		t.Errorf("it is shown as %+v", one)
	}
}

// TestNoticeIsGivenBeforeAMachineIsReclaimedByChance looks at a machine shortly before and after its notice is due.
func TestNoticeIsGivenBeforeAMachineIsReclaimedByChance(t *testing.T) {
	t.Parallel()
	noon := cloud.Moment{Wall: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)}
	m := &machine{record: record{ID: "m1", Notice: time.Minute, ReclaimAt: noon.Wall},
		dir: filepath.Join(t.TempDir(), "m1")}
	if err := m.write("", nil); err != nil {
		t.Fatal(err)
	}

	b := &box{machine: m}
	for _, step := range []struct {
		before    time.Duration
		told, end bool
	}{{61 * time.Second, false, false}, {time.Minute, true, false}, {time.Second, true, false}, {0, true, true}} {
		now := noon
		now.Wall = noon.Wall.Add(-step.before)
		b.warn(now)

		if m.has(noticeFile) != step.told || b.reclaimed(now) != step.end {
			t.Errorf("%s before: told %v, reclaimed %v", step.before, m.has(noticeFile), b.reclaimed(now))
		}
	}
}

func TestAListThatLagsShowsThePast(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	one := cloud.Instance{
		ID:       "m1",
		State:    cloud.Gone,
		Launched: noon,
		Ended:    noon.Add(time.Hour),
		Why:      whySpot,
		Billed:   36,
	}

	if got, known := lagging(one, noon.Add(-time.Second)); known {
		t.Errorf("known before it was: %+v", got)
	}

	if got, known := lagging(one, noon.Add(time.Minute)); !known || got.State != cloud.Up || !got.Ended.IsZero() ||
		got.Why != "" ||
		got.Billed >= 0 {
		t.Errorf("shown as %+v, %v; want it to be up", got, known)
	}

	if got, known := lagging(one, noon.Add(time.Hour)); !known || got != one {
		t.Errorf("shown as %+v, %v", got, known)
	}
}

func TestMachinesThatEndedLongAgoAreForgotten(t *testing.T) {
	t.Parallel()
	cfg := config(t, "exit 0")
	clk := &stepClock{}
	cfg.Clock = clk
	p := open(t, cfg)
	made := create(t, p, request(1, offer()))
	await(t, p, made.ID, gone)
	clk.step(2 * time.Hour)

	all, err := p.List(t.Context())
	if err != nil || len(all) != 0 {
		t.Errorf("the list is %+v, %v; want none", all, err)
	}

	entries, err := os.ReadDir(p.account.path(machinesDir))
	if err != nil || len(entries) != 0 {
		t.Errorf("folders %v are left, %v", entries, err)
	}

	if err := p.Terminate(t.Context(), made.Region, made.ID); err != nil {
		t.Error(err)
	}

	if next := create(t, p, request(2, offer())); next.ID == made.ID {
		t.Errorf("the name %s was used again", next.ID)
	}

	if books, err := Log(cfg.Dir); err != nil ||
		!slices.ContainsFunc(books, func(e Entry) bool { return e.Machine == made.ID && e.Event == EventEnded }) {
		t.Errorf("the books say %+v, %v", books, err)
	}
}

func TestOnlyAProviderStartsAMachine(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	if code := Machine(t.Context(), &said); code != 1 || !strings.Contains(said.String(), "no machine in") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
}
