// Package gangs_test runs jobs on several nodes as they are run in earnest: server and agents are real processes, each
// on a host of its own network (package netlab), and the trainings are PyTorch's, started by torchrun. gangs_test.go
// has what users are promised, kills_test.go what holds when server and agents are killed while a gang starts.
package gangs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/test/netlab"
	"trainyard/test/yardtest"
)

// patience bounds every wait for what must happen. It is far longer than anything takes, also on a busy machine.
const patience = 5 * time.Minute

var (
	binary      string // the real one
	unavailable error  // why there are no networks here
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code, inside, err := netlab.Enter()

	switch {
	case errors.Is(err, netlab.ErrUnavailable) && os.Getenv("CI") != "true":
		unavailable = err
		return m.Run()
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	case !inside:
		return code
	}

	folder, err := os.MkdirTemp("", "gangs-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }() // it is in a folder that is cleared anyhow

		err = yardtest.Build(folder, "trainyard/cmd/trainyard")
	}

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}

	binary = filepath.Join(folder, "trainyard")

	return m.Run()
}

// world is a yard on a network of its own.
type world struct {
	*yardtest.Yard
	t      *testing.T
	ctx    context.Context //nolint:containedctx // it lives as long as the test
	lab    *netlab.Lab
	shared string // folder that all programs see
	names  []string
	where  []string // topology of each node; nil if unknown
	token  string
	client *api.Client // of the admin; nil if it is to be made anew
	agents map[string]*yardtest.Process
}

// newWorld starts a server and so many agents, with a second network between them if backbone is set.
func newWorld(t *testing.T, nodes int, backbone bool, where ...string) *world {
	t.Helper()

	if unavailable != nil {
		t.Skip(unavailable)
	}

	folder, err := yardtest.NewFolder("gangs-")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	w := &world{
		t: t, ctx: ctx, shared: filepath.Join(folder, "shared"), where: where, agents: map[string]*yardtest.Process{},
	}

	t.Cleanup(func() {
		defer cancel()
		w.clear(folder)
	})

	for i := range nodes {
		w.names = append(w.names, fmt.Sprintf("n%d", i+1))
	}

	w.lab, err = netlab.New(append([]string{"s"}, w.names...)...)
	if err == nil && backbone {
		err = w.lab.AddBackbone()
	}

	w.must(errors.Join(err, os.Mkdir(w.shared, 0o700)))

	w.Yard = &yardtest.Yard{Binary: binary, Folder: folder, Address: w.lab.Host("s").Address + ":7443", Flags: []string{
		"--rate", "0", "--report-every", "250ms", "--retry-wait", "100ms",
	}}
	w.must(w.lab.Host("s").Do(func() error { return w.Open(w.ctx) }))
	w.must(w.LogIn(w.ctx))
	w.token, err = w.JoinToken(w.ctx, nodes)
	w.must(err)

	for _, name := range w.names {
		w.startAgent(name)
	}

	for _, name := range w.names {
		w.must(w.AwaitAgent(w.ctx, name))
	}

	return w
}

func (w *world) must(err error) {
	w.t.Helper()

	if err != nil {
		w.t.Fatal(err)
	}
}

// clear ends all that is left of the yard, and keeps its folder if the test failed.
func (w *world) clear(folder string) {
	if w.client != nil {
		w.client.Close()
	}

	err := yardtest.KillAll(folder)
	if w.lab != nil {
		err = errors.Join(err, w.lab.Close())
	}

	if w.t.Failed() {
		w.t.Logf("all of the yard is kept in %s", folder)
		w.t.Logf("end of the server's log:\n%s", yardtest.Tail(filepath.Join(folder, "server.log"), 15))
	} else {
		err = errors.Join(err, os.RemoveAll(folder))
	}

	if err != nil {
		w.t.Errorf("clean up: %v", err)
	}
}

func (w *world) startAgent(name string) {
	w.t.Helper()

	flags := []string{"--cpus", "2", "--fake-gpus", "none", "--probe", "off"}
	if at := slices.Index(w.names, name); at < len(w.where) {
		flags = append(flags, "--topology", w.where[at])
	}

	w.must(w.lab.Host(name).Do(func() (err error) {
		w.agents[name], err = w.StartAgent(name, w.token, flags...)
		return err
	}))
}

func (w *world) startServer() {
	w.t.Helper()
	w.must(w.lab.Host("s").Do(w.StartServer))
}

// ask calls the server, again while it is away.
func ask[T any](w *world, call func(*api.Client) (T, error)) T {
	w.t.Helper()

	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if w.client == nil {
			client, err := w.Client(w.Admin())
			w.must(err)
			w.client = client
		}

		reply, err := call(w.client)
		if err == nil {
			return reply
		}

		w.client.Close() // a connection to a server that is cut off fails only after a while
		w.client = nil

		if time.Now().After(end) {
			w.t.Fatal(err)
		}
	}
}

// submit submits a job file.
func (w *world) submit(name, file string) id.Job {
	w.t.Helper()
	reply := ask(w, func(c *api.Client) (api.SubmitReply, error) {
		return c.Submit(w.ctx, api.SubmitRequest{File: "name: " + name + "\n" + file}, "key-"+name)
	})

	return reply.Jobs[0].ID
}

func (w *world) job(j id.Job) api.JobDetail {
	w.t.Helper()

	return ask(w, func(c *api.Client) (api.JobDetail, error) { return c.Job(w.ctx, j) })
}

// await asks again and again until something is true.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()

	if !yardtest.Await(patience, ok) {
		w.t.Fatalf("it never came true: %s", what)
	}
}

// ends waits for the end of a job.
func (w *world) ends(j id.Job, want job.State) api.JobDetail {
	w.t.Helper()

	var d api.JobDetail
	w.await(fmt.Sprintf("job %s has ended", j), func() bool {
		d = w.job(j)
		return d.State.Final()
	})

	if d.State != want {
		w.t.Fatalf("job %s is %s, want %s: %s\n%s", j, d.State, want, d.Reason, w.output(j))
	}

	return d
}

// output returns what a job has printed, each line with its rank.
func (w *world) output(j id.Job) string {
	w.t.Helper()

	return w.command("logs", string(j), "--rank", "all")
}

// command runs a command of the command line as the admin, and returns what it prints.
func (w *world) command(args ...string) string {
	w.t.Helper()
	home := filepath.Join(w.Folder, "home")
	w.must(os.MkdirAll(home, 0o700))

	// The CA of the yard is known from the token.
	p := yardtest.Person{Binary: binary, Home: home, Vars: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}}
	if _, err := os.Stat(filepath.Join(home, "in")); err != nil {
		token := ask(w, func(c *api.Client) (api.NewToken, error) {
			return c.CreateToken(w.ctx, api.TokenRequest{Kind: tenant.BootstrapToken})
		})
		login := p.Command(w.ctx, "login", w.URL())
		login.Env = append(login.Env, "TRAINYARD_TOKEN="+token.Text)

		if out, err := login.CombinedOutput(); err != nil {
			w.t.Fatalf("login: %v: %s", err, out)
		}

		w.must(os.WriteFile(filepath.Join(home, "in"), nil, 0o600))
	}

	out, err := p.Command(w.ctx, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}

	return string(out)
}

// torchrun returns the command that starts the training with PyTorch's launcher. Debian's version needs the options for
// its logs.
func torchrun(t *testing.T) string {
	t.Helper()

	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import torch").Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("PyTorch is not installed, see scripts/setup-train.sh: %v", err)
		}

		t.Skip("PyTorch is not installed, see scripts/setup-train.sh")
	}

	program, err := filepath.Abs("testdata/train.py")
	if err != nil {
		t.Fatal(err)
	}

	return "/usr/bin/torchrun -r 1 -t 1 --log_dir logs " + program
}
