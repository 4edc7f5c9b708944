package runtime

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/container"
	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/test/podman"
)

// contained is a yard whose programs run in containers.
type contained struct {
	*yard
	engine *podman.Engine
	image  string
}

func newContained(t *testing.T, change ...func(*container.Options)) *contained {
	t.Helper()
	return containedBy(t, podman.Start(t), change...)
}

// containedBy is a yard whose programs run in containers of an engine.
func containedBy(t *testing.T, e *podman.Engine, change ...func(*container.Options)) *contained {
	t.Helper()

	c := &contained{engine: e, image: e.Push(t, "shell:1", podman.Shell())}
	c.yard = newYard(t, isolated(t), func(o *Options) {
		opt := container.Options{Dir: o.Dir, Socket: e.Socket, Clock: o.Clock}
		for _, fn := range change {
			fn(&opt)
		}

		engine, err := container.Open(opt)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = engine.Close() })
		o.Containers = engine
	})

	return c
}

// in starts a run of a command in the image with a shell.
func (c *contained) in(command string) id.Run {
	c.t.Helper()
	return c.start(api.Launch{Image: c.image, Command: command, LogLimit: 1 << 20})
}

// empty waits until the engine has no container any more.
func (c *contained) empty() {
	c.t.Helper()

	for end := time.Now().Add(time.Minute); ; {
		left := c.engine.Containers(c.t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("containers are left: %v", left)
		}

		clock.Sleep(c.t.Context(), 50*time.Millisecond)
	}
}

func TestAProgramRunsInAContainer(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	c.image = c.engine.Push(t, "tool:1", podman.Image{
		Programs: podman.Programs, Files: map[string]string{"/opt/tool": "of the image"},
		Open: []string{"/open"},
		Env:  []string{"FLAVOUR=vanilla", "OVERRIDE=image", "PATH=/opt/bin:/bin"}, User: "1234",
	})

	s := c.spec(api.Launch{
		Image: c.image, LogLimit: 1 << 20, Owner: "ada", OwnerNumber: 7, Nodes: []string{"192.0.2.1"}, Env: map[string]string{"OVERRIDE": "job"},
		Command: `
cat /opt/tool; echo
echo "env $FLAVOUR $OVERRIDE $PATH"
echo "id $(id -u) $(id -g) $(id -G) $(id -un)"
grep -E '^(NoNewPrivs|Seccomp|CapInh|CapPrm|CapEff|CapBnd|CapAmb):' /proc/self/status | tr '\t' ' '
[ $(ls -d /proc/[0-9]* | wc -l) -lt 10 ] && echo "few processes"
ls $(dirname $PWD) | tr '\n' ' '; echo
ls -A /.trainyard
touch f $HOME/f /tmp/f /dev/shm/f $XDG_CACHE_HOME/f $TRAINYARD_CHECKPOINT_DIR/f && echo "folders can be written"
touch /open/f 2>/dev/null && echo "the image can be written"
echo "$MASTER_ADDR $NNODES"
echo said > /dev/stdout
echo wrong >&2
exit 3`,
	})
	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	st := c.end(s.Run)
	check(t, st, 3, "", job.CauseUserCode, false, "exit code 3")

	const none = ": 0000000000000000\n"

	want := "of the image\nenv vanilla job /opt/bin:/bin\nid 310007 310007 310007 ada\n" +
		"CapInh" + none + "CapPrm" + none + "CapEff" + none + "CapBnd" + none + "CapAmb" + none +
		"NoNewPrivs: 1\nSeccomp: 2\nfew processes\nhome report requests work \nfolders can be written\n127.0.0.1 1\nsaid\n"
	if got := c.output(s.Run)[logs.Stdout]; got != want {
		t.Errorf("output = %s\nwant %s\nerrors %s", got, want, c.output(s.Run)[logs.Stderr])
	}

	if got := c.output(s.Run)[logs.Stderr]; !strings.HasSuffix(got, "wrong\n") {
		t.Errorf("errors = %q", got)
	}

	if repository, digest, _ := strings.Cut(st.Digest, "@sha256:"); repository+":1" != c.image || len(digest) != 64 {
		t.Errorf("digest of the image = %q", st.Digest)
	}

	c.empty()
}

func TestAProgramInAContainerIsStopped(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	run := c.in(`trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done`)
	c.follow(run, "ready\n")

	if err := c.Stop(run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	check(t, c.end(run), 5, "", job.CauseCancelled, true, "exited after SIGTERM with exit code 5")

	if got := c.output(run)[logs.Stdout]; got != "ready\nsaved\n" {
		t.Errorf("output = %q", got)
	}

	c.empty()
}

func TestAContainerOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	hold := pipe(t)
	s := c.spec(api.Launch{
		Image: c.image, LogLimit: 1 << 20, Env: map[string]string{"HOLD": hold}, Command: "echo ready; read x < $HOLD; echo $x",
	})
	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	c.follow(s.Run, "ready\n")
	c.reopen()
	release(t, hold)

	st := c.end(s.Run)
	check(t, st, 0, "", "", false, "")

	if got := c.output(s.Run)[logs.Stdout]; got != "ready\ngo\n" || st.Digest == "" {
		t.Errorf("output = %q, image %q", got, st.Digest)
	}

	c.empty()
}

func TestAContainerEndsWithItsSupervisor(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	run := c.in("echo ready; sleep 1000")
	c.follow(run, "ready\n")

	program := c.await(run, job.RunRunning).PID

	pid, err := rundir.LockHolder(c.runDir(run))
	if err != nil || pid == 0 {
		t.Fatalf("supervisor %d: %v", pid, err)
	}

	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if st := c.end(run); st.Cause != job.CauseNodeLost && st.Cause != job.CauseSupervisorLost {
		t.Errorf("ended with cause %q: %s", st.Cause, st.Reason)
	}

	if p, ok := process.Read(program); ok && !p.Dead {
		t.Error("the program is still there")
	}

	c.empty()
}

func TestARunIsStoppedWhenItsContainerIs(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	run := c.in("echo ready; sleep 1000")
	c.follow(run, "ready\n")
	c.engine.Kill(t)

	if st := c.end(run); st.Cause != job.CauseNodeLost || !strings.Contains(st.Reason, "stopped from outside") {
		t.Errorf("ended with cause %q: %s", st.Cause, st.Reason)
	}

	c.empty()
}

func TestASetUpInAContainerIsCachedByTheImage(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	l := api.Launch{
		Image: c.image, LogLimit: 1 << 20, Setup: "echo tool > $TRAINYARD_SETUP_DIR/tool; mkdir bin; echo kept > bin/kept; echo set up",
		Command: "cat $TRAINYARD_SETUP_DIR/tool bin/kept; echo bad > $TRAINYARD_SETUP_DIR/tool 2>/dev/null || echo sealed",
	}

	runs := func(want string) {
		t.Helper()

		run := c.start(l)
		check(t, c.end(run), 0, "", "", false, "")

		if got := c.output(run)[logs.Stdout]; got != want {
			t.Errorf("output = %q, want %q; errors %q", got, want, c.output(run)[logs.Stderr])
		}
	}

	const rest = "tool\nkept\nsealed\n"

	runs("set up\n" + rest)
	runs(rest)

	// The name means another image now.
	c.engine.Push(t, "shell:1", podman.Image{Programs: podman.Programs, Files: map[string]string{"/new": "x"}})
	runs("set up\n" + rest)

	// It means the first one again, whose set-up is still there.
	c.engine.Push(t, "shell:1", podman.Shell())
	runs(rest)

	// Another set-up in the same image is another content.
	l.Setup += " again"
	runs("set up again\n" + rest)
	runs(rest)
}

func TestWhatIsWrongWithAnImageIsSaid(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	other := "arm64"
	if c.engine.Push(t, "other:1", podman.Image{Programs: []string{"sh"}, Arch: other}) == "" {
		t.Fatal("not pushed")
	}

	c.engine.Push(t, "empty:1", podman.Image{Files: map[string]string{"/f": "x"}})

	for image, want := range map[string]string{
		"nothing:1":        "not found in registry " + c.engine.Address,
		"shell:unknown":    "not found in registry",
		"other:1":          "it is for linux/arm64, and this node is linux/",
		"../127.0.0.1:1/a": "is not the name of a container image",
	} {
		name := c.engine.Address + "/" + image
		if trimmed, ok := strings.CutPrefix(image, "../"); ok {
			name = "UPPER" + trimmed + "/B"
		}

		s := c.spec(api.Launch{Image: name, Command: "true"})
		if err := c.Start(t.Context(), s); err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}

			continue
		}

		if st := c.end(s.Run); st.Cause != job.CauseImageFailed || !strings.Contains(st.Reason, want) {
			t.Errorf("%s: cause %q: %s, want %q", name, st.Cause, st.Reason, want)
		}
	}

	run := c.start(api.Launch{Image: c.engine.Address + "/empty:1", Command: "true"})
	if st := c.end(run); !strings.Contains(st.Reason, "neither /bin/bash nor /bin/sh") {
		t.Errorf("an image without a shell: cause %q: %s", st.Cause, st.Reason)
	}

	run = c.start(api.Launch{Image: "127.0.0.1:1/a:1", Command: "true"})
	if st := c.end(run); st.Cause != job.CauseImageFailed || !strings.Contains(st.Reason, "cannot be reached") {
		t.Errorf("a registry that is not there: cause %q: %s", st.Cause, st.Reason)
	}

	c.empty()
}

func TestCredentialsForARegistry(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "auth.json")
	c := newContained(t, func(o *container.Options) { o.Auth = file })
	c.engine.Protect("s3cret")

	for _, tt := range []struct{ text, want string }{
		{`{}`, "wants credentials for it"},
		{`{"auths":{"` + c.engine.Address + `":{"auth":"cHVsbGVyOndyb25n"}}}`, "refuses the credentials of this node"},
		{`{"auths":{"` + c.engine.Address + `":{"auth":"cHVsbGVyOnMzY3JldA=="}}}`, ""},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}

		st := c.end(c.in("true"))
		if tt.want == "" {
			check(t, st, 0, "", "", false, "")
			continue
		}

		if st.Cause != job.CauseImageFailed || !strings.Contains(st.Reason, tt.want) {
			t.Errorf("with %s: cause %q: %s, want %q", tt.text, st.Cause, st.Reason, tt.want)
		}

		if strings.Contains(st.Reason, "s3cret") {
			t.Errorf("the reason has the password: %s", st.Reason)
		}
	}
}

// TestCredentialsOfAJob has two people share a node on which the image of one of them is.
func TestCredentialsOfAJob(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	c.engine.Protect("s3cret")

	start := func(image, secret, value string) rundir.Status {
		t.Helper()

		s := c.spec(api.Launch{Image: image, Command: "env", LogLimit: 1 << 20, RegistryAuth: secret})
		s.RegistryAuth = value
		if err := c.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		st := c.end(s.Run)

		record, err := os.ReadFile(filepath.Join(c.runDir(s.Run), rundir.LaunchFile))
		if err != nil || strings.Contains(string(record), "s3cret") {
			t.Errorf("the record of the rank has the password, or is not there: %v", err)
		}

		if out := c.output(s.Run)[logs.Stdout]; strings.Contains(out, "s3cret") || strings.Contains(st.Reason, "s3cret") {
			t.Errorf("the program or its owner sees the password: %q, %q", out, st.Reason)
		}

		return st
	}

	first := start(c.image, "LOGIN", podman.User+":s3cret")
	check(t, first, 0, "", "", false, "")

	// The image is on the node now, under its tag and its digest. Whoever may not pull it may not use it.
	for _, image := range []string{c.image, first.Digest} {
		for _, tt := range []struct{ secret, value, want string }{
			{"", "", "wants credentials for it, or does not have it; name a secret with USER:PASSWORD in registry_auth"},
			{"OTHER", podman.User + ":wrong", "refuses the credentials in secret OTHER for it"},
			{"OTHER", "nobody", "secret OTHER must be USER:PASSWORD to be used for a registry"},
		} {
			st := start(image, tt.secret, tt.value)
			if st.Cause != job.CauseImageFailed || !strings.Contains(st.Reason, tt.want) {
				t.Errorf("%s with %q: cause %q: %s, want %q", image, tt.value, st.Cause, st.Reason, tt.want)
			}
		}

		check(t, start(image, "LOGIN", podman.User+":s3cret"), 0, "", "", false, "")
	}

	s := c.spec(api.Launch{Image: c.image, Command: "true", RegistryAuth: "LOGIN"})
	if err := c.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "credentials for the registry were not sent") {
		t.Errorf("without the credentials that the launch names: %v", err)
	}
}

func TestNoEngine(t *testing.T) {
	t.Parallel()
	engine, err := container.Open(container.Options{Dir: t.TempDir(), Socket: "/nowhere/podman.sock", Clock: clock.Wall{}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = engine.Close() })

	if can := engine.Look(t.Context()); can.OK || can.Reason != "no container engine: /nowhere/podman.sock does not exist" {
		t.Errorf("without an engine: %+v", can)
	}

	y := newYard(t, isolated(t), func(o *Options) { o.Containers = engine })
	run := y.start(api.Launch{Image: "a/b:1", Command: "true"})
	check(t, y.end(run), 0, "", job.CauseImageFailed, false, "no container engine: /nowhere/podman.sock does not exist")
}

func TestADiskWithoutSpaceForAnImage(t *testing.T) {
	t.Parallel()
	c := containedBy(t, podman.Start(t, podman.Small("4m")))
	st := c.end(c.in("true"))

	if want := "image " + c.image + ": no space is left on the disk of the container engine"; st.Reason != want ||
		st.Cause != job.CauseImageFailed {
		t.Errorf("cause %q: %q, want %q", st.Cause, st.Reason, want)
	}
}

func TestAGPUThatIsNotInTheContainer(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	s := c.spec(api.Launch{Image: c.image, Command: "echo started", LogLimit: 1 << 20, GPUs: []int{0}})
	s.Devices = []string{"GPU-1"}
	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	st := c.end(s.Run)
	if st.Cause != job.CauseLaunchFailed || !strings.Contains(st.Reason, "GPU GPU-1 ") ||
		!strings.Contains(st.Reason, "nvidia-ctk cdi generate") {
		t.Errorf("cause %q: %s", st.Cause, st.Reason)
	}

	if out := c.output(s.Run)[logs.Stdout]; out != "" {
		t.Errorf("the program has run: %q", out)
	}

	c.empty()
}

func TestImagesThatNobodyUsesAreRemoved(t *testing.T) {
	t.Parallel()
	c := newContained(t, func(o *container.Options) { o.MaxImages = 1 })
	hold := pipe(t)
	s := c.spec(api.Launch{Image: c.image, Env: map[string]string{"HOLD": hold}, Command: "echo ready; read x < $HOLD"})
	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	c.follow(s.Run, "ready\n")
	c.sweepContainers()

	if list := strings.Fields(c.engine.Run(t, "images", "--quiet")); len(list) != 1 {
		t.Errorf("images %v while one is in use", list)
	}

	if list := c.engine.Containers(t); len(list) != 1 {
		t.Errorf("containers %v while one is in use", list)
	}

	release(t, hold)
	check(t, c.end(s.Run), 0, "", "", false, "")
	c.empty()
	c.sweepContainers()

	if list := strings.Fields(c.engine.Run(t, "images", "--quiet")); len(list) != 0 {
		t.Errorf("images %v are left though nobody uses them", list)
	}
}

func TestTheMetadataServiceIsBlockedInContainers(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	run := c.in("bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' 2>&1 || true; cat /proc/net/dev | grep -c : ")
	check(t, c.end(run), 0, "", "", false, "")

	if got := c.output(run)[logs.Stdout]; !strings.Contains(got, "Permission denied") {
		t.Errorf("a connection to the metadata service gave %q", got)
	}
}

func TestSweepRemovesWhatNoRankHas(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	hold := pipe(t)
	s := c.spec(api.Launch{Image: c.image, Env: map[string]string{"HOLD": hold}, Command: "echo ready; read x < $HOLD"})
	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	c.follow(s.Run, "ready\n")

	running := c.engine.Containers(t)
	create := func(name, agent, rank string) {
		t.Helper()
		c.engine.Run(t, "create", "--name", name, "--label", "trainyard.agent="+agent, "--label", "trainyard.rank="+rank,
			"--label", "trainyard.process=earlier", c.image, "/bin/true")
	}

	create("ended", c.dir, "j9.1.0")        // its rank is gone
	create("unstarted", c.dir, s.Name())    // the agent was killed before it started it
	create("other", "/elsewhere", s.Name()) // of another agent
	c.engine.Run(t, "create", "--name", "foreign", c.image, "/bin/true")

	// What an engine has made of a directory that it was to mount, and one with files.
	remains, files := filepath.Join(c.dir, rundir.RunsDir, "j9.1.0"), filepath.Join(c.dir, rundir.RunsDir, "j8.1.0")
	for _, dir := range []string{remains, filepath.Join(files, rundir.ContainerDir, "file")} {
		if err := os.MkdirAll(filepath.Join(dir, rundir.ContainerDir), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	c.sweepContainers()

	if _, err := os.Stat(remains); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of a rank that is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(files, rundir.ContainerDir, "file")); err != nil {
		t.Errorf("a directory with files: %v", err)
	}

	left := strings.Fields(c.engine.Run(t, "ps", "--all", "--format", "{{.Names}}", "--filter", "status=created"))
	slices.Sort(left)

	if !slices.Equal(left, []string{"foreign", "other"}) {
		t.Errorf("containers %v are left, want those of others alone", left)
	}

	if got := strings.Fields(c.engine.Run(t, "ps", "--quiet")); !slices.Equal(got, running) {
		t.Errorf("containers %v run, want that of the rank, %v", got, running)
	}

	release(t, hold)
	check(t, c.end(s.Run), 0, "", "", false, "")
}

func TestLimitsHoldInAContainer(t *testing.T) {
	t.Parallel()
	c := newContained(t)
	if !c.limits.Usable() {
		lacking(t, c.Limits())
	}

	const hog = `while ! grep -q trainyard /proc/$$/cgroup; do :; done
head -c 300000000 /dev/zero | tail > /dev/null`

	run := c.start(api.Launch{Image: c.image, Command: hog, Memory: 64 << 20, CPUs: 500, LogLimit: 1 << 20})
	st := c.end(run)
	check(t, st, st.ExitCode, st.Signal, job.CauseHostOOM, false, "exceeded its memory limit of 64MB")
	c.empty()
}

func TestTheEndpointOfTheAgentIsInTheNetworkOfAContainer(t *testing.T) {
	t.Parallel()

	greet := func(l net.Listener) {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}

			_, _ = conn.Write([]byte("hello\n"))
			_ = conn.Close()
		}
	}

	c := newContained(t)
	c.opts.Endpoint = func() (string, func(net.Listener)) { return "127.0.0.1:47047", greet }
	c.reopen()

	hold := pipe(t)
	s := c.spec(api.Launch{
		Image: c.image, LogLimit: 1 << 20, Env: map[string]string{"HOLD": hold},
		Command: `ask() { (exec 3<>/dev/tcp/127.0.0.1/47047; cat <&3) 2>/dev/null; }
ask; read x < $HOLD; until ask; do sleep 0.02; done`,
	})
	if err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	c.follow(s.Run, "hello\n")
	c.reopen() // the next agent is there, too
	release(t, hold)
	check(t, c.end(s.Run), 0, "", "", false, "")

	if got := c.output(s.Run)[logs.Stdout]; got != "hello\nhello\n" {
		t.Errorf("output = %q, errors %q", got, c.output(s.Run)[logs.Stderr])
	}

	c.empty()
}
