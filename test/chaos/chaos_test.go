// Package chaos_test breaks real yards in every way of the fault table and checks that nothing ran twice, nothing was
// lost, nothing is stuck, every line was kept once, and what the yard shows is true.
//
// Each row has a yard of its own: server, three agents and, where wanted, PostgreSQL as real processes, each on a host
// of its own network (package netlab). The jobs write down what they do (package evidence). rows_*_test.go have the
// faults, defects_test.go the rows that are known to fail, world_test.go starts and breaks, load_test.go submits,
// check_test.go compares all of it at the end, soak_test.go draws faults at random, failover_test.go measures.
package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/store/storetest"
	"trainyard/test/netlab"
	"trainyard/test/yardtest"
)

var (
	allFlag  = flag.Bool("all", false, "play every row of the fault table, on both stores")
	rowsFlag = flag.String("rows", "", "play these `rows` only, separated by commas")
	keepFlag = flag.Bool("keep", false, "keep the folders of the yards, also of rows that held")
)

var (
	binaries    string // where the real binary and the jobs' program were built
	unavailable error  // why there are no networks here
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

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

	binaries, err = os.MkdirTemp("", "chaos-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(binaries) }() // it is in a folder that is cleared anyhow

		err = yardtest.Build(binaries, "-tags=chaos", "trainyard/cmd/trainyard", "trainyard/test/chaos/program")
	}

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return m.Run()
}

// The stores of a yard.
const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

// row is one row of the fault table.
type row struct {
	number string // as in the fault table
	fault  string
	stores []string // on which it is played; nil for both
	brief  bool     // part of the short form

	flags   []string       // further flags of the server
	disks   map[string]int // size of the disk of some hosts, in MB
	standby bool           // there is a second server
	chatty  bool           // the long jobs print as fast as a thousand lines a second

	play  func(w *world) // breaks the yard and heals it
	lasts time.Duration  // more than a few minutes

	calm  bool // it submits jobs of its own instead of the usual ones
	short int  // lines that may be missing at the end of a run, because what had them was killed or is gone
}

// rows is the fault table.
func rows() []row {
	return slices.Concat(networkRows(), processRows(), diskRows(), identityRows(), restoreRows(), storeRows(),
		serverRows(), clockRows())
}

// TestFaults plays the rows of the fault table.
func TestFaults(t *testing.T) {
	if unavailable != nil {
		t.Skip(unavailable)
	}

	table := &outcomes{}
	t.Cleanup(func() { t.Log("fault × outcome\n" + table.String()) })

	wanted := chosen()

	t.Run("rows", func(t *testing.T) {
		for _, r := range wanted {
			stores := r.stores
			if stores == nil {
				stores = []string{sqlite, postgres}
			}

			if !*allFlag && *rowsFlag == "" {
				stores = stores[:1]
			}

			for _, store := range stores {
				t.Run(r.number+"/"+store, func(t *testing.T) {
					t.Parallel()

					w := newWorld(t, r, store)
					w.perform()

					if w.missing != nil {
						storetest.SkipPostgres(t, w.missing)
					}

					table.add(w)
					judge(t, w)
				})
			}
		}
	})
}

// chosen returns the rows that are played: those that are named, all, or those of the short form.
func chosen() []row {
	named := strings.Split(*rowsFlag, ",")

	return slices.DeleteFunc(rows(), func(r row) bool {
		if *rowsFlag != "" {
			return !slices.Contains(named, r.number)
		}

		return !*allFlag && !r.brief
	})
}

// judge fails the test if a row did not hold.
func judge(t *testing.T, w *world) {
	t.Helper()

	for _, p := range w.found() {
		t.Errorf("%s: %s", p.column, p.text)
	}
}

// outcomes is the table that is printed at the end.
type outcomes struct {
	mu    sync.Mutex
	lines map[string]string // by row and store
}

func (o *outcomes) add(w *world) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.lines == nil {
		o.lines = map[string]string{}
	}

	cells := []string{w.row.number, w.row.fault, w.store}
	for _, c := range columns {
		cells = append(cells, w.cell(c))
	}

	o.lines[w.row.number+w.store] = "| " + strings.Join(cells, " | ") + " |"
}

// String is the table in Markdown, in the order of the fault table.
func (o *outcomes) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	head := "| # | fault | store | " + strings.Join(columns, " | ") + " |\n| --- | --- | --- |" +
		strings.Repeat(" --- |", len(columns))

	lines := []string{head}
	for _, r := range rows() {
		for _, store := range []string{sqlite, postgres} {
			if line, played := o.lines[r.number+store]; played {
				lines = append(lines, line)
			}
		}
	}

	return strings.Join(lines, "\n")
}

// program is the path of what the jobs run.
func program() string { return filepath.Join(binaries, "program") }
