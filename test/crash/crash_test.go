// Package crash_test kills the server and the agents of a real yard at random
// points while hundreds of jobs flow, and then checks that nothing was lost,
// nothing ran twice and every line was kept once.
//
// crash_test.go has the test and its settings, chaos_test.go kills and starts
// again, load_test.go submits the jobs, watch_test.go follows feed and output as a
// client does, record_test.go reads what the jobs wrote down, recorder_test.go writes
// it for jobs in containers, check_test.go compares all of it at the end.
package crash_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"trainyard/internal/store/storetest"
	"trainyard/test/podman"
	"trainyard/test/yardtest"
)

var (
	killsFlag = flag.Int("kills", number("KILLS"), "how many kills in all; 0 for 200 under CI=true and 24 else")
	seedFlag  = flag.Int("seed", number("SEED"), "seed of all chances; 0 for one that is made up and printed")
)

// binaries is where the real binary and the jobs' program were built.
var binaries string

// number reads a number from the environment, 0 if there is none.
func number(variable string) int {
	n, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return 0
	}

	return n
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	binaries, err = os.MkdirTemp("", "crash-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(binaries) }() // it is in a folder that is cleared anyhow

		err = yardtest.Build(binaries, "trainyard/cmd/trainyard", "trainyard/test/crash/program")
	}

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return m.Run()
}

// victims says which processes a kill ends.
type victims struct {
	name          string
	server, agent bool
	share         int // of the kills, in hundredths
}

func TestCrash(t *testing.T) {
	t.Parallel()
	kills, seed := *killsFlag, uint64(*seedFlag)
	if kills == 0 {
		kills = 24
		if os.Getenv("CI") == "true" {
			kills = 200
		}
	}

	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}

	t.Logf("seed %d, %d kills; the same again: KILLS=%d SEED=%d make test-crash", seed, kills, kills, seed)

	parts := []victims{
		{"server", true, false, 50}, {"agent", false, true, 30}, {"both", true, true, 20},
	}
	for s, where := range []struct {
		name  string
		share int // of the kills, in hundredths
	}{{"sqlite", 40}, {"postgres", 40}, {"containers", 20}} {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			database := func(testing.TB) string { return "" }
			if where.name == "postgres" {
				database = storetest.StartPostgres(t)
			}

			for n, part := range parts {
				t.Run(part.name, func(t *testing.T) {
					sc := scene{
						victims: part, kills: max(1, kills*part.share*where.share/10_000), seed: seed*100 + uint64(s*10+n),
						store: database(t), inFlight: 20, pace: 1,
					}

					if where.name == "containers" { // each takes about as long as a second to start and to remove
						sc.engine, sc.inFlight, sc.pace = podman.Start(t), 6, 4
						sc.image = sc.engine.Push(t, "program:1", programImage(t))
					}

					play(t, sc)
				})
			}
		})
	}
}

// programImage is an image with a shell and the jobs' program.
func programImage(t *testing.T) podman.Image {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(binaries, "program"))
	if err != nil {
		t.Fatal(err)
	}

	img := podman.Shell()
	img.Files = map[string]string{"/bin/program": string(text)}

	return img
}

// scene is one yard that is tormented.
type scene struct {
	victims
	kills int
	seed  uint64
	store string
	// inFlight is how many submissions have not ended, and pace how much longer they take to start than processes:
	// their programs and the time between kills are as much longer.
	inFlight, pace int
	// engine and image are for jobs in containers; nil and "" if they run as processes.
	engine *podman.Engine
	image  string
}

// play runs a scene from a new yard to the last check.
func play(t *testing.T, sc scene) {
	t.Helper()
	y := newYard(t, sc)
	begun := time.Now()
	y.open(t)
	l := newLoad(y, rand.New(rand.NewPCG(sc.seed, 1)))
	l.start(t)
	y.torment(t, rand.New(rand.NewPCG(sc.seed, 2)), l)
	tormented := time.Since(begun)
	l.finish(t)
	check(t, y, l)
	t.Logf("%d kills in %.1f s, then drained: %s, %d calls made again; %.1f s in all",
		sc.kills, tormented.Seconds(), l.tally(), l.again.Load(), time.Since(begun).Seconds())
}
