package timeline

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// minutes is a simple profile: what is free in each of 200 minutes.
type minutes [200]Size

// TestProfileIsWhatIsFree compares a profile with what is free in each minute.
func TestProfileIsWhatIsFree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := Size{8, 8000, 80}
		p := profile{{0, all}}

		var line minutes
		for i := range line {
			line[i] = all
		}

		drawn := func() Size {
			return Size{rapid.IntRange(0, 4).Draw(t, "gpus"), 1000, 10}
		}

		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			at := rapid.IntRange(0, 60).Draw(t, "at")
			lasts := rapid.IntRange(1, 60).Draw(t, "lasts")
			n := drawn()

			if rapid.Bool().Draw(t, "gives") {
				p.release(time.Duration(at)*time.Minute, n)

				for i := at; i < len(line); i++ {
					line[i] = line[i].Plus(n)
				}

				continue
			}

			p.reserve(time.Duration(at)*time.Minute, n, time.Duration(lasts)*time.Minute)

			for i := at; i < at+lasts; i++ {
				line[i] = line[i].minus(n)
			}
		}

		for i := range line {
			if got := p.at(time.Duration(i) * time.Minute); got != line[i] {
				t.Fatalf("in minute %d %+v is free, want %+v", i, got, line[i])
			}
		}

		n, lasts := drawn(), rapid.IntRange(1, 60).Draw(t, "for")
		fits := func(from int) bool {
			for i := from; i < from+lasts; i++ {
				if !line[i].Holds(n) {
					return false
				}
			}

			return true
		}

		first := Never
		for i := 0; i < len(line)-lasts; i++ {
			at := time.Duration(i) * time.Minute
			if got := p.fits(at, n, time.Duration(lasts)*time.Minute); got != fits(i) {
				t.Fatalf("%+v for %d minutes from minute %d: fits %v, want %v", n, lasts, i, got, fits(i))
			}

			if first == Never && fits(i) {
				first = at
			}

			if got := p.earliestFrom(at, n, time.Duration(lasts)*time.Minute, Never); (got == at) != fits(i) || got < at {
				t.Fatalf("from minute %d on %+v is free in %s, want at once: %v", i, n, got, fits(i))
			}
		}

		if got := p.earliest(n, time.Duration(lasts)*time.Minute, Never); got != first {
			t.Fatalf("%+v for %d minutes is free from %s, want %s", n, lasts, got, first)
		}

		if first != Never && first > 0 {
			if got := p.earliest(n, time.Duration(lasts)*time.Minute, first-1); got != Never {
				t.Fatalf("asked for less than %s the answer is %s", first, got)
			}
		}
	})
}

// TestReleasesAgreeWithTheProfile checks that the releases, computed once for all sizes, agree with
// the profile of a room for each size.
func TestReleasesAgreeWithTheProfile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)
		table := fleet.NewTable()

		n := &fleet.Node{
			ID:        "a",
			Class:     fleet.Local,
			State:     fleet.Ready,
			Inventory: fleet.Inventory{CPUs: 64000, Memory: 1 << 40},
		}

		for i := range 8 {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "A100"})
		}

		table.Put(n, 0)

		for i := range rapid.IntRange(0, 6).Draw(t, "holds") {
			room, _ := table.Get("a")
			h := fleet.Hold{
				Run:   id.Run(fmt.Sprint("r", i)),
				Job:   id.Job(fmt.Sprint("j", i)),
				GPUs:  fleet.LowestGPUs(room.Free, rapid.IntRange(1, 4).Draw(t, "gpus")),
				Since: now.Add(-time.Hour),
			}

			if rapid.IntRange(0, 3).Draw(t, "known") > 0 {
				h.Ends = now.Add(time.Duration(rapid.IntRange(-30, 30).Draw(t, "ends")) * time.Minute)
			}

			table.Book("a", h)
		}

		tl := &Timeline{}
		tl.Update(Snapshot{Now: now, Rooms: table.Rooms(), Guess: time.Hour})

		profile := tl.profileOf(tl.plan(0))
		for gpus := range 9 {
			when, spare, ok := freesAt(tl.releasesOf(0), gpus)
			at := max(when-tl.now, 0)

			want := profile.earliest(Size{GPUs: gpus}, time.Hour, Never)
			if !ok || at != want || spare != profile.at(want).GPUs-gpus {
				t.Fatalf("%d GPUs are free in %s with %d more (%v), want %s: %+v", gpus, at, spare, ok, want, *profile)
			}
		}

		if _, _, ok := freesAt(tl.releasesOf(0), 9); ok {
			t.Fatal("a room of 8 GPUs has 9")
		}
	})
}

// TestEstimatesHoldForAWhile: the end of a job that is late, or that says nothing of its end, is estimated ahead of
// now, the estimate is the same until it no longer holds, and it is at most an eighth or a minute too late.
func TestEstimatesHoldForAWhile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		began := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)
		h := fleet.Hold{Since: began, GPUs: 1}
		if rapid.Bool().Draw(t, "late") {
			h = fleet.Hold{Ends: began, GPUs: 1}
		}

		age := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "age"))
		tl := &Timeline{now: clockOf(began.Add(age))}
		end, valid := tl.endOf(&h)

		if least := tl.now + age; end < least || end <= tl.now || end-least > age/4+2*time.Minute {
			t.Fatalf("at the age of %s it ends in %s", age, end-tl.now)
		}

		tl.now = time.Duration(rapid.Int64Range(int64(tl.now), int64(valid)).Draw(t, "later"))
		if again, until := tl.endOf(&h); again != end || until != valid {
			t.Fatalf("the estimate is another before it was to change")
		}

		tl.now = valid + 1
		if again, _ := tl.endOf(&h); again <= end {
			t.Fatalf("the estimate is the same after it was to change")
		}
	})
}
