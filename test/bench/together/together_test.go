package together

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestEachIsCalledOnceAndNotTooManyAtOnce(t *testing.T) {
	t.Parallel()

	bad := errors.New("bad")

	for _, atOnce := range []int{0, 1, 3, 100} {
		var running, most atomic.Int64
		calls := make([]int, 50)

		err := Each(len(calls), atOnce, func(i int) error {
			now := running.Add(1)
			defer running.Add(-1)

			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}

			calls[i]++
			if i == 7 {
				return bad
			}

			return nil
		})

		if !errors.Is(err, bad) || most.Load() > int64(max(atOnce, 1)) {
			t.Errorf("%d at once: %v, at most %d", atOnce, err, most.Load())
		}

		for i, n := range calls {
			if n != 1 {
				t.Errorf("%d at once: %d was called %d times", atOnce, i, n)
			}
		}
	}
}
