package cloud_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/executable"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// computer is a folder that a boot script takes for a machine: it writes below root, and
// finds no programs but those in bin, most of which only note that they were called.
type computer struct {
	t         *testing.T
	root, bin string
	shell     string
}

// The real programs that boot scripts need. Nothing that could end the machine that the
// tests run on is among them.
var tools = []string{"cat", "date", "mkdir", "mv", "chmod", "sha256sum", "sh", "touch"}

func newComputer(t *testing.T, shell string) *computer {
	t.Helper()
	real, err := exec.LookPath(shell)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", shell)
	}

	if err != nil {
		t.Skipf("%s is not installed", shell)
	}

	c := &computer{t: t, root: t.TempDir(), bin: t.TempDir(), shell: real}
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}

		if err := os.Symlink(path, filepath.Join(c.bin, tool)); err != nil {
			t.Fatal(err)
		}
	}

	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}

	c.stub("shutdown", "note shutdown \"$*\"")
	c.stub("systemctl", "note systemctl \"$*\"")
	c.stub("poweroff", "note poweroff \"$*\"")

	// The switch looks every 15 seconds, the agent is started again after 5: both are
	// made shorter, all else is only noted.
	c.stub("sleep", `case $1 in 15|5) exec '`+sleep+`' 0.05;; *) note sleep "$1";; esac`)

	return c
}

// stub makes a program from a script. In it, note adds a line to the list of steps.
func (c *computer) stub(name, script string) {
	c.t.Helper()
	text := "#!" + c.shell + "\nnote() { printf '%s\\n' \"$*\" >>'" + c.path("steps") + "'; }\n" + script + "\n"
	if err := executable.Write(filepath.Join(c.bin, name), []byte(text), 0o700); err != nil {
		c.t.Fatal(err)
	}
}

func (c *computer) path(names ...string) string {
	return filepath.Join(append([]string{c.root}, names...)...)
}

func (c *computer) systemd() {
	c.t.Helper()

	for _, dir := range []string{"run/systemd/system", "etc/systemd/system"} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			c.t.Fatal(err)
		}
	}
}

// run boots the computer and returns what the script printed and whether it succeeded. What
// it leaves running ends with the test.
func (c *computer) run(script string) (string, bool) {
	c.t.Helper()

	if !strings.Contains(script, "\nroot=''\n") {
		c.t.Fatal("the script does not say where it writes")
	}

	script = strings.Replace(script, "\nroot=''\n", "\nroot='"+c.root+"'\n", 1)

	path := c.path("user-data")
	if err := executable.Write(path, []byte(script), 0o700); err != nil {
		c.t.Fatal(err)
	}

	out, err := os.Create(c.path("output"))
	if err != nil {
		c.t.Fatal(err)
	}

	defer func() { _ = out.Close() }()

	cmd := exec.CommandContext(context.Background(), c.shell, path)
	cmd.Env = []string{"PATH=" + c.bin}
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.root, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}

	c.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // it may have left nothing
	err = cmd.Wait()

	return c.read("output"), err == nil
}

func (c *computer) read(names ...string) string {
	c.t.Helper()
	text, err := os.ReadFile(c.path(names...))
	if err != nil {
		c.t.Fatal(err)
	}

	return string(text)
}

func (c *computer) steps() []string {
	c.t.Helper()
	text, err := os.ReadFile(c.path("steps"))
	if err != nil {
		return nil
	}

	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// await waits until the steps are as they should be.
func (c *computer) await(what string, ok func(steps []string) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Minute)
	defer cancel()

	for !ok(c.steps()) {
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			c.t.Fatalf("waited in vain for %s; steps:\n%s", what, strings.Join(c.steps(), "\n"))
		}
	}
}

// agentProgram is what the yard hands out in these tests.
const agentProgram = "#!/bin/sh\nprintf 'agent %s isolation %s\\n' \"$*\" \"$TRAINYARD_ISOLATION\" >>\"$STEPS\"\n"

func (c *computer) agent() (text, hash string) {
	text = strings.ReplaceAll(agentProgram, "$STEPS", c.path("steps"))
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:])
}

func (c *computer) request(now time.Time) cloud.Request {
	_, hash := c.agent()
	return cloud.Request{
		Yard:  "y",
		Lease: "l7",
		Name:  "node-7",
		Until: now.Add(time.Hour),
		Offer: fleet.Offer{Type: "t"},
		Boot: cloud.Boot{
			Server:    "https://yard.example:7443",
			Token:     "tyj_secret",
			AgentURL:  "https://yard.example:7443/agent",
			AgentHash: hash,
		},
	}
}

// serve makes a curl that delivers the agent.
func (c *computer) serve(before string) {
	c.t.Helper()
	text, _ := c.agent()
	if err := os.WriteFile(c.path("served"), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}

	c.stub("curl", `while [ $# -gt 0 ]; do
	case $1 in
	--output) out=$2 ;;
	--url) url=$2 ;;
	esac
	shift
done
printf '%s' "$url" >'`+c.path("url")+`'
`+before+`
cat '`+c.path("served")+`' >"$out"`)
}

func userData(t *testing.T, r cloud.Request, now time.Time) string {
	t.Helper()
	script, err := cloud.UserData(r, now)
	if err != nil {
		t.Fatal(err)
	}

	if len(script) > 16<<10 {
		t.Errorf("the script has %d bytes, and some clouds take 16 KiB", len(script))
	}

	return script
}

func TestAMachineBecomesANodeStepByStep(t *testing.T) {
	t.Parallel()

	for _, shell := range []string{"dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			c := newComputer(t, shell)
			c.systemd()
			c.serve(`note fetch with "$(cat '` + c.path("var/lib/trainyard/agent/lease-end") + `')"`)
			now := clock.Wall{}.Now()
			out, ok := c.run(userData(t, c.request(now), now))
			if !ok {
				t.Fatalf("failed: %s", out)
			}

			line := strings.TrimSpace(c.read("var/lib/trainyard/agent/lease-end"))
			want := []string{
				"systemctl daemon-reload",
				"systemctl enable trainyard-switch.service",
				"systemctl start --no-block trainyard-switch.service",
				"fetch with " + line,
				"systemctl daemon-reload",
				"systemctl enable trainyard-agent.service",
				"systemctl start --no-block trainyard-agent.service",
			}

			if diff := cmp.Diff(want, c.steps()); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}

			d, err := cloud.ParseDeadline(line)
			if err != nil {
				t.Fatal(err)
			}

			moment, err := cloud.MomentOf()
			if err != nil {
				t.Fatal(err)
			}

			if left := d.Remaining(moment); left > time.Hour || left < 55*time.Minute || d.Duration > time.Hour {
				t.Errorf("the machine ends in %s, given %s; want an hour", left, d.Duration)
			}

			unit := c.read("etc/systemd/system/trainyard-switch.service")
			if want := "ExecStart=" + c.path("usr/local/bin/trainyard-switch") + " " + c.path("var/lib/trainyard/agent/lease-end") + " 300 " + line + "\n"; !strings.Contains(unit, want) {
				t.Errorf("the switch's service is\n%s\nwant %s", unit, want)
			}

			if text := c.read("usr/local/bin/trainyard"); text != c.read("served") {
				t.Errorf("the program is %q", text)
			}
		})
	}
}

// nasty is what breaks scripts that put words together.
const nasty = `'"$(touch pwned)` + "`touch pwned`" + `\ %s %d $HOME ${x} ;touch pwned& |#!` + "\nEOF\nUNIT\ntouch pwned\n\tü☃ *"

func TestNothingInARequestIsTakenForShell(t *testing.T) {
	t.Parallel()

	for _, shell := range []string{"dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			c := newComputer(t, shell)
			c.serve("")
			now := clock.Wall{}.Now()
			r := c.request(now)
			r.Boot.Token = "token" + nasty
			r.Boot.Server = "--server" + nasty
			r.Boot.AgentURL = "url" + nasty
			r.Name = "name" + nasty
			r.Lease = "lease" + nasty
			r.Offer.Spot, r.Boot.SpotNotice = true, "aws"
			r.Boot.DataRoots = "/data" + nasty
			script := userData(t, r, now)
			check := exec.CommandContext(t.Context(), c.shell, "-n")
			check.Stdin = strings.NewReader(script)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: %s", err, out)
			}

			out, ok := c.run(script)
			if !ok {
				t.Fatalf("failed: %s", out)
			}

			c.await("the agent to be started twice", func(steps []string) bool {
				return len(steps) > 1 && strings.Count(strings.Join(steps, "\n"), "agent agent join") > 1
			})

			var settings map[string]string
			if err := json.Unmarshal([]byte(c.read("etc/trainyard/agent.json")), &settings); err != nil {
				t.Fatal(err)
			}

			want := map[string]string{"token": r.Boot.Token, "name": r.Name, "on_lease_end": "shutdown -P now",
				"data_roots":  r.Boot.DataRoots,
				"spot_notice": "aws"}
			if diff := cmp.Diff(want, settings); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}

			if got := c.read("url"); got != r.Boot.AgentURL {
				t.Errorf("fetched from %q, want %q", got, r.Boot.AgentURL)
			}

			started := "agent agent join --data " + c.path("var/lib/trainyard") + " --config " + c.path("etc/trainyard/agent.json") + " -- " + r.Boot.Server +
				" isolation users\n"

			if steps := c.read("steps"); !strings.HasPrefix(steps, started+started) {
				t.Errorf("the steps are\n%s\nwant\n%s", steps, started)
			}

			found, err := filepath.Glob(c.path("*pwned*"))
			if err != nil || len(found) > 0 {
				t.Errorf("a part of the request was carried out: %v, %v", found, err)
			}

			if logs := out + c.read("steps") + c.read("var/log/trainyard-agent.log"); strings.Contains(logs, "token'") {
				t.Errorf("the token is in the logs:\n%s", logs)
			}

			if info, err := os.Stat(c.path("etc/trainyard/agent.json")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the settings: %v, %v; want root alone to read them", info, err)
			}
		})
	}
}

func TestTheProgramIsFetchedUntilItIsTheRightOne(t *testing.T) {
	t.Parallel()
	c := newComputer(t, "sh")
	c.serve(`note fetch
if [ ! -e failed ]; then touch failed; exit 22; fi
if [ ! -e forged ]; then touch forged; echo 'rm -rf /' >"$out"; exit 0; fi`)

	now := clock.Wall{}.Now()
	if out, ok := c.run(userData(t, c.request(now), now)); !ok {
		t.Fatalf("failed: %s", out)
	}

	c.await("the agent", func(steps []string) bool { return len(steps) > 5 })

	if diff := cmp.Diff([]string{"fetch", "sleep 1", "fetch", "sleep 2", "fetch"}, c.steps()[:5]); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestAnImageMayHaveTheProgram(t *testing.T) {
	t.Parallel()
	now := clock.Wall{}.Now()

	install := func(c *computer, path string) {
		text, _ := c.agent()

		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := executable.Write(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	tests := []struct {
		name    string
		prepare func(c *computer, r *cloud.Request)
		ok      bool
		fetched bool
	}{
		{"at its place", func(c *computer, _ *cloud.Request) { install(c, c.path("usr/local/bin/trainyard")) }, true, false},
		{"an older one", func(c *computer, _ *cloud.Request) {
			install(c, c.path("usr/local/bin/trainyard"))

			if err := os.WriteFile(c.path("usr/local/bin/trainyard"), []byte("old"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, true, true},
		{"anywhere, and nothing to fetch", func(c *computer, r *cloud.Request) {
			install(c, filepath.Join(c.bin, "trainyard"))
			r.Boot.AgentURL = ""
		}, true, false},
		{"any version", func(c *computer, r *cloud.Request) {
			install(c, filepath.Join(c.bin, "trainyard"))
			r.Boot.AgentURL, r.Boot.AgentHash = "", ""
		}, true, false},
		{"another one, and nothing to fetch", func(c *computer, r *cloud.Request) {
			install(c, filepath.Join(c.bin, "trainyard"))
			r.Boot.AgentURL, r.Boot.AgentHash = "", strings.Repeat("0", 64)
		}, false, false},
		{"not at all, and nothing to fetch", func(_ *computer, r *cloud.Request) { r.Boot.AgentURL = "" }, false, false},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newComputer(t, "sh")
			c.serve("note fetch")
			r := c.request(now)
			tt.prepare(c, &r)
			out, ok := c.run(userData(t, r, now))
			if ok != tt.ok {
				t.Fatalf("succeeded: %v, want %v: %s", ok, tt.ok, out)
			}

			if ok {
				c.await(
					"the agent",
					func(steps []string) bool { return strings.Contains(strings.Join(steps, "\n"), "agent agent join") },
				)
			}

			if fetched := slices.Contains(c.steps(), "fetch"); fetched != tt.fetched {
				t.Errorf("fetched: %v, want %v", fetched, tt.fetched)
			}
		})
	}
}

func TestTheSwitchHoldsWhenAllElseFails(t *testing.T) {
	t.Parallel()

	for _, broken := range []string{"mkdir", "mv", "curl"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			c := newComputer(t, "sh")
			c.serve("")

			if err := os.Remove(filepath.Join(c.bin, broken)); err != nil {
				t.Fatal(err)
			}

			c.stub(broken, "exit 1")
			now := clock.Wall{}.Now()
			r := c.request(now)
			r.Until = now // it should be gone by now
			if broken == "curl" {
				r.Boot.AgentURL = "" // else it would be tried for ever
			}

			script := strings.Replace(userData(t, r, now), "lease_slack='300'", "lease_slack='0'", 1)
			if out, ok := c.run(script); ok {
				t.Fatalf("succeeded: %s", out)
			}

			c.await(
				"the end of the machine",
				func(steps []string) bool { return len(steps) > 0 && steps[0] == "shutdown -P now" },
			)
		})
	}
}

func TestTheWallClockOfAMachineCanOnlyShortenItsLease(t *testing.T) {
	t.Parallel()
	now := clock.Wall{}.Now()

	tests := []struct {
		name        string
		skew        time.Duration // of the yard's clock against the machine's
		least, most time.Duration
	}{
		{"right", 0, 3595 * time.Second, time.Hour},
		{"the machine's is half an hour ahead", -30 * time.Minute, 1795 * time.Second, 30 * time.Minute},
		{"the machine's is a day ahead", -24 * time.Hour, time.Hour, time.Hour},
		{"the machine's is a day behind", 24 * time.Hour, time.Hour, time.Hour},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newComputer(t, "sh")
			c.serve("")

			yard := now.Add(tt.skew)
			if out, ok := c.run(userData(t, c.request(yard), yard)); !ok {
				t.Fatalf("failed: %s", out)
			}

			d, err := cloud.ParseDeadline(c.read("var/lib/trainyard/agent/lease-end"))
			if err != nil {
				t.Fatal(err)
			}

			if d.Duration < tt.least-time.Minute || d.Duration > tt.most {
				t.Errorf("the machine gives itself %s, want about %s", d.Duration, tt.most)
			}
		})
	}
}

// TestTheSwitchReadsADeadlineAsTheAgentDoes compares the shell with Deadline.Left.
func TestTheSwitchReadsADeadlineAsTheAgentDoes(t *testing.T) {
	t.Parallel()
	now, err := cloud.MomentOf()
	if err != nil {
		t.Fatal(err)
	}

	const slack = 300 * time.Second

	other := func(d cloud.Deadline) cloud.Deadline {
		d.Boot = "another"
		return d
	}

	past := func(d time.Duration) cloud.Deadline {
		return cloud.Deadline{Boot: now.Boot, Until: max(now.Since-d, 0), Wall: now.Wall.Add(-d), Duration: time.Hour}
	}
	never := now.In(time.Hour)
	tests := []struct {
		name  string
		first cloud.Deadline // of the boot script
		file  string         // of the agent
		want  bool           // it ends
	}{
		{"time is left", never, "", false},
		{"the agent has its slack", past(250 * time.Second), "", false},
		{"it is over", past(350 * time.Second), "", true},
		{"the yard made it longer", past(350 * time.Second), never.String(), false},
		{"the yard made it shorter", never, past(350 * time.Second).String(), true},
		{"nonsense in the file", never, "x y z\n", false},
		{"nonsense in the file, and over", past(350 * time.Second), "x y z\n", true},
		{"an empty file", past(350 * time.Second), "\n", true},
		{"numbers that a shell takes for octal", past(350 * time.Second), now.Boot + " 09 09 09\n", true},
		{"numbers that are too large", past(350 * time.Second), now.Boot + " 99999999999999999999 1 1\n", true},
		{"another boot, time is left", other(now.In(24 * 365 * 10 * time.Hour)), "", false},
		{"another boot, over by the wall clock", other(past(350 * time.Second)), "", true},
		{
			"another boot, given for less than it runs",
			cloud.Deadline{Boot: "another", Wall: now.Wall.Add(time.Hour)},
			"",
			now.Since > slack,
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newComputer(t, "sh")
			c.stub("sleep", "kill $PPID") // after the first look

			if tt.file != "" {
				if err := os.WriteFile(c.path("lease-end"), []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			args := append(
				[]string{"switch.sh", c.path("lease-end"), fmt.Sprint(int(slack.Seconds()))},
				strings.Fields(tt.first.String())...)
			cmd := exec.CommandContext(t.Context(), c.shell, args...)
			cmd.Env = []string{"PATH=" + c.bin}
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.Success() || strings.Contains(string(out), "rror") {
				t.Errorf("it did not look and go on: %v: %s", err, out)
			}

			if ended := len(c.steps()) > 0; ended != tt.want {
				t.Errorf("ended: %v, want %v: %s", ended, tt.want, out)
			}

			if d, err := cloud.ParseDeadline(tt.file); err == nil || tt.file == "" {
				if tt.file == "" {
					d = tt.first
				}

				if got := d.Remaining(now) <= -slack; got != tt.want {
					t.Errorf("by Deadline it ended: %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func TestMachinesThatCouldNeverJoinAreRefused(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("a", 64)
	for name, boot := range map[string]cloud.Boot{
		"no server":   {Token: "t"},
		"no token":    {Server: "s"},
		"no digest":   {Server: "s", Token: "t", AgentURL: "u"},
		"half digest": {Server: "s", Token: "t", AgentURL: "u", AgentHash: hash[1:]},
		"zero byte":   {Server: "s\x00", Token: "t", AgentURL: "u", AgentHash: hash},
	} {
		if script, err := cloud.UserData(
			cloud.Request{Boot: boot},
			time.Time{},
		); fault.KindOf(err) != fault.Invalid ||
			script != "" {
			t.Errorf("%s: error %v, script %q", name, err, script)
		}
	}
}
