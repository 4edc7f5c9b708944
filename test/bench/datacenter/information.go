package datacenter

import (
	"trainyard/test/bench/andreas"
	"trainyard/test/bench/information"
)

// Comparisons says what each side knows: the same as in bench-andreas. What the public program gave on other
// instances of the same law is printed beside ours and enters no figure.
func Comparisons() []information.Comparison {
	return []information.Comparison{andreas.Compare("bench-datacenter")}
}
