// Package together runs the independent simulations of a benchmark at the same time.
package together

import (
	"errors"
	"sync"
)

// Each calls do with 0 to n-1, for so many of them at once, and returns their errors.
func Each(n, atOnce int, do func(i int) error) error {
	errs := make([]error, n)
	slots := make(chan struct{}, max(atOnce, 1))

	var wait sync.WaitGroup

	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()

			errs[i] = do(i)
		})
	}

	wait.Wait()

	return errors.Join(errs...)
}
