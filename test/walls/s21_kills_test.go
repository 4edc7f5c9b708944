package walls_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

var (
	killsFlag = flag.Int("kills", defaultKills(), "how often server or agent is killed while people are in a job")
	seedFlag  = flag.Uint64("seed", 1, "seed of the moments")
)

func defaultKills() int {
	if os.Getenv("CI") == "true" {
		return 100
	}

	return 10
}

// TestS21_KillsWhilePeopleAreInAJob kills the server or the agent at random moments while people run commands in a job
// and use a forwarded port. A session that says that it succeeded has passed on all of its input and output, once;
// nothing is left of any of them; and the job goes on as if nothing had happened.
func TestS21_KillsWhilePeopleAreInAJob(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.running(t, "env:\n  LISTEN: |\n"+indent(echoServer), "/usr/bin/python3 -c \"$LISTEN\" ada &",
		"{ i=0; while :; do i=$((i+1)); echo n=$i; sleep 0.05; done } & echo $$ > program")
	program := ada.must(t, "exec", string(j), "--", "cat", "program")
	f := ada.forwards(t, j, ada.portOf(t, j))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	var people sync.WaitGroup
	var good, lost atomic.Int64

	for i := range 4 {
		people.Go(func() {
			random := rand.New(rand.NewPCG(*seedFlag, uint64(i)))

			for ctx.Err() == nil {
				input := strings.Repeat(strconv.Itoa(random.Int()), 1+random.IntN(20_000))

				if i == 0 {
					answer := f.talk(input)
					if answer == "ada:"+input {
						good.Add(1)
					} else if !strings.HasPrefix("ada:"+input, answer) { // a connection may break while the answer comes
						t.Errorf("%d bytes came back through the port, and not those that were sent", len(answer))
					}

					continue
				}

				output, err := ada.through(ctx, j, input)
				switch {
				case err == nil && output == input:
					good.Add(1)
				case err == nil:
					t.Errorf("%d bytes came back of %d, and not those", len(output), len(input))
				case !unavailable(err) && ctx.Err() == nil:
					t.Errorf("a session ended with %v", err)
				default:
					lost.Add(1)
					time.Sleep(50 * time.Millisecond) // as somebody who tries again
				}
			}
		})
	}

	random := rand.New(rand.NewPCG(*seedFlag, 99))

	for range *killsFlag {
		time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond)
		y.killOne(t, random.IntN(2) == 0)
	}

	before := good.Load()
	y.await(t, "sessions succeed after the last kill", func() bool { return good.Load() > before+4 })
	stop()
	people.Wait()
	f.stop(t)
	t.Logf("%d kills, %d sessions succeeded, %d were lost", *killsFlag, good.Load(), lost.Load())

	y.await(t, "nothing is left of the sessions", func() bool { return visited(t, "MARK=kills-") == 0 })

	d, err := ada.Job(t.Context(), j)
	must(t, err)

	now := ada.must(t, "exec", string(j), "--", "cat", "program")
	if d.State != job.Running || len(d.Runs) != 1 || now != program {
		t.Errorf("the job is %s, with %d runs, and its program %s was %s", d.State, len(d.Runs), now, program)
	}

	ada.must(t, "kill", "--yes", string(j))
	ada.ended(t, j)

	counted := 0

	for line := range strings.Lines(ada.output(t, j)) {
		if text, ok := strings.CutPrefix(line, "n="); ok {
			counted++

			if strings.TrimSpace(text) != strconv.Itoa(counted) {
				t.Fatalf("line %d of the program is n=%s", counted, text)
			}
		}
	}

	if counted == 0 {
		t.Error("the program has printed nothing")
	}
}

// killOne kills the server or the agent, and starts it again.
func (y *yard) killOne(t *testing.T, server bool) {
	t.Helper()

	if server {
		must(t, y.Server().Kill())
		must(t, y.StartServer())
		must(t, y.AwaitReady(t.Context()))

		return
	}

	must(t, y.agents["n1"].Kill())

	p, err := y.StartAgent("n1", "", "--isolation", "users")
	must(t, err)
	y.agents["n1"] = p
}

// unavailable reports whether an error is what somebody gets whose server or agent was killed: nothing else may come of
// it.
func unavailable(err error) bool {
	var f *fault.Error

	return errors.As(err, &f) && (f.Kind == fault.Unavailable || slices.Contains([]string{"not_running", "agent_lost"}, f.Code))
}

// through sends a text through a command in a job, which leaves a process behind, and returns what came back.
func (u *user) through(ctx context.Context, j id.Job, text string) (string, error) {
	tunnel, err := u.OpenTunnel(ctx, j, api.TunnelStart{Kind: api.TunnelExec, Command: []string{
		"env", fmt.Sprintf("MARK=kills-%d", len(text)), "sh", "-c", "setsid sleep 10000 > /dev/null & cat",
	}})
	if err != nil {
		return "", err
	}

	defer func() { _ = tunnel.Close() }()

	go func() { _ = tunnel.Copy(ctx, api.StreamIn, strings.NewReader(text)) }()

	var got bytes.Buffer

	for {
		m, err := tunnel.Receive(ctx)
		if err != nil {
			return "", api.LostTunnel(err)
		}

		if m.Stream == api.StreamOut {
			got.Write(m.Data)
		}

		if m.Control == nil {
			continue
		}

		if err := m.Control.Failure(); err != nil {
			return "", err
		}

		if end := m.Control.End; end != nil && (end.Exit != 0 || end.Reason != "") {
			return "", fault.New(fault.Unavailable, "ended", "it was ended with %d: %s", end.Exit, end.Reason)
		} else if end != nil {
			return got.String(), nil
		}
	}
}
