// Package target is what the benchmarks of policies and simulator have in common:
// what they are given.
package target

// Options is what every benchmark is given. One that has no use for something
// leaves it.
type Options struct {
	Data     string // folder of the public traces; what needs them is left out, or generated, where it is absent
	Quick    bool   // a small version, to try the benchmark itself
	Parallel int    // simulations at once, for benchmarks that do not measure time
	Streams  string // names of the streams to run, separated by commas; "" for all
	Skip     int    // seeds to leave out from the first: others than those that policies were tried on
}
