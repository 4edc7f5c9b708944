// Package fuzzing gives fuzz targets a time oracle: an input that takes too long to parse fails the target, as one
// that is parsed wrongly does.
//
// What comes from outside may be long, so a parser whose time grows with the square of its input lets one request
// keep a server busy. Every target calls Bounded first, and adds long inputs (Long) to its seeds: chance alone rarely
// makes one that is long enough to tell. It is imported by tests alone.
package fuzzing

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxCPU is what an input may take of the processor. It is far more than a sound parser needs for inputs of the size
	// that fuzzing makes, and it does not depend on what else the machine does.
	maxCPU = slower * 2 * time.Second

	// maxWall ends an input that may never come to an end. It is longer than maxCPU takes on a busy machine.
	maxWall = slower * 20 * time.Second

	// longSize is the size of a long input.
	longSize = 64 << 10
)

// Bounded fails the test if what follows on this goroutine, until the function that it returns is called, takes
// longer than any input may.
func Bounded(t testing.TB) func() {
	t.Helper()
	return bounded(t, maxCPU, maxWall)
}

func bounded(t testing.TB, most, patience time.Duration) func() {
	t.Helper()

	// The input is known only to the process that tries it: if that ends, go test keeps the input.
	watchdog := time.AfterFunc(patience, func() {
		panic(fmt.Sprintf("one input of %s has taken longer than %s", t.Name(), patience))
	})

	runtime.LockOSThread()

	begun := threadTime(t)

	return func() {
		t.Helper()
		watchdog.Stop()

		took := threadTime(t) - begun

		runtime.UnlockOSThread()

		if took > most {
			t.Errorf("the input took %s of the processor, more than %s: does the time grow faster than the input?",
				took, most)
		}
	}
}

// threadTime returns how long the current thread has used a processor.
func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &use); err != nil {
		t.Fatal(err)
	}

	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// Long returns a text that is repeated until it is long.
func Long[T ~string | ~[]byte](text T) T {
	return T(bytes.Repeat([]byte(text), max(longSize/max(len(text), 1), 1)))
}
