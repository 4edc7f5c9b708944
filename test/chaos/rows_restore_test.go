package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// restoreRows are older copies of the database that were put back.
func restoreRows() []row {
	return []row{
		{number: "28", fault: "older database, a newer job still runs", calm: true, play: playRestoreWithNewerRun},
		{number: "29", fault: "older database, a job's runs are newer", calm: true, play: playRestoreWithNewerEpochs},
		{number: "30", fault: "older database, output and blobs are newer", calm: true, play: playRestoreWithNewerOutput},
	}
}

// playRestoreWithNewerRun puts a database back that does not know a job which still runs on a node, and submits another
// job, to which the database would give the same number.
func playRestoreWithNewerRun(w *world) {
	before, err := w.load.submit("before", "-lines 5 -every 100ms")
	w.must(err)
	w.load.awaitEnd(before)
	w.backUp()

	running, err := w.load.submit("running", "-every 100ms -until "+w.load.released())
	w.must(err)
	w.awaitStart(running)
	w.must(w.yard.Server().Kill())
	w.sleep(time.Second)
	w.putBack()
	w.load.forget(running)

	_, err = w.load.submit("after", "-lines 5 -every 100ms")
	w.must(err)
	w.sleep(2 * time.Second)
}

// playRestoreWithNewerEpochs puts a database back that knows fewer runs of a job than its node.
func playRestoreWithNewerEpochs(w *world) {
	for _, n := range nodeNames[1:] {
		_, err := call(w.load, func(ctx context.Context, c *api.Client) (api.Node, error) {
			return c.CordonNode(ctx, id.Node(n))
		})
		w.must(err)
	}

	s, err := w.load.submit("again", "-every 100ms -until "+w.load.released())
	w.must(err)
	w.awaitStart(s)
	w.backUp()
	before := processesOf(w.processes(), s.name)

	for range 6 {
		w.control(s, (*api.Client).PauseJob, job.Paused)
		w.control(s, (*api.Client).ResumeJob, job.Running)
	}

	w.must(w.yard.Server().Kill())

	for _, p := range processesOf(w.processes(), s.name)[len(before):] {
		s.undone = append(s.undone, p.Run)
	}

	w.putBack()
	w.sleep(2 * time.Second)
}

// playRestoreWithNewerOutput puts a database back beside output and blobs of jobs that it does not know, and submits as
// many others.
func playRestoreWithNewerOutput(w *world) {
	w.backUp()

	for n := range 6 {
		s, err := w.load.submit(fmt.Sprintf("old%d", n), "-lines 60 -every 10ms")
		w.must(err)
		w.load.awaitEnd(s)
		w.load.forget(s)
	}

	w.must(w.yard.Server().Kill())
	w.putBack()

	for n := range 6 {
		_, err := w.load.submit(fmt.Sprintf("new%d", n), "-lines 40 -every 10ms")
		w.must(err)
	}
}

// awaitStart waits until a job runs.
func (w *world) awaitStart(s *submitted) {
	w.until(stuck, "the start of "+s.name, func() string {
		if len(processesOf(w.processes(), s.name)) == 0 {
			return "it does not run"
		}

		return ""
	})
}

// control asks for a change of a job and waits until it has come.
func (w *world) control(
	s *submitted,
	change func(*api.Client, context.Context, id.Job) (api.Job, error),
	want job.State,
) {
	_, err := call(w.load, func(ctx context.Context, c *api.Client) (api.Job, error) { return change(c, ctx, s.id) })
	w.must(err)

	w.until(stuck, s.name+" "+string(want), func() string {
		d, err := w.load.detail(s)
		if err != nil {
			return err.Error()
		}

		if d.State != want {
			return fmt.Sprintf("it is %s (%s)", d.Status, d.Reason)
		}

		return ""
	})
}

// backUp copies the database while the server is stopped.
func (w *world) backUp() {
	_, err := w.yard.Server().Stop(patience)
	w.must(err)

	if w.store == sqlite {
		w.must(copyFile(w.database(), w.database()+".backup"))
	} else {
		w.must(w.cloneDatabase("yard", "backup"))
	}

	w.startServer()
	w.awaitServer()
}

// putBack replaces the database by the copy and starts the server.
func (w *world) putBack() {
	if w.store == sqlite {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(w.database() + suffix); !errors.Is(err, os.ErrNotExist) {
				w.must(err)
			}
		}

		w.must(copyFile(w.database()+".backup", w.database()))
	} else {
		w.must(w.cloneDatabase("backup", "yard"))
	}

	w.startServer()
	w.awaitServer()
}

// database is the file of SQLite.
func (w *world) database() string { return filepath.Join(w.data("s1"), "yard.db") }

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}

	return os.WriteFile(to, data, 0o600)
}

// cloneDatabase replaces a database of PostgreSQL by a copy of another.
func (w *world) cloneDatabase(from, to string) (err error) {
	conn, err := pgx.Connect(w.ctx, w.db.NetworkURL("postgres"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}

	defer func() { err = errors.Join(err, conn.Close(w.ctx)) }()

	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + to + " WITH (FORCE)",
		"CREATE DATABASE " + to + " TEMPLATE " + from,
	} {
		if _, err := conn.Exec(w.ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}

	return nil
}
