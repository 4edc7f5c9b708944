// Package walls_test attacks real yards: a server, agents that are root and agents that are not, and a researcher who
// wants what belongs to others.
//
// Each finding of the security review is one file, s01_test.go to s20_test.go, with attacks that must fail: with a
// reason that the attacker is shown, and an entry of the audit record where there should be one. walls_test.go is what
// they share: it opens yards, adds users, starts agents, submits jobs and reads what came of it.
package walls_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/test/yardtest"
)

// binary is the real binary.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "walls-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }() // it is in a folder that is cleared anyhow

		err = yardtest.Build(folder, "trainyard/cmd/trainyard")
	}

	if err == nil {
		err = os.Chmod(folder, 0o711)
	}

	if err == nil {
		// The tests mostly wait, so more of them than there are cores can go on at once.
		err = flag.Set("test.parallel", "4")
	}

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}

	binary = filepath.Join(folder, "trainyard")

	return m.Run()
}

// patience bounds every wait; it is far longer than anything takes.
const patience = 3 * time.Minute

// agentUser is the number of the user under whom agents run that are not root.
const agentUser = 40000

// needRoot skips an attack that only root can set up. CI is root, so there it fails.
func needRoot(t *testing.T) {
	t.Helper()

	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this attack needs root, and CI=true allows no skipping")
	}

	t.Skip("this attack needs root: it starts agents under other users")
}

// yard is a real yard with its first admin.
type yard struct {
	*yardtest.Yard
	admin  *user
	agents map[string]*yardtest.Process
}

// user is somebody with an access token.
type user struct {
	*api.Client     // with the token
	yardtest.Person // logged in, for commands
	name            id.User
	text            string // the token
	token           id.Token
	yard            *yard
}

// newYard starts a server with these flags, and logs its first admin in. All of it ends with the test.
func newYard(t *testing.T, flags ...string) *yard {
	t.Helper()
	folder, err := yardtest.NewFolder("walls-")
	must(t, err)

	y := &yard{
		Yard: &yardtest.Yard{
			Binary: binary, Folder: folder,
			Flags: append([]string{"--report-every", "200ms", "--retry-wait", "100ms"}, flags...),
		},
		agents: map[string]*yardtest.Process{},
	}

	t.Cleanup(func() { y.clear(t) })
	must(t, y.Open(t.Context()))
	must(t, y.LogIn(t.Context()))
	y.admin = y.login(t, "admin", y.Admin())

	who, err := y.admin.Whoami(t.Context())
	must(t, err)

	y.admin.name = who.User

	return y
}

// clear ends all that is left of the yard, and keeps its folder if the test failed.
func (y *yard) clear(t *testing.T) {
	t.Helper()

	if err := yardtest.KillAll(y.Folder); err != nil {
		t.Errorf("clean up: %v", err)
	}

	if !t.Failed() {
		if err := os.RemoveAll(y.Folder); err != nil {
			t.Errorf("clean up: %v", err)
		}

		return
	}

	t.Logf("all of the yard is kept in %s", y.Folder)
	t.Logf("end of the server's log:\n%s", yardtest.Tail(y.ServerLog(), 15))

	for name := range y.agents {
		t.Logf("end of the log of agent %s:\n%s", name, yardtest.Tail(y.AgentLog(name), 15))
	}
}

// login makes somebody of a token.
func (y *yard) login(t *testing.T, name, text string) *user {
	t.Helper()
	client, err := y.Client(text)
	must(t, err)
	t.Cleanup(client.Close)

	person, err := yardtest.NewPerson(binary, y.Folder, name)
	must(t, err)

	bootstrap, err := auth.Parse(y.Bootstrap())
	must(t, err)

	u := &user{Client: client, Person: person, name: id.User(name), text: text, yard: y}
	u.must(t, "login", y.URL(), "--token", text, "--ca-hash", bootstrap.CAHash)

	return u
}

// user adds a researcher with an access token.
func (y *yard) user(t *testing.T, name string) *user {
	t.Helper()
	_, err := y.admin.PutUser(t.Context(), id.User(name), api.UserRequest{Role: tenant.Researcher})
	must(t, err)

	made, err := y.admin.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.AccessToken, Owner: id.User(name)})
	must(t, err)

	u := y.login(t, name, made.Text)
	u.token = made.ID

	return u
}

// rootAgent starts an agent as root, or as whoever runs the test, and waits until it is a node.
func (y *yard) rootAgent(t *testing.T, name string, flags ...string) {
	t.Helper()
	p, err := y.StartAgent(name, y.joinToken(t), flags...)
	must(t, err)
	y.joined(t, name, p)
}

// plainAgent starts an agent under a user without rights, and waits until it is a node. It needs root.
func (y *yard) plainAgent(t *testing.T, name string, flags ...string) {
	t.Helper()
	needRoot(t)

	p, err := y.StartAgentAs(agentUser, name, y.joinToken(t), flags...)
	must(t, err)
	y.joined(t, name, p)
}

func (y *yard) joinToken(t *testing.T) string {
	t.Helper()
	token, err := y.JoinToken(t.Context(), 1)
	must(t, err)

	return token
}

func (y *yard) joined(t *testing.T, name string, p *yardtest.Process) {
	t.Helper()
	y.agents[name] = p
	must(t, y.AwaitAgent(t.Context(), name))
	y.await(t, "node "+name+" is idle", func() bool { return y.node(t, name).State == "idle" })
}

// node asks for a node.
func (y *yard) node(t *testing.T, name string) api.Node {
	t.Helper()
	n, err := y.admin.Node(t.Context(), id.Node(name))
	must(t, err)

	return n
}

// await asks again and again until something is true.
func (y *yard) await(t *testing.T, what string, ok func() bool) {
	t.Helper()

	if !yardtest.Await(patience, ok) {
		t.Fatalf("it never came true: %s", what)
	}
}

// audit waits for an entry of the feed of this kind that something is true of, and returns the first.
func (y *yard) audit(t *testing.T, kind string, ok func(*api.Event) bool) api.Event {
	t.Helper()
	var found api.Event

	y.await(t, "the feed has an entry "+kind+" of the attack", func() bool {
		page, err := y.admin.Events(t.Context(), api.EventFilter{Kind: kind, Page: api.Page{Limit: 500}})
		must(t, err)

		for i := range page.Events {
			if ok(&page.Events[i]) {
				found = page.Events[i]
				return true
			}
		}

		return false
	})

	return found
}

// script is a job file that runs a shell script.
func script(lines ...string) string {
	return "run: |\n  " + strings.Join(lines, "\n  ") + "\nresources: {cpus: 0.5}\ngrace: 2s\n"
}

// submit submits a job file and returns the job's id.
func (u *user) submit(t *testing.T, file string) id.Job {
	t.Helper()
	reply, err := u.Submit(t.Context(), api.SubmitRequest{File: file}, "")
	must(t, err)

	return reply.Jobs[0].ID
}

// ended waits until a job has ended and returns it.
func (u *user) ended(t *testing.T, j id.Job) api.JobDetail {
	t.Helper()
	var d api.JobDetail

	u.yard.await(t, fmt.Sprintf("job %s has ended", j), func() bool {
		var err error
		d, err = u.Job(t.Context(), j)
		must(t, err)

		return d.State.Final()
	})

	return d
}

// output returns all that a job has printed so far, of all its runs and ranks.
func (u *user) output(t *testing.T, j id.Job) string {
	t.Helper()
	var out strings.Builder

	for f := (api.LogFilter{}); ; {
		page, err := u.Logs(t.Context(), j, f)
		must(t, err)

		for _, l := range page.Lines {
			if l.Raw != nil {
				out.Write(l.Raw)
			}

			out.WriteString(l.Text + "\n")
		}

		if page.Next == "" || page.Ended || page.Next == f.Cursor {
			return out.String()
		}

		f.Cursor = page.Next
	}
}

// runs submits a script, waits for its end and returns what it printed.
func (u *user) runs(t *testing.T, lines ...string) string {
	t.Helper()
	j := u.submit(t, script(lines...))
	u.ended(t, j)

	return u.output(t, j)
}

// answer is what the server said to a request.
type answer struct {
	status  int
	header  http.Header
	text    string
	problem api.Problem // of an error
}

func (a *answer) String() string { return fmt.Sprintf("%d %.2000s", a.status, a.text) }

// call makes a request of the API that no client of ours makes. A body that is not a reader is sent as JSON.
func (u *user) call(t *testing.T, method, path string, body any) answer {
	t.Helper()
	client, err := u.yard.HTTP()
	must(t, err)

	defer client.CloseIdleConnections()

	return u.callWith(t, client, method, path, body)
}

// callWith is call over a client of its own, such as one with the certificate of a node.
func (u *user) callWith(t *testing.T, client *http.Client, method, path string, body any) answer {
	t.Helper()
	reader, isReader := body.(io.Reader)
	if body != nil && !isReader {
		text, err := json.Marshal(body)
		must(t, err)

		reader = bytes.NewReader(text)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, method, u.yard.URL()+path, reader)
	must(t, err)

	if u.text != "" {
		req.Header.Set("Authorization", "Bearer "+u.text)
	}

	if body != nil && !isReader {
		req.Header.Set("Content-Type", "application/json")
	}

	resp, err := client.Do(req)
	must(t, err)

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)
	must(t, err)

	a := answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if resp.StatusCode >= http.StatusBadRequest {
		_ = json.Unmarshal(text, &a.problem) // what stands before the server may say something else
	}

	return a
}

// result is how a command ended.
type result struct {
	out, err string
	code     int
}

func (r *result) String() string {
	return fmt.Sprintf("code %d\nstandard output:\n%s\nstandard error:\n%s", r.code, r.out, r.err)
}

// types runs a command to its end.
func (u *user) types(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	var out, errs bytes.Buffer

	cmd := u.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("trainyard %s: %v %v\n%s%s", strings.Join(args, " "), err, ctx.Err(), &out, &errs)
	}

	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that must succeed, and returns what it wrote to standard output.
func (u *user) must(t *testing.T, args ...string) string {
	t.Helper()
	r := u.types(t, args...)
	if r.code != 0 {
		t.Fatalf("trainyard %s: %s", strings.Join(args, " "), &r)
	}

	return r.out
}

// sees runs a command on a terminal and returns the bytes that the terminal gets from it.
func (u *user) sees(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	screen, program, err := yardtest.Terminal()
	must(t, err)

	defer func() { _ = screen.Close() }()

	cmd := u.Command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	must(t, cmd.Start())
	must(t, program.Close())

	// Reading from a terminal that no program has open any more fails.
	shown, err := io.ReadAll(screen)
	if err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}

	if err := cmd.Wait(); err != nil {
		t.Fatalf("trainyard %s: %v\n%q", strings.Join(args, " "), err, shown)
	}

	return string(shown)
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}
