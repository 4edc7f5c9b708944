// Package moves_test moves real trainings between the agents of a real yard and breaks everything on the way.
//
// TestMoves kills programs, supervisors, agents, machines and the server at random points while nodes are drained, and
// compares the trainings with ones that nobody disturbed: the same loss at every step, the same weights at the end, and
// never more repeated than one checkpoint interval, or, if checkpoints are written in the background, than that and the
// steps since a save began that was not complete. TestFaultsDuringAMove strikes at every step of a move from a
// provisioned machine home with every fault. moves_test.go has the test and its settings, training_test.go the
// trainings and what is compared, yard_test.go the yard and the kills, faults_test.go the fault matrix.
package moves_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"trainyard/test/yardtest"
)

var (
	killsFlag = flag.Int("kills", number("KILLS"),
		"how many kills of trainings that wait for their saves, and a quarter more of one that does not; 0 for 6")
	seedFlag = flag.Int("seed", number("SEED"), "seed of all chances; 0 for one that is made up and printed")
)

// binaries is where the real binary was built.
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
	binaries, err = os.MkdirTemp("", "moves-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(binaries) }() // it is in a folder that is cleared anyhow

		err = yardtest.Build(binaries, "trainyard/cmd/trainyard")
	}

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return m.Run()
}

func TestMoves(t *testing.T) {
	t.Parallel()
	kills, seed := *killsFlag, uint64(*seedFlag)
	if kills == 0 {
		kills = 6
	}

	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}

	t.Logf("seed %d, %d kills; the same again: KILLS=%d SEED=%d make test-moves", seed, kills, kills, seed)

	for n, c := range []struct {
		of    *program
		kills int
	}{
		{plainPython(), kills / 2}, {pyTorch(), kills - kills/2}, {backgroundSaves(), kills / 4},
	} {
		of, kills := c.of, c.kills

		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			of.find(t)
			y := newYard(t)
			rng := rand.New(rand.NewPCG(seed, uint64(n)))

			tally := map[kind]int{}
			for done := 0; done < kills; {
				s := y.begin(t, of, rng)
				done += s.torment(rng, kills-done, tally)
				s.finish()
				t.Logf("%d of %d kills; %s", done, kills, &y.account)
			}

			t.Logf("%d kills: %v; %s", kills, tally, &y.account)
		})
	}
}
