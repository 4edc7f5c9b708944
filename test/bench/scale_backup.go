package main

import (
	"context"
	dbsql "database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"trainyard/test/bench/scale"
)

// backupSection measures a backup of the yard while jobs end and arrive, and makes sure that it can be restored.
type backupSection struct{ settings }

func (backupSection) Name() string { return "backup" }

// Run makes a backup and restores it into an empty folder.
func (s backupSection) Run(ctx context.Context) (out []figure, err error) {
	y, err := s.at(ctx, defaultPolicy)
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "trainyard-bench-backup-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the backup: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	submits := scale.NewLatencies(y.clock)

	submit, done, err := y.submitter(submits)
	if err != nil {
		return nil, err
	}

	defer done()

	folder := filepath.Join(dir, "backup")

	var took time.Duration

	working, stop := context.WithCancel(ctx)
	defer stop()

	err = gather(working, []func(context.Context) error{
		y.endJobs(churn),
		func(ctx context.Context) error { return scale.Pace(ctx, y.clock, churn, submit) },
		func(ctx context.Context) error {
			defer stop() // the others go on until the backup is made

			began := y.clock.Now()
			err := y.Command(ctx, "backup", folder, "--data", y.Data())
			took = y.clock.Now().Sub(began)

			return err
		},
	})
	if err != nil {
		return nil, err
	}

	began := y.clock.Now()

	if err := y.restored(ctx, folder, filepath.Join(dir, "restored")); err != nil {
		return nil, fmt.Errorf("restore the backup: %w", err)
	}

	return []figure{
		{
			"backup_s", took.Seconds(), "s",
			fmt.Sprintf("trainyard backup of the running yard while %d jobs arrive and end in a second; restored and checked",
				churn),
		},
		{"restore_s", y.clock.Now().Sub(began).Seconds(), "s", "trainyard restore into an empty folder"},
		{"backup_submit_p99_ms", milliseconds(percentile(submits.All(), 99)), "ms", "submissions meanwhile"},
	}, nil
}

// restored restores a backup into a new data folder and makes sure that all jobs are in it.
func (y *largeYard) restored(ctx context.Context, from, data string) (err error) {
	if err := y.Command(ctx, "restore", from, "--data", data); err != nil {
		return err
	}

	db, err := dbsql.Open("sqlite", filepath.Join(data, filepath.Base(y.Database())))
	if err != nil {
		return fmt.Errorf("open the restored database: %w", err)
	}

	defer func() { err = errors.Join(err, db.Close()) }()

	var ended, all int
	if err := db.QueryRowContext(ctx, `SELECT COUNT(*), SUM(ended > 0) FROM jobs`).Scan(&all, &ended); err != nil {
		return fmt.Errorf("count the restored jobs: %w", err)
	}
	if ended < y.size.Finished || all < y.size.Finished+y.size.Queued {
		return fmt.Errorf("%d jobs are restored, %d of them ended; want at least %d and %d", all, ended,
			y.size.Finished+y.size.Queued, y.size.Finished)
	}

	return nil
}
