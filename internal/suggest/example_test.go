package suggest_test

import (
	"fmt"

	"trainyard/internal/suggest"
)

func ExampleClosest() {
	fmt.Println(suggest.Closest("gpsu", []string{"cpus", "gpus", "memory"}))
	// Output: gpus
}

func ExampleDidYouMean() {
	fmt.Println(suggest.DidYouMean("fast", []string{"local", "spot"}))
	// Output: use one of local, spot
}
