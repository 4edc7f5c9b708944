package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/id"
)

// typeScript runs in a job and passes its input on to that of the program, with what every shell has. It ends with
// noInput if the program reads none.
const (
	typeScript = `[ -p "$TRAINYARD_INPUT" ] || exit 97
exec > "$TRAINYARD_INPUT"
while IFS= read -r line || [ -n "$line" ]; do printf '%s\n' "$line"; done`
	noInput = 97
)

// passTyped sends what the person types to the program of a job, beside the caller. A job whose program reads no input
// is only told of to somebody who types: a script may need its input for something else.
func (a *app) passTyped(ctx context.Context, c *api.Client, j *api.JobDetail, rank int) error {
	var spec struct {
		Interactive json.RawMessage `json:"interactive"`
	}
	if err := json.Unmarshal(j.Spec, &spec); err != nil {
		return fmt.Errorf("read the job file of %s: %w", j.ID, err)
	}

	reads := spec.Interactive != nil
	if !reads && !a.OnTerminal(a.Stdin) {
		return nil
	}

	t := &typist{app: a, client: c, job: j.ID, rank: rank}

	go func() {
		// Reading from a terminal cannot be ended, so nobody waits for this.
		for lines := bufio.NewReader(a.In); ; {
			line, err := lines.ReadString('\n')

			switch {
			case line != "" && !reads:
				a.Note("The program of job %s reads no input: its job file has no interactive. See: trainyard help shell", j.ID)
				return
			case line != "":
				t.send(ctx, line)
			}

			if err != nil {
				t.close()
				return
			}
		}
	}()

	return nil
}

// typist sends input to the program of a job, through a command in the job that lasts until somebody detaches.
type typist struct {
	*app
	client *api.Client
	job    id.Job
	rank   int
	to     *io.PipeWriter // nil until something is sent
}

// send sends a line. If the connection is gone it is made anew.
func (t *typist) send(ctx context.Context, line string) {
	for range 2 {
		if t.to == nil {
			if err := t.open(ctx); err != nil {
				t.Note("not sent to job %s: %s", t.job, table.Plain(err.Error()))
				return
			}
		}

		if _, err := io.WriteString(t.to, line); err == nil {
			return
		}

		t.to = nil
	}
}

// open starts the command in the job.
func (t *typist) open(ctx context.Context) error {
	tunnel, err := t.client.OpenTunnel(ctx, t.job, api.TunnelStart{
		Kind: api.TunnelExec, Rank: t.rank, Command: []string{"/bin/sh", "-c", typeScript},
	})
	if err != nil {
		return err
	}

	from, to := io.Pipe()
	t.to = to

	go func() {
		end, err := converse(ctx, tunnel, from, io.Discard, io.Discard)
		_ = from.Close() // what is sent next finds another connection
		_ = tunnel.Close()

		switch {
		case ctx.Err() != nil:
		case err != nil:
			t.Note("what was typed last may not have reached job %s: %s", t.job, table.Plain(err.Error()))
		case end.Exit == noInput:
			t.Note("The program of job %s reads no input: it was started by an agent of an earlier version", t.job)
		case end.Exit != 0:
			t.Note("what was typed last may not have reached job %s: what sends it has ended with %d",
				t.job, end.Exit)
		}
	}()

	return nil
}

// close ends what is sent. The program does not notice.
func (t *typist) close() {
	if t.to != nil {
		_ = t.to.Close() // what was written has been sent
	}
}
