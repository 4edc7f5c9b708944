package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"trainyard/internal/agent/share"
	"trainyard/internal/clock"
)

// use is what is printed of a job when the broker ends.
type use struct {
	Job      string  `json:"job"`
	Held     float64 `json:"held_s"`
	Demanded float64 `json:"demanded_s"`
	Entitled float64 `json:"entitled_s"`
	Grants   int     `json:"grants"`
	Denials  int     `json:"denials"`
}

// serve divides a GPU among jobs until the input ends: gpushare serve FOLDER UUID JOB…, with jobs such as
// a:weight=0.7,limit=0.8,class=normal,cap=10,interactive. A job's programs get the folder FOLDER/a in their
// environment.
func serve(args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 3 {
		return errors.New("give a folder, the UUID of a GPU and a job or more")
	}

	broker := share.New(share.Options{
		Clock: clock.NewSteady(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Tuning: share.DefaultTuning(),
	})

	defer func() { _ = broker.Close() }()

	for _, text := range flags.Args()[2:] {
		job, err := parse(text)
		if err != nil {
			return err
		}

		job.Folder, job.UUID = filepath.Join(flags.Arg(0), job.ID), flags.Arg(1)
		if err := broker.Add(job); err != nil {
			return err
		}
	}

	if _, err := fmt.Fprintln(stdout, "serving"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, stdin); err != nil {
		return err
	}

	uses, err := broker.Uses()
	if err != nil {
		return err
	}

	out := json.NewEncoder(stdout)

	for name, u := range uses {
		err := out.Encode(use{
			Job: name, Held: u.Held.Seconds(), Demanded: u.Demanded.Seconds(), Entitled: u.Entitled.Seconds(),
			Grants: u.Grants, Denials: u.Denials,
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// parse reads a job of the form name:key=value,…
func parse(text string) (share.Job, error) {
	name, terms, _ := strings.Cut(text, ":")
	job := share.Job{ID: name, UID: -1, GID: -1, Terms: share.Terms{Weight: 1, Class: share.Normal}}

	for part := range strings.SplitSeq(terms, ",") {
		key, value, _ := strings.Cut(part, "=")
		number, err := strconv.ParseFloat(value, 64)

		switch key {
		case "weight":
			job.Terms.Weight = number
		case "limit":
			job.Terms.Limit = number
		case "cap":
			job.Cap = uint64(number * (1 << 30))
		case "interactive":
			job.Terms.Interactive, err = true, nil
		case "class":
			job.Terms.Class, err = class(value)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}

		if err != nil {
			return job, fmt.Errorf("job %s: %w", text, err)
		}
	}

	return job, nil
}

func class(name string) (share.Class, error) {
	for _, c := range []share.Class{share.Opportunistic, share.Normal, share.Guaranteed} {
		if c.String() == name {
			return c, nil
		}
	}

	return 0, fmt.Errorf("unknown class %q", name)
}
