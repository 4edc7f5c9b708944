package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"trainyard/internal/atomicfile"
	"trainyard/internal/cli"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/logs/archive"
	"trainyard/internal/sim/demo"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
)

// demoFile marks the data folder of a demo yard, so that it is never taken for that of a real one.
const demoFile = "demo.json"

// demoContext is the name of the login to a demo yard.
const demoContext = "demo"

// demoMark is what the file says to whoever finds it.
type demoMark struct {
	Note string    `json:"note"`
	Made time.Time `json:"made"`
}

// checkFolder refuses the folder of a demo to a real yard.
func (c *config) checkFolder() error {
	is, err := exists(filepath.Join(c.data, demoFile))
	if err != nil || !is {
		return err
	}

	return fault.New(fault.Conflict, "demo_folder", "%s holds a demo yard, whose people, nodes and jobs are simulated",
		c.data).WithField("--data").
		WithRemedy("start the demo with: trainyard up --demo; for a real yard name another folder with --data")
}

// useDemo makes the configuration that of a demo, in a folder of its own.
func (c *config) useDemo(submit string) error {
	for _, s := range []struct{ flag, value string }{
		{"--store", c.store}, {"--blobs", c.blobs}, {"--clouds", c.clouds}, {"--tariff", c.tariff},
		{"--fake-gpus", c.fakeGPUs}, {"--submit", submit},
	} {
		if s.value != "" {
			return fault.New(fault.Invalid, "demo_setting", "cannot be combined with --demo").WithField(s.flag).
				WithRemedy("leave it out: a demo brings its own nodes, prices and jobs, and keeps all of it in its data folder")
		}
	}

	if !c.dataGiven {
		c.data += "-demo"
	}

	c.demo, c.isolation = true, isolationNone

	is, err := exists(filepath.Join(c.data, demoFile))
	if err != nil || is {
		return err
	}

	entries, err := os.ReadDir(c.data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the data folder: %w", err)
	}

	if len(entries) > 0 {
		return fault.New(fault.Conflict, "not_a_demo_folder", "%s is not the folder of a demo yard, and is not empty",
			c.data).WithField("--data").WithRemedy("leave --data out, or name a folder that is not there yet")
	}

	return nil
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	return err == nil, err
}

// upDemo runs a demo yard until ctx ends.
func upDemo(ctx context.Context, c *config, env cli.Env, submit string) error {
	if err := c.useDemo(submit); err != nil {
		return err
	}

	log, closeLog, err := upLog(c)
	if err != nil {
		return err
	}

	defer closeLog()

	if err := makeMonth(ctx, c, env, log); err != nil {
		return err
	}

	s, err := startServer(ctx, c, log)
	if err != nil {
		return err
	}
	if err := s.waitLead(ctx); err != nil || ctx.Err() != nil {
		return errors.Join(err, s.stop())
	}
	if err := demoLogin(ctx, s, env); err != nil {
		return errors.Join(err, s.stop())
	}

	say(env.Stderr, "DEMO: the people, nodes, prices and jobs of this yard are simulated; "+
		"nothing runs, nothing is paid.\n"+
		"The demo yard is up at %s\n", s.url)
	say(env.Stderr, "  data  %s\n  log   %s\n  you   %s\n", c.data, filepath.Join(c.data, "yard.log"), demo.You)

	stopPortal, err := s.showPortal(ctx, demo.You, func(format string, args ...any) { say(env.Stderr, format, args...) })
	if err != nil {
		return errors.Join(err, s.stop())
	}

	say(env.Stderr, "\nNext, in another terminal:\n  %[1]s --context %[2]s jobs\n  %[1]s --context %[2]s nodes\n"+
		"Ctrl-C stops the yard.\n", self(), demoContext)

	select {
	case <-ctx.Done():
		say(env.Stderr, "\nStopping the demo yard.\n")
	case err = <-s.failed:
	}

	return errors.Join(err, stopPortal(), s.stop())
}

// demoLogin logs the command line in to the demo, beside the login that it uses.
func demoLogin(ctx context.Context, s *running, env cli.Env) error {
	file, err := contexts.Load(env.ConfigDir)
	if err != nil {
		return err
	}

	if known, ok := file.Get(demoContext); ok && known.Server == s.url && s.knows(ctx, known) {
		return nil
	}

	current := file.Current
	if err := s.login(ctx, file, demoContext, demo.You); err != nil || current == "" || current == demoContext {
		return err
	}

	file.Current = current

	return file.Save()
}

// storeFile is the database of a yard in its data folder.
const storeFile = "yard.db"

// makeMonth fills the folder of a demo when it is first started. The database gets its name when all is in it, so that
// a demo whose making was interrupted is made anew.
func makeMonth(ctx context.Context, c *config, env cli.Env, log *slog.Logger) error {
	path := filepath.Join(c.data, storeFile)
	if made, err := exists(path); err != nil || made {
		return err
	}

	clk := clock.NewSteady()
	began := clk.Now()

	mark, err := json.MarshalIndent(demoMark{
		Note: "demo yard of trainyard up --demo: its people, nodes, prices and jobs are simulated", Made: began,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the mark of the demo: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(c.data, demoFile), mark); err != nil {
		return fmt.Errorf("write the mark of the demo: %w", err)
	}

	say(env.Stderr, "Making a month of simulated work, which takes some seconds…\n")

	part := filepath.Join(c.data, "month.db")
	for _, left := range []string{part, part + "-wal", part + "-shm", filepath.Join(c.data, logsFolder), blobPath(c)} {
		if err := os.RemoveAll(left); err != nil {
			return fmt.Errorf("remove what is left of an earlier start: %w", err)
		}
	}

	if err := fillMonth(ctx, c, part, clk, log); err != nil {
		return fmt.Errorf("make the demo: %w", err)
	}
	if err := errors.Join(os.Rename(part, path), os.Remove(part+".lock")); err != nil {
		return fmt.Errorf("make the demo: %w", err)
	}

	log.Info("made the month of the demo", "took", clk.Now().Sub(began))

	return nil
}

// fillMonth writes the month into a database.
func fillMonth(ctx context.Context, c *config, path string, clk clock.Clock, log *slog.Logger) (err error) {
	in, err := readInputs(c)
	if err != nil {
		return err
	}

	blobs, err := openBlobs(ctx, c, log)
	if err != nil {
		return err
	}

	logs, err := archive.Open(filepath.Join(c.data, logsFolder), blobs, clk)
	if err != nil {
		return err
	}

	st, err := sqlstore.Open(ctx, path, sqlstore.Options{Clock: clk, Log: log})
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, st.Close()) }()

	if _, err := st.Lead(ctx, store.Candidate{Server: store.Server{Name: "demo"}, Lease: c.leaderLease}); err != nil {
		return err
	}

	err = demo.Make(ctx, demo.Options{
		Store: st, Logs: logs, Policy: in.newPolicy(), End: clk.Now().Truncate(time.Second),
		Length: demo.Month, Log: log,
	})

	return errors.Join(err, st.Resign(ctx))
}
